"""Any of us may die. Keeper, init, command and host, at random times, stopped ones beside them, all at once.

While the wrapper lives it says who it was, and ends; when it is dead, ``inspect`` says what is true.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.ground import USERS, ground_of
from tests.jobs import UNRULY, Unruly, named
from tests.on_disk import receipts_on_disk
from tests.programs import shared_programs
from tests.session import ROOT, descendants, in_namespace, inspect, keeper_of, kill, wait_file, wait_until
from tests.survivors import GONE_S, SCALE, Watch, adopting, keeper_and_init, stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ground import Ground
    from tests.session import Reply

RUNS = 4
"""Deaths of each kind for each job and user."""
CAUSES = {"keeper": "keeper-lost", "init": "init-killed"}
RANDOM = random.SystemRandom()
CASES = [
    pytest.param(user, job, id=f"{user}-{job.name}")
    for user in USERS
    for job in UNRULY
    if job.name != "forest"
]


@pytest.fixture(scope="module")
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A place for one user's jobs."""
    with ground_of(getattr(request, "param", "root"), shared_programs(tmp_path_factory)) as made:
        yield made


@pytest.fixture(autouse=True)
def orphans() -> Iterator[None]:
    """Whatever loses its parent comes to this process, and must be gone at the end."""
    with adopting():
        yield


def die_under_a_living_wrapper(ground: Ground, job: Unruly, whom: str) -> Reply:
    """Kills keeper or init at a random time of a running job; returns the wrapper's last word."""
    file = ground.file()
    with ground.session() as session:
        session.request(*ground.command(job, file)).until("prepared")
        keeper, init = keeper_and_init(session.process.pid)
        session.go().until("running")
        select.select([], [], [], RANDOM.uniform(0, 0.1))
        watch = Watch(session.process.pid).look()
        kill({"keeper": keeper, "init": init}[whom])
        last = session.finish()
        size = file.stat().st_size if file.exists() else 0
        watch.assert_gone()
    assert (file.stat().st_size if file.exists() else 0) == size, "it wrote after the last reply"
    return last


@pytest.mark.parametrize("whom", CAUSES)
@pytest.mark.parametrize(("ground", "job"), CASES, indirect=["ground"])
def test_keeper_or_init_killed_at_a_random_time(ground: Ground, job: Unruly, whom: str) -> None:
    """The jobs die with it; the wrapper says released, and whose death it was, and ends."""
    for _ in range(RUNS):
        last = die_under_a_living_wrapper(ground, job, whom)
        assert (last["event"], last["empty"], last["outcome"]["cause"]) == ("released", True, CAUSES[whom]), (
            last
        )


def test_a_keeper_killed_before_its_first_request(ground: Ground) -> None:
    """A named refusal: nothing ran and nothing is left."""
    with ground.session() as session:
        wait_until(lambda: descendants(session.process.pid), what="the keeper is started")
        watch = Watch(session.process.pid).look()
        kill(next(iter(descendants(session.process.pid))))
        last = session.request("true").finish()
        watch.assert_gone()
    assert (last["event"], last["reason"], last["step"]) == ("refused", "setup-failed", "clone")
    assert receipts_on_disk(ground.receipts).get(session.id) is None


def test_the_command_is_killed(ground: Ground) -> None:
    """SIGKILL of the command from outside is its signal, and what it left is ended."""
    with ground.session() as session:
        session.request("sh", "-c", "sleep 50 & echo; sleep 50; :", graceMs=500, killMs=50).until("prepared")
        _, init = keeper_and_init(session.process.pid)
        session.go().until("running")
        wait_until(lambda: len(descendants(init)) == 3, what="the command has two children")
        watch = Watch(session.process.pid).look()
        kill(min(descendants(init), key=lambda pid: watch.births[pid]))
        last = session.finish()
        watch.assert_gone()
    assert last["event"] == "released"
    assert (last["outcome"]["cause"], last["outcome"]["signal"]) == ("signaled", signal.SIGKILL)
    assert last["leftovers"]["count"] == 2


