"""A permit in its wrapper's hands: it becomes smaller and larger while the job runs, and is never forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.blocked import needs_root
from tests.budget.scripted import CALM, in_an_account, status

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = needs_root
TWO = (
    CALM.replace("= 1", "= 2")
    .replace("min_units = 2", "min_units = 1")
    .replace("'base", "'order = \"fair\"' 'base")
)

STEPS = """
all: $(foreach i,1 2 3 4 5 6 7 8,step$(i))
step%: ; @echo in >> LOG; sleep 0.4; echo out >> LOG
"""
"""Eight steps, as many at a time as make has tokens."""


def units(session: str, count: int) -> str:
    """A loop until the permit of a session has so many units."""
    return (
        f"""until $C status | grep -q '"session":"{session}"[^}}]*"units":{count},'; do sleep 0.05; done\n"""
    )


def test_it_gives_way_and_grows_again(tmp_path: Path) -> None:
    """Make has both units; who comes gets one of them when make's own child has let go; then make has both again."""
    makefile = tmp_path / "Makefile"
    makefile.write_text(STEPS.replace("LOG", str(tmp_path / "log")) + "\n")
    script = f"""{TWO}
$C exec --session a -- make -f {makefile} & A=$!
{units("a", 2)}
mkfifo {tmp_path}/go
$C exec --session b -- sh -c 'cat {tmp_path}/go' & B=$!
{units("b", 1)}
$C status
echo > {tmp_path}/go; wait $B
{units("a", 2)}
wait $A; echo rc=$?; $C status"""
    done = in_an_account(tmp_path, script)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    both = status(lines[0])["permits"]
    assert {one["session"]: one["units"] for one in both} == {"a": 1, "b": 1}, done.stderr
    assert "rc=0" in done.stdout
    assert status(lines[-1])["permits"] == []
    assert (tmp_path / "log").read_text().count("out") == 8


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
