"""What others have reported of macOS (docs/DARWIN-REPORTS.md), each as a job through ``contain`` on a fake XNU."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain.darwin import census, ending
from contain.darwin.handle import Handle, opened
from contain.darwin.libproc import Libproc
from receipts import Anchor, decode
from tests.darwin.jobs import inspected, kill_all, members, parent, program, session, until_gone
from tests.darwin.living import end, is_zombie, runs, until
from tests.session import Session, kill, wait_file

if TYPE_CHECKING:
    from tests.darwin.world import World

QUIET = "exec > /dev/null 2>&1"
"""Whoever is held must not hold the wrapper's own output."""


@pytest.mark.parametrize("number", [errno.EPERM, pytest.param(errno.ESRCH, marks=pytest.mark.slow)])
def test_killpgs_errno_is_neither_a_failure_nor_an_end(xnu: World, receipts: Path, number: int) -> None:
    """It says so of living members too: they are ended one by one, and the command's own result is not lost."""
    xnu.control(f"fail call=killpg errno={number}")
    with session(xnu, receipts) as job:
        job.start("sh", "-c", "trap '' TERM; sleep 600 & exit 4", graceMs=50, killMs=50)
        released = job.finish()
    assert (released["state"], released["empty"], released["outcome"]["code"]) == ("released", True, 4)
    assert members(released["anchor"]["pid"]) == []