@pytest.mark.parametrize("stopped", ["wrapper", "keeper", "init", "keeper and init", "nobody"])
@pytest.mark.parametrize("whom", ["wrapper", "keeper", "init"])
@pytest.mark.parametrize("ground", USERS, indirect=True)
def test_one_dies_while_another_is_stopped(ground: Ground, whom: str, stopped: str) -> None:
    """SIGSTOP of one and SIGKILL of another: the tree is gone all the same, and so is a stopped keeper."""
    file = ground.file()
    with ground.session() as session:
        session.request(*ground.command(named("deaf"), file))
        proof = session.until("prepared")["namespaceInit"]
        keeper, init = keeper_and_init(session.process.pid)
        session.go()
        wait_file(file)
        pids = {"wrapper": session.process.pid, "keeper": keeper, "init": init}
        watch = Watch(session.process.pid).look()
        for who, pid in pids.items():
            if who in stopped:
                stop(pid)
        kill(pids[whom])
        if whom == "wrapper":
            session.process.wait()
        else:
            wait_until(lambda: not in_namespace(proof["namespace"]), GONE_S * SCALE, "the tree is gone")
            for pid in pids.values():
                kill(pid, signal.SIGCONT)
            last = session.finish()
            assert (last["event"], last["empty"]) == ("released", True)
            assert last["outcome"]["cause"] == CAUSES[whom]
        watch.assert_gone()
    code, (found,) = inspect(ground.receipts, session.id, program=ground.contain)
    assert (code, found["state"], found["empty"]) == (0, "released", True)


@pytest.mark.parametrize(
    "order", ["keeper wrapper", "init wrapper", "wrapper keeper init", "init keeper wrapper"]
)
def test_several_die_at_once(ground: Ground, order: str) -> None:
    """In whatever order: nothing is left, and inspect releases."""
    for _ in range(RUNS):
        file = ground.file()
        with ground.session() as session:
            session.request(*ground.command(named("double-fork"), file)).until("prepared")
            keeper, init = keeper_and_init(session.process.pid)
            session.go()
            wait_file(file)
            watch = Watch(session.process.pid).look()
            for whom in order.split():
                kill({"wrapper": session.process.pid, "keeper": keeper, "init": init}[whom])
            session.process.wait()
            watch.assert_gone()
        code, (found,) = inspect(ground.receipts, session.id, program=ground.contain)
        assert (code, found["state"], found["empty"]) == (0, "released", True)


def test_a_stopped_wrapper_stops_nothing_else(ground: Ground) -> None:
    """The job goes on to its own end; the wrapper says so when it is continued."""
    done = ground.file()
    with ground.session() as session:
        session.start("sh", "-c", f"sleep 0.3; echo done > {done}; exit 7")
        stop(session.process.pid)
        assert wait_file(done) == "done\n"
        assert receipts_on_disk(ground.receipts)[session.id].suffix == "running"
        kill(session.process.pid, signal.SIGCONT)
        assert session.finish()["outcome"]["code"] == 7


@pytest.mark.parametrize("at_once", [False, True], ids=["later", "at-once"])
@pytest.mark.parametrize("whom", ["wrapper", "keeper", "init"])
def test_a_death_between_prepared_and_go(ground: Ground, whom: str, *, at_once: bool) -> None:
    """A go that comes later opens nothing; one that races the death never ran what the receipt says did not."""
    mark = ground.file()
    with ground.session() as session:
        inode = session.request("touch", str(mark)).until("prepared")["namespaceInit"]["namespace"]
        keeper, init = keeper_and_init(session.process.pid)
        watch = Watch(session.process.pid).look()
        kill({"wrapper": session.process.pid, "keeper": keeper, "init": init}[whom])
        if not at_once:
            wait_until(lambda: not in_namespace(inode), 1.0 * SCALE, "the init is gone")
        session.go()
        if whom == "wrapper":
            session.process.wait()
        else:
            last = session.finish()
            assert (last["event"], last["outcome"]["cause"]) == ("released", CAUSES[whom]), last
        watch.assert_gone()
    _, (found,) = inspect(ground.receipts, session.id, program=ground.contain)
    assert (found["state"], found["empty"]) == ("released", True)
    if at_once and whom != "wrapper":
        assert found["ran"] is not False or not mark.exists()
    else:
        assert found["ran"] is False
        assert not mark.exists()


def test_the_host_is_killed(ground: Ground) -> None:
    """SIGKILL of the host alone: its wrapper sees the end of input, ends the tree, and writes that down."""
    file = ground.file()
    environment = {**os.environ, "RECEIPTS": str(ground.receipts), "GRACE_MS": "200"}
    command = [sys.executable, str(host_program()), *ground.command(named("deaf"), file)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as host:
        wait_file(file)
        watch = Watch(host.pid).look()
        assert keeper_of(host.pid) in watch.births
        kill(host.pid)
        host.wait()
        watch.assert_gone(GONE_S + 1.5)
    (latest,) = [
        found
        for found in receipts_on_disk(ground.receipts).values()
        if found.content["outcome"].get("by") == "eof"
    ]
    assert (latest.content["state"], latest.content["outcome"]["cause"]) == ("released", "canceled")


def host_program() -> Path:
    """A small host of the protocol."""
    return ROOT / "tests" / "e2e" / "contained.py"
