"""SIGKILL of wrapper, supervisor and anchor, alone and together: the group dies, and the receipt says what is true.

Each is tried once, and twice more with the slow tests; ``CONTAIN_DEATHS`` is another number for both.
"""

from __future__ import annotations

import os
import random
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.darwin.jobs import inspected, kill_all, members, parent, session, until_gone
from tests.session import wait_file, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.world import World
    from tests.session import Session

MORE = [pytest.param(again, marks=pytest.mark.slow) for again in (1, 2)]
TIMES = [*range(int(os.environ["CONTAIN_DEATHS"]))] if "CONTAIN_DEATHS" in os.environ else [0, *MORE]

TREE = (
    "trap '' TERM HUP INT; sleep 600 & (trap '' HUP; while :; do sleep 0.01; done) &"
    ' echo up > "$1"; while :; do sleep 0.01; done'
)
"""One that sleeps, and two that fork without an end: the hard case of a kill by group."""


CAUSES = {
    ("supervisor",): {"keeper-lost"},
    ("anchor",): {"init-killed"},
    ("supervisor", "anchor"): {"keeper-lost"},
    ("anchor", "supervisor"): {"keeper-lost", "init-killed"},  # it may have proven the end before its own
}


class Running:
    """A job with a busy tree, and the three processes above it."""

    def __init__(self, job: Session, mark: Path) -> None:
        """Waits until the tree runs."""
        self.job = job
        self.anchor = job.start("sh", "-c", TREE, "sh", str(mark))["anchor"]["pid"]
        self.named = {"wrapper": job.process.pid, "supervisor": parent(self.anchor), "anchor": self.anchor}
        assert wait_file(mark) == "up\n"

    def kill(self, *names: str) -> None:
        """In this order, at once."""
        time.sleep(random.uniform(0.0, 0.02))  # noqa: S311 - a moment, and no secret
        kill_all(*(self.named[name] for name in names))


@pytest.mark.parametrize("again", TIMES)
@pytest.mark.parametrize("names", CAUSES)
def test_the_wrapper_outlives_the_others(
    xnu: World, receipts: Path, tmp_path: Path, names: tuple[str, ...], again: int
) -> None:
    """It proves the end, and says it: released and empty, by a new supervisor where the old one is gone."""
    with session(xnu, receipts) as job:
        tree = Running(job, tmp_path / f"up{again}")
        tree.kill(*names)
        released = job.finish()
    assert (released["event"], released["empty"]) == ("released", True), released
    assert released["outcome"]["cause"] in CAUSES[names]
    assert members(tree.anchor) == []


@pytest.mark.parametrize("again", TIMES)
@pytest.mark.parametrize(
    "names", [("wrapper",), ("wrapper", "anchor"), ("wrapper", "supervisor"), ("supervisor", "wrapper")]
)
def test_nobody_has_to_come_for_the_group_to_die(
    xnu: World, receipts: Path, tmp_path: Path, names: tuple[str, ...], again: int
) -> None:
    """The wrapper is gone: who is left ends the group, and the next look finds it gone."""
    with session(xnu, receipts) as job:
        tree = Running(job, tmp_path / f"up{again}")
        tree.kill(*names)
        until_gone(tree.anchor)
    found = inspected(xnu, receipts)
    assert (found["state"], found["observation"]["state"]) == ("released", "gone"), found
    assert (found["outcome"]["cause"], found["empty"]) == ("wrapper-lost", True)


@pytest.mark.parametrize("again", TIMES)
def test_all_three_at_once_leave_a_tree_that_inspect_ends(
    xnu: World, receipts: Path, tmp_path: Path, again: int
) -> None:
    """Nobody is left who could kill it; the receipt is, and its births are signalled exactly."""
    with session(xnu, receipts) as job:
        tree = Running(job, tmp_path / f"up{again}")
        tree.kill("wrapper", "supervisor", "anchor")
        job.process.wait()
    found = inspected(xnu, receipts)
    if members(tree.anchor):
        assert found["state"] != "released", found
    finished = inspected(xnu, receipts, job.id, "--finish")
    assert (finished["state"], finished["empty"]) == ("released", True), finished
    assert members(tree.anchor) == []


def test_a_stopped_supervisor_holds_the_job_and_no_group(xnu: World, receipts: Path, tmp_path: Path) -> None:
    """The wrapper's own kill reaches the group; what the supervisor does not say stays unproven until inspect."""
    with session(xnu, receipts) as job:
        tree = Running(job, tmp_path / "up")
        os.kill(tree.named["supervisor"], signal.SIGSTOP)
        job.hang_up()
        wait_until(lambda: not members(tree.anchor), what="the group is gone")
        held = job.finish()
        assert held["event"] == "held", held
        kill_all(tree.named["supervisor"])
    assert inspected(xnu, receipts)["state"] == "released"
