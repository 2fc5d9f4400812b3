"""SIGKILL of those above a job of launchd's: its coalition is emptied, and launchd knows nothing of it afterwards."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.darwin import launchd
from tests.darwin.jobs import inspected, kill_all, members, parent, session
from tests.darwin.living import runs, until
from tests.session import kill, wait_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.world import World
    from tests.session import Session


class Running:
    """A job that has a daemon outside of its session, and the three processes above it."""

    def __init__(self, job: Session, folder: Path) -> None:
        """Waits until the daemon runs."""
        self.job = job
        text = f"trap '' TERM HUP; {launchd.daemon(folder)}; while :; do sleep 0.05; done"
        anchor = job.start("sh", "-c", text, requireTier="launchd")["anchor"]["pid"]
        self.named = {"wrapper": job.process.pid, "supervisor": parent(anchor), "anchor": anchor}
        self.daemon = int(wait_file(folder / "daemon"))

    def kill(self, names: str) -> None:
        """In this order, at once."""
        kill_all(*(self.named[name] for name in names.split()))

    def over(self) -> bool:
        """Neither daemon nor session."""
        return not runs(self.daemon) and not members(self.named["anchor"])


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "names", ["supervisor", *(pytest.param(names, marks=SLOW) for names in ("anchor", "supervisor anchor"))]
)
def test_the_wrapper_outlives_the_others(lineage: World, receipts: Path, tmp_path: Path, names: str) -> None:
    """It proves the end by the coalition, and removes the job."""
    with session(lineage, receipts) as job:
        tree = Running(job, tmp_path)
        tree.kill(names)
        released = job.finish()
    assert (released["event"], released["empty"], released["detached"]) == ("released", True, "excluded")
    assert tree.over()
    launchd.until_removed(lineage, job.process.pid)


@pytest.mark.parametrize("names", ["wrapper", pytest.param("wrapper anchor", marks=SLOW)])
def test_the_supervisor_ends_all_and_removes_itself(
    lineage: World, receipts: Path, tmp_path: Path, names: str
) -> None:
    """Nobody has to come."""
    with session(lineage, receipts) as job:
        tree = Running(job, tmp_path)
        tree.kill(names)
        job.process.wait()
        until(tree.over, "the tree is gone")
        launchd.until_removed(lineage, job.process.pid)
    until(lambda: inspected(lineage, receipts)["state"] == "released", "it is found over")


@pytest.mark.parametrize(
    "names", ["wrapper supervisor anchor", pytest.param("wrapper supervisor", marks=SLOW)]
)
def test_what_nobody_is_left_to_end_is_finished_by_its_coalition(
    lineage: World, receipts: Path, tmp_path: Path, names: str
) -> None:
    """Launchd clears no more than a group. The receipt has the number that the daemon cannot shed."""
    with session(lineage, receipts) as job:
        tree = Running(job, tmp_path)
        tree.kill(names)
        job.process.wait()
    assert runs(tree.daemon)
    found = inspected(lineage, receipts, job.id)
    assert (found["observation"]["state"], found["state"] != "released") == ("live", True), found
    assert tree.daemon in [one["pid"] for one in found["held"]["blockers"]]
    assert launchd.loaded(lineage) == [f"contain.{job.id}"]
    finished = inspected(lineage, receipts, job.id, "--finish")
    assert (finished["state"], finished["empty"]) == ("released", True), finished
    assert tree.over()
    launchd.until_removed(lineage, job.process.pid)


def test_a_wrapper_that_is_killed_before_it_has_met_leaves_nothing(lineage: World, receipts: Path) -> None:
    """Who was started for it finds nobody, and removes itself and the folder."""
    with session(lineage, receipts) as job:
        job.request("true", requireTier="launchd")
        until(lambda: launchd.loaded(lineage), "it is loaded")
        kill(job.process.pid)
        job.process.wait()
        launchd.until_removed(lineage, job.process.pid)


@SLOW
def test_a_stopped_supervisor_is_ended_with_the_job(lineage: World, receipts: Path, tmp_path: Path) -> None:
    """It is in the coalition: without its end the job is not called over, and --finish ends it."""
    with session(lineage, receipts) as job:
        tree = Running(job, tmp_path)
        kill(tree.named["supervisor"], signal.SIGSTOP)
        kill(job.process.pid)
        job.process.wait()
    assert inspected(lineage, receipts)["observation"]["state"] == "live"
    assert launchd.loaded(lineage) == [f"contain.{job.id}"]  # a sweep leaves alone who lives
    finished = inspected(lineage, receipts, job.id, "--finish")
    assert (finished["state"], finished["empty"]) == ("released", True), finished
    assert tree.over()
    assert not runs(tree.named["supervisor"])
    launchd.until_removed(lineage, job.process.pid)
