"""A permit in its wrapper's hands: it becomes smaller and larger while the job runs, and is never forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.blocked import needs_root
from tests.budget.scripted import CALM, in_an_account, status

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.timeout(180)]
TWO = (
    CALM.replace("= 1", "= 2")
    .replace("min_units = 2", "min_units = 1")
    .replace("'base", "'order = \"fair\"' 'base")
)

STEPS = """
all: $(foreach i,1 2 3 4,step$(i))
step%: ; @until [ -e go-$* ]; do sleep 0.05; done; echo $* >> log
"""
"""Each step ends when it is told to."""


def units(session: str, count: int) -> str:
    """A loop until the permit of a session has so many units."""
    return (
        f"""until $C status | grep -q '"session":"{session}"[^}}]*"units":{count},'; do sleep 0.05; done\n"""
    )


def test_it_gives_way_and_grows_again(tmp_path: Path) -> None:
    """Make has both units; who comes gets one of them when make's own child has let go; then make has both again."""
    (tmp_path / "Makefile").write_text(STEPS)
    script = f"""cd {tmp_path}; {TWO}
$C exec --session a -- make & A=$!
{units("a", 2)}
mkfifo go
$C exec --session b -- cat go & B=$!
until $C status | grep -q '"waiting":\\[{{'; do sleep 0.05; done
touch go-1
{units("b", 1)}
$C status
echo > go; wait $B
{units("a", 2)}
touch go-2 go-3 go-4; wait $A; echo rc=$?; $C status"""
    done = in_an_account(tmp_path, script)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    both = status(lines[0])["permits"]
    assert {one["session"]: one["units"] for one in both} == {"a": 1, "b": 1}, done.stderr
    assert "rc=0" in done.stdout
    assert status(lines[-1])["permits"] == []
    assert sorted((tmp_path / "log").read_text().split()) == ["1", "2", "3", "4"]


STOPPED = """
import os, signal, sys
from contain.budget import local
bind = local.LocalAdapter.bind
def stops(self, receipt):
    found = yield from bind(self, receipt)
    os.kill(os.getpid(), signal.SIGSTOP)
    return found
local.LocalAdapter.bind = stops
from contain.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""contain, stopped by somebody in the moment between its permit's proof and its gate."""


def test_a_wrapper_that_is_stopped_before_its_gate(tmp_path: Path) -> None:
    """Its init is ended after 30 s, since nothing has run: the next one's turn comes, and nothing runs afterwards."""
    program = tmp_path / "stopped.py"
    program.write_text(STOPPED)
    script = f"""{CALM}
${{C%% *}} {program} exec --session a -- touch {tmp_path}/ran & A=$!
until $C status | grep -q '"state":"bound"'; do sleep 0.05; done
$C exec --session b -- echo its turn
kill -CONT $A; wait $A; echo rc=$?; $C status"""
    done = in_an_account(tmp_path, script)
    assert done.stdout.splitlines()[:2] == ["its turn", "rc=125"], done.stderr
    assert not (tmp_path / "ran").exists()
    assert status(done.stdout)["permits"] == []


def test_nothing_is_left_of_a_wrapper_that_was_killed(tmp_path: Path) -> None:
    """Its bell, its jobserver and its socket go with its permit."""
    makefile = tmp_path / "Makefile"
    makefile.write_text("all: ; @sleep 1000\n")
    script = f"""{CALM}
$C exec --session a -- make -f {makefile} & A=$!
until $C status | grep -q '"state":"bound"\\|"state":"running"'; do sleep 0.05; done
$C exec --session b -- true & B=$!
until $C status | grep -q '"waiting":\\[{{'; do sleep 0.05; done
kill -9 $A; wait $B; $C status > {tmp_path}/end
find ~/.contain/nested ~/.contain/live -type p -o -type s; cat {tmp_path}/end"""
    done = in_an_account(tmp_path, script)
    assert done.stdout.startswith("{"), done.stdout
    assert status(done.stdout)["permits"] == []


@pytest.mark.parametrize("version", ["", "echo 1.11.1", "echo 1.12.0"])
def test_a_ninja_without_tokens_is_told_its_width(tmp_path: Path, version: str) -> None:
    """It reads no variable, and would start a job for each core and two more; its own -j stays."""
    tools = tmp_path / "tools"
    tools.mkdir()
    fake = tools / "ninja"
    fake.write_text(f'#!/bin/sh\n[ "$1" != --version ] || {{ {version or "exit 1"}; exit; }}\necho "$@"\n')
    fake.chmod(0o755)
    script = f"""cd {tmp_path}; {CALM} export PATH={tools}:$PATH
$C exec -- ninja; $C exec -- ninja -C . all; $C exec -- ninja -t clean"""
    done = in_an_account(tmp_path, script)
    assert done.stdout.splitlines() == ["-j 1", "-C . all -j 1", "-t clean"], done.stderr


def test_a_ninja_with_tokens_is_not(tmp_path: Path) -> None:
    """An explicit -j would turn its jobserver client off."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, version in (("ninja", "1.13.1"), ("make", "GNU Make 4.4.1")):
        (tools / name).write_text(
            f'#!/bin/sh\n[ "$1" != --version ] || {{ echo {version}; exit; }}\necho "$@"\n'
        )
        (tools / name).chmod(0o755)
    script = f"cd {tmp_path}; {CALM} export PATH={tools}:$PATH; $C exec -- ninja all"
    assert in_an_account(tmp_path, script).stdout.splitlines() == ["all"]
