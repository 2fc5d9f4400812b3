"""Any of us may die. At every numbered step of the launch, and one by one: wrapper, keeper, init; stopped ones too.

A contain-init that waits 400 ms at one step stands for a slow machine; the killing happens in that wait.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.on_disk import receipts_on_disk
from tests.programs import STEP_NAMES, other_program, shared_programs
from tests.session import ROOT, Session, alive, in_namespace, inspect, keeper_of, kill, wait_file, wait_until
from tests.survivors import Watch, adopting, keeper_and_init, stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.programs import Programs

STEPS = [name for name in STEP_NAMES if name != "NONE"]
IN_A_USER_NAMESPACE = ("SETGROUPS", "UID_MAP", "GID_MAP")
WITHOUT_SYS_ADMIN = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Programs that wait at a step."""
    return shared_programs(tmp_path_factory)


@pytest.fixture(autouse=True)
def orphans() -> Iterator[None]:
    """Whatever loses its parent comes to this process, and must be gone at the end."""
    with adopting():
        yield


def slow(programs: Programs, step: str, receipts: Path) -> Session:
    """A session whose program waits at ``step``."""
    drop = WITHOUT_SYS_ADMIN if step in IN_A_USER_NAMESPACE and os.getuid() == 0 else ()
    return Session(receipts, program=(*drop, *other_program(programs.waits_at(step))))


def in_the_wait(session: Session, step: str) -> Watch:
    """Waits until the keeper is there, and where the step comes after the gate, for that."""
    wait_until(lambda: keeper(session) is not None, what="a keeper")
    if step == "EXEC":
        session.until("running")
    return Watch(session.process.pid).look()


def keeper(session: Session) -> int | None:
    """The keeper, when it is there."""
    try:
        return keeper_of(session.process.pid)
    except AssertionError:
        return None


@pytest.mark.parametrize("late", [False, True], ids=["early", "late"])
@pytest.mark.parametrize("step", STEPS)
def test_the_wrapper_is_killed_at_a_step(
    receipts: Path, tmp_path: Path, programs: Programs, step: str, *, late: bool
) -> None:
    """Nothing is left 2 s later, nothing ran before the gate, the receipt is whole and inspect releases it."""
    mark = tmp_path / "executed"
    with slow(programs, step, receipts) as session:
        session.request("touch", str(mark)).go()
        watch = in_the_wait(session, step)
        if late:
            signal.sigtimedwait((), 0.2)  # half of the wait at the step
            watch.look()
        kill(session.process.pid)
        session.process.wait()
        watch.assert_gone()
        while session.read() is not None:
            pass
    latest = receipts_on_disk(receipts).get(session.id)
    assert not mark.exists() or (latest is not None and latest.may_have_run)
    if latest is not None:
        code, (found,) = inspect(receipts, session.id)
        assert (code, found["state"], found["empty"]) == (0, "released", True)


@pytest.mark.parametrize("step", STEPS)
def test_the_keeper_is_killed_at_a_step(
    receipts: Path, tmp_path: Path, programs: Programs, step: str
) -> None:
    """Between clone and arming as well: the wrapper says what happened, ends, and nothing is left."""
    mark = tmp_path / "executed"
    with slow(programs, step, receipts) as session:
        session.request("touch", str(mark)).go()
        watch = in_the_wait(session, step)
        kill(keeper_of(session.process.pid))
        last = session.finish()
        watch.assert_gone()
    if last["event"] == "refused":
        assert last["reason"] == "setup-failed"
        assert not mark.exists()
    else:
        assert (last["event"], last["empty"]) == ("released", True)
        assert last["outcome"]["cause"] in ("keeper-lost", "exited")


