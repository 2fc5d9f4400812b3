"""The kill loop and the proof of emptiness, with what can be in the way of either (docs/DARWIN.md)."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain.backend import Drained
from contain.darwin import census, ending, lineage, mark
from contain.darwin.backend import DarwinBackend
from contain.job import Job, new_id
from receipts import Anchor
from tests.darwin.jobs import anchor_program, members, parent, until_gone
from tests.darwin.living import WAIT_S, runs, until
from tests.session import kill, wait_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contain.backend import Containment
    from tests.darwin.world import World


class Jobs:
    """Starts jobs in a world, and ends what is left of them."""

    def __init__(self, library: str) -> None:
        """By the backend itself, without receipts."""
        self.backend = DarwinBackend(library=library, program=anchor_program())
        self.open: list[Containment] = []

    def start(self, text: str, *, grace_ms: int = 60_000, kill_ms: int = 60_000) -> Containment:
        """A shell's job, behind its open gate."""
        job = Job(
            id=new_id(),
            permit_id=new_id(),
            command="sh",
            args=("-c", text),
            grace_ms=grace_ms,
            kill_ms=kill_ms,
        )
        found = self.backend.launch(job).ready()
        self.open.append(found)
        assert found.open_gate()
        return found

    def drained(self, job: Containment, wait_s: float = WAIT_S) -> bool:
        """Whether it is proven over within that time."""
        until_s = time.monotonic() + wait_s
        while (left_s := until_s - time.monotonic()) > 0:
            poll = select.poll()
            for fd in job.fds():
                poll.register(fd, select.POLLIN)
            poll.poll(left_s * 1000)
            if any(isinstance(event, Drained) for event in job.events()):
                return True
        return False


@pytest.fixture
def jobs(xnu: World) -> Iterator[Jobs]:
    """With nothing wrong at first."""
    found = Jobs(xnu.library)
    yield found
    xnu.control("clear")
    for job in found.open:
        job.close()
    found.backend.stop()


def own_group(told: Path) -> str:
    """A shell's text: a child leads a group of its own in the job's session, as under a shell with job control."""
    text = "import os, sys, time; os.setpgid(0, 0); open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"
    return f'{sys.executable} -S -c "{text}" {told} & wait'


def anchor_of(job: Containment) -> Anchor:
    """Its proof."""
    assert isinstance(job.proof, Anchor)
    return job.proof


def tree_of(jobs: Jobs, job: Containment) -> census.Tree:
    """Its tree, as somebody who is not its supervisor sees it."""
    return jobs.backend._tree(anchor_of(job))


def test_a_tree_that_forks_without_end_is_killed(jobs: Jobs, tmp_path: Path) -> None:
    """Children in the middle of a fork are missed by one killpg, not by the loop."""
    fork = f"(while :; do sleep 0.001 & done) & echo up > {tmp_path}/up; wait"
    job = jobs.start(fork)
    wait_file(tmp_path / "up")
    job.kill()
    assert jobs.drained(job)
    assert members(job.proof.pid) == []


def test_another_group_of_the_session_is_killed_too(jobs: Jobs, tmp_path: Path) -> None:
    """As shells with job control make them: exact signals reach them."""
    job = jobs.start(own_group(tmp_path / "pid"))
    other = int(wait_file(tmp_path / "pid"))
    assert os.getpgid(other) == other != job.proof.pid
    job.kill()
    assert jobs.drained(job)
    assert members(job.proof.pid) == []
    assert members(other) == []


