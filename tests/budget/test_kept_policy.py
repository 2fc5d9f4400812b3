"""A policy that was read once is the same the next time, and another file is another policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contain.budget.policy import PRESETS, check, kept, preset
from tests.blocked import needs_root
from tests.budget.scripted import CALM, in_an_account, status

if TYPE_CHECKING:
    from pathlib import Path

MADE_OF = (1, 2, 3, 8, 32_000)
WHOLE = """
preset = "shared"
order = "fifo"
[marks]
psi_io = 70
[pools]
gpu = 2
[classes.typecheck]
mem_mib = 6000
draws = { gpu = 1 }
"""


@pytest.mark.parametrize("name", PRESETS)
def test_presets_come_back_whole(tmp_path: Path, name: str) -> None:
    """Field by field, tuples as tuples: a decision must not depend on who read the file."""
    policy = preset(name, 8, 32_000)
    kept.keep(str(tmp_path), MADE_OF, policy)
    assert kept.recall(str(tmp_path), MADE_OF) == policy


def test_a_file_comes_back_whole(tmp_path: Path) -> None:
    """With what it changed."""
    policy = check(WHOLE, 8, 32_000)
    kept.keep(str(tmp_path), MADE_OF, policy)
    found = kept.recall(str(tmp_path), MADE_OF)
    assert found == policy
    assert hash(found) == hash(policy)


def test_of_something_else_it_is_read_again(tmp_path: Path) -> None:
    """Another file, another machine, nothing kept, or what cannot be read."""
    assert kept.recall(str(tmp_path), MADE_OF) is None
    kept.keep(str(tmp_path), MADE_OF, preset("shared", 8, 32_000))
    assert kept.recall(str(tmp_path), (*MADE_OF[:-1], 16_000)) is None
    for text in ("", "{", "[]", '{"madeOf":[]}', '{"madeOf":[1,2,3,8,32000],"policy":{}}'):
        (tmp_path / kept.FILE).write_text(text)
        assert kept.recall(str(tmp_path), MADE_OF) is None, text


@needs_root
def test_a_change_counts_for_the_next_command(tmp_path: Path) -> None:
    """And a file that is wrong is said each time, whatever was kept."""
    script = f"""{CALM}
$C exec -- true; $C status
$C policy set ceiling 3; $C exec -- true; $C status
echo 'base = "many"' >> ~/.contain/policy.toml; $C exec -- echo ran; echo rc=$?"""
    done = in_an_account(tmp_path, script)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert [status(line)["policy"]["ceiling"] for line in lines] == [1, 3], done.stderr
    assert done.stdout.splitlines()[-1] == "rc=125"
