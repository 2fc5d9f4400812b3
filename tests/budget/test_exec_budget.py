"""``contain exec --budget`` as a user meets it: in an account's root of its own, by a mount that ends with the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.blocked import needs_root
from tests.budget.scripted import CALM, in_an_account, status

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.slow]
"""Slow: on a busy machine these wait for their turn, as they should, and longer than a test may take."""


def test_one_after_the_other(tmp_path: Path) -> None:
    """Ten commands at one unit: never two at a time, all run, and nothing is left in the registry."""
    done = in_an_account(
        tmp_path,
        CALM
        + """
for i in $(seq 10); do
  $C exec --budget --session s$i -- sh -c 'echo in; sleep 0.05; echo out' >> order.txt &
done
wait; cat order.txt; $C status""".replace("order.txt", str(tmp_path / "order.txt")),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:-1] == ["in", "out"] * 10, done.stderr
    found = status(done.stdout)
    assert (found["permits"], found["waiting"]) == ([], [])


def test_a_permit_follows_the_tree(tmp_path: Path) -> None:
    """SIGKILL of the wrapper: the next command starts when the tree of the first is gone, and not before."""
    done = in_an_account(
        tmp_path,
        CALM
        + """
$C exec --budget --session a -- sh -c 'echo first; exec sleep 1000' > first.txt & A=$!
until [ -s first.txt ]; do sleep 0.05; done
$C exec --budget --session b -- sh -c 'echo second; pgrep -c -f "[s]leep 1000"' > second.txt & B=$!
until $C status | grep -q '"session":"b"'; do sleep 0.05; done
kill -9 $A; wait $B; cat second.txt; $C status""".replace("first.txt", str(tmp_path / "first")).replace(
            "second.txt", str(tmp_path / "second")
        ),
    )
    assert done.stdout.splitlines()[0] == "second", done.stderr
    assert status(done.stdout)["permits"] == []


def test_a_signal_in_the_queue(tmp_path: Path) -> None:
    """The ticket is withdrawn, the command does not run, and the status is the signal's."""
    done = in_an_account(
        tmp_path,
        CALM
        + """
$C exec --budget --session a -- sleep 1000 & A=$!
until $C status | grep -qE '"state":"(bound|running)"'; do sleep 0.05; done
$C exec --budget --session b -- touch ran & B=$!
until $C status | grep -q '"waiting":\\[{'; do sleep 0.05; done
kill -TERM $B; wait $B; echo status=$?; $C status; kill $A; wait $A""".replace("ran", str(tmp_path / "ran")),
    )
    assert "status=143" in done.stdout, done.stderr
    found = status(done.stdout)
    assert ([one["session"] for one in found["permits"]], found["waiting"]) == (["a"], [])
    assert not (tmp_path / "ran").exists()


def test_a_hold_and_its_lifting(tmp_path: Path) -> None:
    """While a hold stands nothing is granted, with the reason; afterwards it is."""
    done = in_an_account(
        tmp_path,
        CALM
        + """
I=$($C hold --for 10m --reason 'measuring here')
$C exec --budget --max-wait 0.5 -- true; echo held=$?
$C hold --lift $I; $C exec --budget -- true; echo lifted=$?""",
    )
    assert done.stdout.splitlines() == ["held=125", "lifted=0"], done.stderr
    assert "measuring here" in done.stderr


def test_children_are_told_their_share(tmp_path: Path) -> None:
    """One unit is one worker, for every tool that asks its environment."""
    done = in_an_account(
        tmp_path, CALM + "GOMAXPROCS=64 $C exec --budget -- sh -c 'echo $GOMAXPROCS $CARGO_BUILD_JOBS'"
    )
    assert done.stdout.split() == ["1", "1"], done.stderr


def test_whose_time_is_over_runs_where_the_policy_says_so(tmp_path: Path) -> None:
    """Counted, and marked: more than the limit is in use then, and everybody can see it. An own --max-wait refuses."""
    told = "'after_wait = \"run\"' 'max_wait_s = 0.3' 'nice = 3' 'base"
    done = in_an_account(
        tmp_path,
        CALM.replace("'base", told, 1)
        + """
$C exec --session a -- sleep 1000 & A=$!
until $C status | grep -q '"session":"a"'; do sleep 0.05; done
$C exec --session c --max-wait 0.1 -- echo never; echo refused=$?
$C exec --session b -- sh -c 'nice; $C status'
kill $A; wait $A; $C status""",
    )
    lines = done.stdout.splitlines()
    assert lines[:2] == ["refused=125", "3"], done.stderr
    both = {one["session"]: one["how"] for one in status(lines[2])["permits"]}
    assert both == {"a": "limit", "b": "open"}
    assert status(done.stdout)["permits"] == []


@pytest.mark.parametrize("option", ["--budget", "--no-budget", "--env X=1"])
def test_what_python_gives_itself_is_not_the_jobs(tmp_path: Path, option: str) -> None:
    """In an empty environment Python sets LC_CTYPE for itself; a command has its caller's variables, and ours."""
    done = in_an_account(tmp_path, CALM + f"env -i PATH=$PATH $C exec {option} -- env")
    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert "PATH" in names, done.stderr
    assert "LC_CTYPE" not in names
