"""Learned costs as a user meets them: commands under ``contain exec`` teach, ``why``, ``status`` and ``costs`` show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.blocked import needs_root
from tests.budget.scripted import CALM, in_an_account, status

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.slow]
"""Slow: a run that teaches lasts seconds."""

BUDGET = CALM.replace("'[marks]'", "'mem_budget_mib = 20000' 'mem_floor_mib = 0' '[marks]'")
"""The same, with memory counted: 20,000 MiB, of a machine that need not have them."""

HEAVY = """
cat > heavy.py <<'END'
import pathlib, sys, time
ballast = bytearray(300 << 20)
time.sleep(2.5)  # the time that it takes is what is learned
if sys.argv[2:]:
    pathlib.Path(sys.argv[2]).touch()
    time.sleep(1000)
END
cat > quick.py <<'END'
END
"""


def costs(text: str) -> list[dict[str, Any]]:
    """The last line that is a list of costs."""
    lines = [line for line in text.splitlines() if line.startswith('{"version"') and '"costs"' in line]
    found: list[dict[str, Any]] = json.loads(lines[-1])["costs"]
    return found


def test_a_command_teaches_what_the_next_is_asked_with(tmp_path: Path) -> None:
    """Two runs; then `why`, `costs`, the permit of the third and its row in `status` say what they took."""
    done = in_an_account(
        tmp_path,
        f"cd {tmp_path}; {BUDGET} {HEAVY}"
        """
$C why -- python3 heavy.py | grep ^memory
$C exec -- python3 heavy.py --secret=hunter2 && $C exec -- python3 heavy.py
$C why -- python3 heavy.py | grep -E '^(memory|expected)'
$C exec -- python3 quick.py; $C costs --json
$C exec -- python3 heavy.py . running & A=$!
until [ -e running ]; do sleep 0.05; done
$C status --json; kill $A; wait $A
grep -c -a -e hunter2 -e heavy -e """
        f"{tmp_path.name}"
        """ ~/.contain/costs.db*
$C costs --forget $($C costs --json | sed 's/.*"key":"\\([^"]*\\)".*/\\1/'); $C costs --json""",
    )
    lines = done.stdout.splitlines()
    assert lines[0] == "memory 0 MiB (the class says so)", done.stderr
    assert "(learned from 2 runs; the class says 0)" in lines[1]
    assert lines[2].startswith("expected ")
    [one] = next(json.loads(line)["costs"] for line in lines if '"costs":[{' in line)
    assert (one["class"], one["tool"], one["runs"], one["memoryRuns"]) == ("other", "python", 2, 2)
    assert one["memorySource"] == "sampled"
    assert 300 <= one["memoryMib"] < 400
    assert one["wallS"] >= 2.5
    [permit] = status("\n".join(line for line in lines if '"permits"' in line))["permits"]
    assert permit["memoryMib"] == one["memoryMib"]
    assert [
        line for line in lines if line.startswith("/") and ".db" in line and not line.endswith(":0")
    ] == []
    assert costs(done.stdout) == []


def test_an_end_for_lack_of_memory_raises_it(tmp_path: Path) -> None:
    """In a limit of its own: what was there, and half as much again, from the first time on."""
    done = in_an_account(
        tmp_path,
        f"cd {tmp_path}; {BUDGET} {HEAVY}"
        "$C exec --memory 200M --require-limits -- python3 heavy.py; echo status=$?; $C costs --json",
    )
    if "not-applied" in done.stderr or "status=125" in done.stdout:
        pytest.skip("capability: a cgroup for memory")
    [one] = costs(done.stdout)
    assert "status=137" in done.stdout, done.stderr
    assert (one["memorySource"], one["runs"]) == ("out-of-memory", 0)
    assert 300 <= one["memoryMib"] < 330


def test_a_damaged_file_is_no_trouble_of_a_job(tmp_path: Path) -> None:
    """The command runs and ends as it does; one line tells; and the next run learns again."""
    done = in_an_account(
        tmp_path,
        f"cd {tmp_path}; {BUDGET} {HEAVY}"
        """
echo 'these are no costs' > ~/.contain/costs.db
$C exec -- sh -c 'exit 7'; echo status=$?
ls ~/.contain/costs.db.damaged
$C exec -- python3 heavy.py; $C costs --json""",
    )
    assert "status=7" in done.stdout, done.stderr
    assert done.stderr.count("was damaged") == 1
    assert [one["tool"] for one in costs(done.stdout)] == ["python"]