# One census takes two lists. Who is in none for 20 ms is found by nobody, so more would be a matter of speed.
@pytest.mark.parametrize("times", [1, 2])
def test_who_is_hidden_from_some_lists_is_found_by_the_next(
    xnu: World, jobs: Jobs, tmp_path: Path, times: int
) -> None:
    """A child that is being forked: not in the first lists, and out of killpg's reach. One clean look is no proof."""
    job = jobs.start(f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/pid; wait")
    child = int(wait_file(tmp_path / "pid"))
    supervisor = parent(job.proof.pid)
    os.kill(supervisor, signal.SIGSTOP)  # so that the lists are this test's
    xnu.control(f"hide pid={child} times={times}")
    found = ending.kill(tree_of(jobs, job), pinned=False)
    assert (found.empty, runs(child)) == (True, False)
    os.kill(supervisor, signal.SIGCONT)
    assert jobs.drained(job)


def test_a_group_that_is_led_by_another_is_not_signalled(xnu: World, jobs: Jobs, tmp_path: Path) -> None:
    """The anchor's number is another's now: who is of the job is ended exactly, and the group's leader lives."""
    job = jobs.start(f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    child, leader = int(wait_file(tmp_path / "pid")), job.proof.pid
    supervisor = parent(leader)
    os.kill(supervisor, signal.SIGSTOP)  # it holds the anchor as its child, and may signal the group
    tree = tree_of(jobs, job)
    xnu.control(f"reuse pid={leader}")
    ending.strike(tree)
    until(lambda: not runs(child), "who is of the job has ended")
    assert runs(leader)
    os.kill(supervisor, signal.SIGCONT)


def test_another_users_member_is_held_and_named(xnu: World, jobs: Jobs, tmp_path: Path) -> None:
    """Killpg says success or EPERM: the census decides, and nobody calls it over."""
    job = jobs.start(f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    child = int(wait_file(tmp_path / "pid"))
    xnu.control(f"foreign pid={child} uid=12345")
    proof = anchor_of(job)
    found = ending.kill(tree_of(jobs, job), pinned=False, wait_s=0.3)
    assert (found.state, [one.pid for one in found.blockers]) == (ending.LIVE, [child])
    assert found.blockers[0].why == ending.FOREIGN
    assert jobs.backend.observe(proof).state == "live"
    xnu.control("clear")
    assert jobs.backend.finish(proof, WAIT_S, kill=True).gone


def test_a_stuck_exit_is_held_as_exiting(xnu: World, jobs: Jobs, tmp_path: Path) -> None:
    """``UE``: SIGKILL has no effect any more, and it is never released."""
    job = jobs.start(f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    child = int(wait_file(tmp_path / "pid"))
    xnu.control(f"hold-exit pid={child} ms=-1")
    job.kill()
    assert not jobs.drained(job, 1.0)
    found = ending.kill(tree_of(jobs, job), pinned=False, wait_s=0.2)
    assert (found.state, [one.why for one in found.blockers]) == (ending.LIVE, [ending.STUCK])
    xnu.control(f"release-exit pid={child}")
    assert jobs.drained(job)


@pytest.mark.parametrize("fault", [f"fail call=listpids errno={errno.EPERM}", "deny all", "deny flavour=17"])
def test_a_census_that_fails_is_no_empty_one(xnu: World, jobs: Jobs, fault: str) -> None:
    """Neither gone nor live can be said."""
    job = jobs.start("sleep 600")
    proof = anchor_of(job)
    job.kill()
    assert jobs.drained(job)
    assert jobs.backend.observe(proof).gone
    xnu.control(fault)
    assert jobs.backend.observe(proof).state == "unknown"


def test_no_number_of_another_boot_is_touched(xnu: World, jobs: Jobs) -> None:
    """The tree of then is gone; who has the number now is not asked."""
    job = jobs.start("sleep 600")
    proof = anchor_of(job)
    xnu.control("reboot")
    assert jobs.backend.finish(proof, 0.0, kill=True).gone
    assert members(proof.pid)
    assert jobs.backend.blockers(proof) == ()


def test_a_group_without_its_anchor_is_ours_by_its_ids(jobs: Jobs, tmp_path: Path) -> None:
    """The anchor is gone, and nobody pins its number: whoever is near enough in the count of forks is of the job."""
    job = jobs.start(f"trap '' HUP TERM; echo up > {tmp_path}/up; while :; do sleep 0.05; done")
    wait_file(tmp_path / "up")
    proof = anchor_of(job)
    far = proof.replace(unique_id=max(1, proof.unique_id - census.ROUND_FORKS - 10_000))
    near = census.Tree(jobs.backend._asked(), proof).census().members
    assert near
    assert all(census.Tree(jobs.backend._asked(), proof).is_ours(one) for one in near)
    if far.unique_id > 1:
        assert not any(census.Tree(jobs.backend._asked(), far).is_ours(one) for one in near)
    job.kill()
    assert jobs.drained(job)


def test_a_daemon_is_listed_and_ended(lineage: World, jobs: Jobs, tmp_path: Path) -> None:
    """Setsid and a double fork leave session and group; lineage and the mark still tell whose it is."""
    assert lineage.lineage
    text = f"setsid sh -c 'sleep 600 & echo $! > {tmp_path}/pid'; exec sleep 600"
    job = jobs.start(text)
    daemon = int(wait_file(tmp_path / "pid"))
    until(lambda: os.getsid(daemon) != job.proof.pid, "a session of its own")
    job.kill()
    assert jobs.drained(job)
    assert job.detached == "listed"
    until(lambda: daemon not in members(os.getsid(daemon)) if _there(daemon) else True, "the daemon is gone")


def _there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_was_not_observed_is_not_called_none(jobs: Jobs) -> None:
    """The honest word for an ordinary job."""
    job = jobs.start("exit 0")
    assert jobs.drained(job)
    assert job.detached == lineage.NOT_OBSERVED


def test_the_anchor_killed_by_its_own_job_ends_the_job(jobs: Jobs, tmp_path: Path) -> None:
    """``kill -9 0`` reaches the anchor too; the supervisor holds it as a zombie and clears the group."""
    job = jobs.start(f"setsid -w true; (trap '' HUP; sleep 600) & echo up > {tmp_path}/up; kill -9 0")
    wait_file(tmp_path / "up")
    assert jobs.drained(job)
    until_gone(job.proof.pid)


def test_before_14_2_the_weaker_way_is_named_and_works(xnu: World, tmp_path: Path) -> None:
    """Without the audit token."""
    jobs = Jobs(xnu.old_library)
    job = jobs.start(own_group(tmp_path / "pid"))
    other = int(wait_file(tmp_path / "pid"))
    assert anchor_of(job).signal == "checked-pid"
    job.kill()
    assert jobs.drained(job)
    assert members(job.proof.pid) == members(other) == []
    job.close()


def test_a_watch_can_be_read_when_its_process_ends(jobs: Jobs) -> None:
    """By a kqueue of its own."""
    job = jobs.start("sleep 600")
    watched = jobs.backend.watch(job.proof)
    assert watched.observation.state == "live"
    poll = select.poll()
    poll.register(watched.fd, select.POLLIN)
    assert not poll.poll(0)
    kill(job.proof.pid)
    assert poll.poll(WAIT_S * 1000)
    watched.close()
    assert jobs.drained(job)
    gone = jobs.backend.watch(job.proof)
    assert (gone.observation.state, gone.fd) == ("gone", -1)


def test_the_mark_of_a_killed_supervisor_is_swept(jobs: Jobs) -> None:
    """Nobody has locked it any more; a living one's stays."""
    living, other = jobs.start("sleep 600"), jobs.start("sleep 600")
    mine, owner = parent(living.proof.pid), parent(other.proof.pid)
    kill(owner)
    assert jobs.drained(other)
    jobs.backend.sweep_cgroups()
    left = [path.name.split("-")[2] for path in Path(mark.FOLDER).glob("contain-mark-*")]
    assert str(mine) in left
    assert str(owner) not in left
    living.kill()
    assert jobs.drained(living)
