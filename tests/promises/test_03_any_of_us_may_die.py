"""Any of us may die. SIGKILL of the wrapper at random times leaves no process, no lock and no torn receipt.

The jobs are those that have outlived other wrappers (``tests/jobs.py``). What is left is looked for by descent, by
recorded births and by PID namespace (``tests/survivors.py``). The launch steps, every single system call and the
deaths of the others have files of their own beside this one.
"""

from __future__ import annotations

import random
import select
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.ground import USERS, ground_of
from tests.jobs import UNRULY, Unruly, shell
from tests.on_disk import receipts_on_disk
from tests.programs import shared_programs
from tests.session import inspect, kill, wait_file, wait_until
from tests.survivors import Watch, adopting, end_all, reap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ground import Ground
    from tests.session import Session

RUNS = 500
SLOW_RUNS = 5000
FOREST_SHARE = 1 / 50
NOBODY_SHARE = 1 / 4
CONTROL_S = 4

RANDOM = random.SystemRandom()


CASES = [pytest.param(user, job, id=f"{user}-{job.name}") for user in USERS for job in UNRULY]
every_case = pytest.mark.parametrize(("ground", "job"), CASES, indirect=["ground"])
as_root = pytest.mark.parametrize("ground", ["root"], indirect=True)
as_both = pytest.mark.parametrize("ground", USERS, indirect=True)


@pytest.fixture(scope="module")
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A place for one user's jobs; whatever loses its parent there comes to this process."""
    with ground_of(request.param, shared_programs(tmp_path_factory)) as made, adopting():
        yield made


def runs_of(job: Unruly, user: str, in_all: int) -> int:
    """How often a job is tried, of ``in_all`` tries: a forest costs ten times as much as another."""
    share = FOREST_SHARE if job.name == "forest" else (1 - FOREST_SHARE) / (len(UNRULY) - 1)
    of_user = NOBODY_SHARE if user == "nobody" else 1 - NOBODY_SHARE
    return round(in_all * share * of_user)


def pause(most_s: float) -> None:
    """A random time, up to ``most_s``: the moment of a death is what these tests vary."""
    select.select([], [], [], RANDOM.uniform(0, most_s))


def any_moment(session: Session, file: Path, run: int) -> None:
    """While it starts, while it launches, right after its launch, or in full swing."""
    if run % 3 == 0:
        pause(0.15)
    elif run % 3 == 1:
        session.until("running")
        pause(0.03)
    else:
        wait_file(file)
        pause(0.05)


def die_once(ground: Ground, job: Unruly, run: int) -> tuple[Path, int]:
    """One wrapper, killed at some moment. Returns the job's file and how long it was when all were gone."""
    file = ground.file()
    with ground.session() as session:
        watch = Watch(session.process.pid)
        session.request(*ground.command(job, file)).go()
        any_moment(session, file, run)
        watch.look()
        kill(session.process.pid)
        session.process.wait()
        watch.assert_gone(job.gone_s)
        while session.read() is not None:
            pass
        size = file.stat().st_size if file.exists() else 0
        latest = receipts_on_disk(ground.receipts).get(session.id)
        if session.replies:
            assert latest is not None, f"no receipt, but it said {session.events()}"
        if size or "running" in session.events():
            assert latest is not None
            assert latest.may_have_run, f"{size} bytes, but its receipt is {latest.suffix}"
    reap()
    return file, size


def all_released(ground: Ground) -> None:
    """``inspect`` releases every receipt, says that the wrapper was lost, and whether the command can have run."""
    before = receipts_on_disk(ground.receipts)
    code, found = inspect(ground.receipts, program=ground.contain)
    assert {reply["id"] for reply in found} == set(before)
    for reply in found:
        assert (reply["state"], reply["empty"]) == ("released", True), reply
        assert reply["outcome"]["cause"] == "wrapper-lost", reply
        assert reply.get("ran") is (None if before[reply["id"]].may_have_run else False), reply
    assert code == 0
    assert {latest.suffix for latest in receipts_on_disk(ground.receipts).values()} <= {"json"}
    for path in ground.receipts.iterdir():
        path.unlink()


def die_often(ground: Ground, job: Unruly, runs: int) -> None:
    """Many deaths, then one look at all that they left."""
    left = [die_once(ground, job, run) for run in range(runs)]
    all_released(ground)
    assert [(file, size) for file, size in left if size and file.stat().st_size != size] == []


@every_case
def test_wrapper_killed_at_a_random_time(ground: Ground, job: Unruly) -> None:
    """Nothing lives 2 s later (5 s for 1,000 processes), receipts are whole, and inspect releases them."""
    die_often(ground, job, runs_of(job, ground.user, RUNS))


@pytest.mark.slow
@pytest.mark.timeout(1800)
@every_case
def test_wrapper_killed_at_very_many_random_times(ground: Ground, job: Unruly) -> None:
    """The same, ten times as often."""
    die_often(ground, job, runs_of(job, ground.user, SLOW_RUNS))


@as_root
@pytest.mark.parametrize("job", UNRULY, ids=lambda job: str(job.name))
def test_the_same_jobs_outlive_a_plain_wrapper(ground: Ground, job: Unruly) -> None:
    """The control: without containment every one of these jobs survives, and the same look says so."""
    file = ground.file()
    with subprocess.Popen(
        ["sh", "-c", '"$@" & wait', "plain", *shell(job.text, ground.unruly, file, CONTROL_S)]
    ) as plain:
        watch = Watch(plain.pid)
        wait_file(file)
        watch.look()
        kill(plain.pid)
        plain.wait()
    if job.name != "forest":
        size = file.stat().st_size
        wait_until(lambda: file.stat().st_size > size, what="the job goes on")
    with pytest.raises(AssertionError, match="alive"):
        watch.assert_gone(0.2)
    end_all()


@as_both
def test_a_true_end_is_not_overwritten(ground: Ground) -> None:
    """A wrapper that dies around the command's end: the written outcome stays, an unwritten one is not invented."""
    causes = set()
    for _ in range(runs_of(UNRULY[0], ground.user, RUNS)):
        with ground.session() as session:
            watch = Watch(session.process.pid)
            session.request("true").go().until("running")
            pause(0.01)
            kill(session.process.pid)
            session.process.wait()
            watch.assert_gone()
            while session.read() is not None:
                pass
            latest = receipts_on_disk(ground.receipts)[session.id]
            _, (reply,) = inspect(ground.receipts, session.id, program=ground.contain)
        written = latest.content.get("outcome")
        assert ("released" in session.events()) <= (latest.suffix == "json")
        assert reply["state"] == "released"
        assert reply["outcome"] == written if written else reply["outcome"]["cause"] == "wrapper-lost"
        causes.add(reply["outcome"]["cause"])
        reap()
    assert causes <= {"exited", "wrapper-lost"}