@pytest.mark.parametrize("reused", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_group_of_a_reused_number_is_left_alone(xnu: World, receipts: Path, *, reused: bool) -> None:
    """The number that a receipt names leads another's group now; the control is one that is still the job's."""
    with session(xnu, receipts) as job:
        anchor = job.start("sleep", "600")["anchor"]["pid"]
        supervisor = parent(anchor)
        until(lambda: len(members(anchor)) > 1, "the command is there")  # the gate opens before the fork
        os.kill(supervisor, signal.SIGSTOP)  # so that the anchor stays
        kill_all(job.process.pid, *(pid for pid in members(anchor) if pid != anchor))
        job.process.wait()
        until(lambda: members(anchor) == [anchor], "only the anchor is left")
        if reused:
            xnu.control(f"reuse pid={anchor}")
        assert inspected(xnu, receipts, job.id, "--finish")["state"] == "released"
        assert runs(anchor) == reused
        kill(supervisor)
    until_gone(anchor)


def test_a_job_that_kills_its_own_group_kills_none_of_ours(
    xnu: World, receipts: Path, tmp_path: Path
) -> None:
    """Nobody above the anchor is in its group or session, and the supervisor is in no group of the caller's."""
    with session(xnu, receipts) as job:
        text = f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; sleep 600 & kill -9 0"
        anchor = job.start("sh", "-c", text)["anchor"]["pid"]
        above = (os.getpid(), job.process.pid, parent(anchor))
        assert anchor not in {os.getpgid(pid) for pid in above} | {os.getsid(pid) for pid in above}
        assert os.getpgid(anchor) == os.getsid(anchor) == anchor
        assert os.getpgid(parent(anchor)) not in {os.getpgid(job.process.pid), os.getpgrp()}
        (tmp_path / "go").touch()
        released = job.finish()
    assert (released["state"], released["empty"]) == ("released", True), released
    assert members(anchor) == []


def test_signals_that_end_daemons_end_none_of_ours(xnu: World, receipts: Path, tmp_path: Path) -> None:
    """A hang-up of an orphaned group, a Ctrl-C, a TERM: supervisor and anchor go on, and so does the job."""
    with session(xnu, receipts) as job:
        text = f"echo up > {tmp_path}/up; while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit 6"
        anchor = job.start("sh", "-c", text)["anchor"]["pid"]
        wait_file(tmp_path / "up")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
            kill(parent(anchor), number)
            kill(anchor, number)
        (tmp_path / "go").touch()
        released = job.finish()
    assert (released["outcome"]["cause"], released["outcome"]["code"]) == ("exited", 6)
    assert job.events() == ["prepared", "running", "exited", "released"]


def group_of(libproc: Libproc, leader: int) -> census.Tree:
    """A group that the test itself has made, as a job's."""
    identity, entry = libproc.identity(leader), libproc.entry(leader)
    assert entry is not None
    proof = Anchor(
        pid=leader,
        uid=os.getuid(),
        boot_id=libproc.boot_session(),
        unique_id=identity.unique_id,
        start_us=entry.start_us,
        scope=census.GROUP,
        signal="exact",
        witness="test",
    )
    return census.Tree(libproc, proof)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_zombie_holds_nothing(xnu: World, *, hidden: bool) -> None:
    """Unreaped, in the job's group; and where proc_pidinfo should hide the dead, the kernel's entry tells of it."""
    libproc = Libproc(opened(xnu.library))
    leader = subprocess.Popen(["sleep", "600"], process_group=0)
    member = subprocess.Popen(["sleep", "600"], process_group=leader.pid)
    tree = group_of(libproc, leader.pid)
    assert [one.birth.pid for one in tree.census().members] == [member.pid]
    member.kill()
    until(lambda: is_zombie(member.pid), "a zombie")
    if hidden:
        xnu.control(f"fail call=pidinfo errno={errno.ESRCH} pid={member.pid}")
    found = tree.census()
    assert found.clean, found
    for process in (member, leader):
        end(process)


def test_a_step_of_the_clock_loses_no_job(xnu: World, receipts: Path) -> None:
    """The birth is a count: the job is still seen alive, and its end is proven."""
    with session(xnu, receipts) as job:
        anchor = job.start("sleep", "600")["anchor"]["pid"]
        for seconds in (-3600, 7200):
            xnu.control(f"step seconds={seconds}")
            found = inspected(xnu, receipts)
            assert (found["state"], found["observation"]["state"]) == ("busy", "live"), found
        released = job.hang_up().finish()
    assert (released["state"], released["empty"]) == ("released", True)
    assert members(anchor) == []


def test_an_exit_that_comes_late_is_the_exit(xnu: World, receipts: Path, tmp_path: Path) -> None:
    """Told of before it can be waited for: the status that is latched is the one of the wait."""
    with session(xnu, receipts) as job:
        anchor = job.start("sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 600")["anchor"]["pid"]
        command = int(wait_file(tmp_path / "pid"))
        xnu.control(f"hold-exit pid={command} ms=300")
        kill(command)
        released = job.finish()
    assert (released["outcome"]["cause"], released["outcome"]["signal"]) == ("signaled", signal.SIGKILL)
    assert members(anchor) == []


def test_a_watch_that_comes_too_late_loses_no_end(xnu: World, receipts: Path) -> None:
    """ESRCH from kqueue for a wrapper that lives: its end is seen by the socket all the same."""
    with session(xnu, receipts) as job:
        xnu.control(f"attach-lost pid={job.process.pid}")
        anchor = job.start("sh", "-c", "trap '' TERM HUP; sleep 600")["anchor"]["pid"]
        kill(job.process.pid)
        until_gone(anchor)
    assert inspected(xnu, receipts)["state"] == "released"


class Counting(Handle):
    """The library, with a count of one call."""

    killpg = 0

    def call(self, name: str, *arguments: object) -> tuple[int, int]:
        """Makes it."""
        self.killpg += name == "killpg"
        return super().call(name, *arguments)


def test_a_stuck_exit_is_held_without_a_storm(xnu: World, receipts: Path, tmp_path: Path) -> None:
    """``UE``: named with what alone clears it, by the wrapper and by who looks later; the supervisor gives up too."""
    with session(xnu, receipts) as job:
        text = f"{QUIET}; sleep 600 & echo $! > {tmp_path}/pid; wait"
        anchor = job.start("sh", "-c", text)["anchor"]["pid"]
        child, supervisor = int(wait_file(tmp_path / "pid")), parent(anchor)
        xnu.control(f"hold-exit pid={child} ms=-1")
        held = job.hang_up().finish()
    assert (held["event"], held["empty"]) == ("held", False), held
    blockers = [(one["pid"], one["state"], one["why"]) for one in held["held"]["blockers"]]
    assert blockers == [(child, "E", ending.STUCK)]
    assert "only a reboot clears it" in ending.STUCK
    until(lambda: not runs(supervisor), "nobody tries for ever")
    again = inspected(xnu, receipts)
    assert (again["state"], again["held"]["blockers"][0]["why"]) == ("held", ending.STUCK)
    handle = Counting(xnu.library)
    tree = census.Tree(Libproc(handle), decode(Anchor, held["anchor"], "proof"))
    found = ending.kill(tree, pinned=True, wait_s=2.0)
    assert (found.state, found.blockers[0].why) == (ending.LIVE, ending.STUCK)
    assert 0 < handle.killpg < 50  # 20 ms apart it would be a hundred
    xnu.control(f"release-exit pid={child}")
    until(lambda: inspected(xnu, receipts)["state"] == "released", "released")


def environ_of(pid: int) -> bytes:
    """The variables that a process was executed with."""
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_an_environment_is_no_evidence(xnu: World, receipts: Path) -> None:
    """Who has the job's variables, whole, and is not of it lives on."""
    env = {"PATH": os.environ["PATH"], "JOB": "this one"}
    with session(xnu, receipts) as job:
        anchor = job.start("sleep", "600", env=env)["anchor"]["pid"]
        until(
            lambda: b"JOB=" in environ_of(members(anchor)[-1]), "it is executed"
        )  # the gate opens before the fork
        told = environ_of(members(anchor)[-1])
        outsider = subprocess.Popen(["sleep", "600"], env=env)
        until(lambda: environ_of(outsider.pid) == told, "the same variables")
        assert job.hang_up().finish()["state"] == "released"
    assert runs(outsider.pid)
    end(outsider)


def test_none_of_ours_forks_but_the_anchor(xnu: World, receipts: Path, tmp_path: Path) -> None:
    """Wrapper and supervisor only spawn (CLONE_VFORK and CLONE_VM); the anchor's fork shows that one would be seen."""
    log = tmp_path / "log"
    calls = "trace=?fork,?vfork,?clone,?clone3,execve"
    traced = ("strace", "-f", "-qq", "-o", str(log), "-e", calls, *program(xnu.library))
    with Session(receipts, program=traced) as job:
        job.start("true")
        assert job.finish()["state"] == "released"
    spawned, forks, executes = 0, [], {}
    for line in log.read_text().splitlines():
        pid, call = line.split(maxsplit=1)
        if call.startswith("execve("):
            executes[pid] = call.partition(",")[0]
        elif call.startswith(("clone", "fork", "vfork")) and "CLONE_THREAD" not in call:
            if "CLONE_VFORK" in call or call.startswith("vfork"):
                spawned += 1
            else:
                forks.append(Path(executes[pid].strip('"')).name)
    assert spawned >= 2
    assert forks == ["contain-anchor"]