@pytest.mark.parametrize("whom", ["wrapper", "keeper", "init"])
@pytest.mark.parametrize("stopped", ["wrapper", "keeper", "init", None])
def test_one_dies_while_another_is_stopped(receipts: Path, whom: str, stopped: str | None) -> None:
    """SIGSTOP of one and SIGKILL of another: the tree is gone all the same, and so is a stopped keeper."""
    with Session(receipts) as session:
        proof = session.start("sh", "-c", "setsid sleep 60 & sleep 60")["namespaceInit"]
        keeper_pid, init = keeper_and_init(session.process.pid)
        pids = {"wrapper": session.process.pid, "keeper": keeper_pid, "init": init}
        watch = Watch(session.process.pid).look()
        if stopped is not None:
            stop(pids[stopped])
        kill(pids[whom])
        if whom == "wrapper":
            session.process.wait()
            watch.assert_gone()
        else:
            wait_until(lambda: not in_namespace(proof["namespace"]), 2, "the tree is gone")
            if stopped == "wrapper":
                kill(session.process.pid, signal.SIGCONT)
            elif stopped == "keeper" and whom == "init":
                kill(keeper_pid, signal.SIGCONT)
            last = session.finish()
            assert (last["event"], last["empty"]) == ("released", True)
            assert last["outcome"]["cause"] == {"keeper": "keeper-lost", "init": "init-killed"}[whom]
            watch.assert_gone()
    code, (found,) = inspect(receipts, session.id)
    assert (code, found["state"]) == (0, "released")


def test_a_stopped_wrapper_stops_nothing_else(receipts: Path, tmp_path: Path) -> None:
    """The job goes on to its end; the wrapper says so when it is continued."""
    with Session(receipts) as session:
        session.start("sh", "-c", f"sleep 0.2; echo done > {tmp_path / 'done'}")
        stop(session.process.pid)
        assert wait_file(tmp_path / "done") == "done\n"
        kill(session.process.pid, signal.SIGCONT)
        assert session.finish()["outcome"]["code"] == 0


HOST = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
from contain.job import Job
from contain.linux.backend import LinuxBackend
backend, made = LinuxBackend(), []
def launch():
    backend.start()
    containment = backend.launch(Job(id="0", permit_id="0", command="sleep", args=("60",))).ready()
    assert containment.open_gate()
    made.append(containment)
thread = threading.Thread(target=launch)
thread.start()
thread.join()
{then}
print(made[0].proof.pid, flush=True)
time.sleep(60)
"""


def host(then: str = "") -> subprocess.Popen[str]:
    """A host that starts its keeper and a job from a thread that then ends."""
    text = HOST.format(root=str(ROOT), then=then)
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)


def test_a_keeper_outlives_the_thread_that_started_it() -> None:
    """The thread is gone, the job lives; when the host goes, the job goes."""
    with host() as process:
        assert process.stdout is not None
        init = int(process.stdout.readline())
        watch = Watch(process.pid).look()
        for _ in range(20):
            signal.sigtimedwait((), 0.02)
            assert alive(init)
        process.kill()
        process.wait()
        watch.assert_gone()


def test_a_forked_child_keeps_nothing_alive() -> None:
    """A host that has forked is killed: the child holds copies of every descriptor, and the tree goes all the same."""
    with host(
        "child = os.fork()\nif child == 0:\n    time.sleep(60); os._exit(0)\nprint(child, flush=True)"
    ) as process:
        assert process.stdout is not None
        child, init = int(process.stdout.readline()), int(process.stdout.readline())
        watch = Watch(process.pid, but={child}).look()
        process.kill()
        process.wait()
        watch.births.pop(child, None)
        watch.assert_gone()
        assert not alive(init)
        kill(child)
        os.waitpid(child, 0)


def test_a_killed_job_is_seen_by_this_look(receipts: Path) -> None:
    """The control: while the job lives, the same look finds it."""
    with Session(receipts) as session:
        session.start("sleep", "60")
        watch = Watch(session.process.pid).look()
        with pytest.raises(AssertionError, match="alive"):
            watch.assert_gone(0.1)
        session.hang_up().finish()
