"""What each call says of a process in each state: the table of the state machine, row by row."""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.darwin.abi import (
    ALL_INFO,
    ALL_PIDS,
    BOTH,
    BSD,
    CHILDREN,
    COALITION,
    GROUP,
    KINFO_PGID,
    KINFO_PPID,
    KINFO_STATUS,
    NOTE_EXIT,
    RUNNING,
    SHORT,
    TASK,
    UNIQUE,
    ZOMBIE,
)
from tests.darwin.events import Kqueue
from tests.darwin.processes import DAEMON, until
from tests.darwin.world import ON_A_MAC

if TYPE_CHECKING:
    from tests.darwin.abi import Darwin
    from tests.darwin.processes import Actors

SEEN_AS_ZOMBIES = (BSD, SHORT, UNIQUE, BOTH)


def attach(darwin: Darwin, pid: int) -> int:
    """The errno of attaching EVFILT_PROC to ``pid``, in a queue of its own."""
    with Kqueue(darwin) as queue:
        return queue.attach(pid, NOTE_EXIT)


def test_a_live_process_answers_everywhere(darwin: Darwin, actors: Actors) -> None:
    """Listed, with data for any argument, found by kill, killpg, kqueue and getsid."""
    pid = actors.sleeper().pid
    assert pid in darwin.listpids(ALL_PIDS)
    assert darwin.listpids(GROUP, pid) == [pid]
    assert pid in darwin.listpids(CHILDREN, os.getpid())
    for flavour in (*SEEN_AS_ZOMBIES, TASK, ALL_INFO, COALITION):
        for arg in (0, 1):
            assert darwin.pidinfo(pid, flavour, arg) is not None, (flavour, arg, darwin.errno)
    short = darwin.pidinfo(pid, SHORT)
    assert (short.pbsi_pid, short.pbsi_ppid, short.pbsi_pgid) == (pid, os.getpid(), pid)
    assert short.pbsi_status == RUNNING
    assert (darwin.kill(pid, 0), darwin.killpg(pid, 0), attach(darwin, pid)) == (0, 0, 0)
    assert darwin.getsid(pid) == os.getsid(0)


def test_the_sysctl_and_libproc_tell_the_same_process(darwin: Darwin, actors: Actors) -> None:
    """Parent, group and start time are the same by both routes."""
    pid = actors.sleeper().pid
    record, info = darwin.kinfo(pid), darwin.pidinfo(pid, BSD)
    assert record is not None

    def number(at: int, size: int = 4) -> int:
        return int.from_bytes(record[at : at + size], "little")

    assert number(KINFO_PPID) == info.pbi_ppid == os.getpid()
    assert number(KINFO_PGID) == info.pbi_pgid == pid
    assert (number(0, 8), number(8)) == (info.pbi_start_tvsec, info.pbi_start_tvusec)


def test_a_zombie_is_listed(darwin: Darwin, actors: Actors) -> None:
    """By all, by group and by parent: it still pins its numbers."""
    pid = actors.zombie().pid
    assert pid in darwin.listpids(ALL_PIDS)
    assert darwin.listpids(GROUP, pid) == [pid]
    assert pid in darwin.listpids(CHILDREN, os.getpid())


@pytest.mark.parametrize("flavour", [*SEEN_AS_ZOMBIES, TASK, ALL_INFO, COALITION])
def test_a_zombie_is_hidden_from_argument_0(flavour: int, darwin: Darwin, actors: Actors) -> None:
    """ESRCH, although the pid is taken: who stops here takes a zombie for gone."""
    assert darwin.pidinfo(actors.zombie().pid, flavour) is None
    assert darwin.errno == errno.ESRCH


@pytest.mark.parametrize("flavour", SEEN_AS_ZOMBIES)
def test_a_zombie_is_told_to_argument_1(flavour: int, darwin: Darwin, actors: Actors) -> None:
    """These four flavours look among the zombies (probe P1)."""
    assert darwin.pidinfo(actors.zombie().pid, flavour, 1) is not None, darwin.errno


@pytest.mark.parametrize("flavour", [TASK, ALL_INFO, COALITION])
def test_other_flavours_know_no_zombies(flavour: int, darwin: Darwin, actors: Actors) -> None:
    """Whatever the argument."""
    assert darwin.pidinfo(actors.zombie().pid, flavour, 1) is None
    assert darwin.errno == errno.ESRCH


def test_a_zombie_says_that_it_is_one(darwin: Darwin, actors: Actors) -> None:
    """Status 5 by flavours 3 and 13 and by the sysctl; the unique id is the living one's."""
    process = actors.sleeper()
    before = darwin.unique(process.pid).p_uniqueid
    actors.end(process)
    record = darwin.kinfo(process.pid)
    assert record is not None
    assert darwin.pidinfo(process.pid, BSD, 1).pbi_status == ZOMBIE
    assert darwin.pidinfo(process.pid, SHORT, 1).pbsi_status == ZOMBIE
    assert record[KINFO_STATUS] == ZOMBIE
    assert darwin.unique(process.pid, 1).p_uniqueid == before


def test_a_zombie_takes_signals_and_no_watch(darwin: Darwin, actors: Actors) -> None:
    """To kill the answer is 0, to killpg EPERM; attaching and getsid say ESRCH (probes P6, P7)."""
    pid = actors.zombie().pid
    assert (darwin.kill(pid, 0), darwin.kill(pid, signal.SIGKILL)) == (0, 0)
    assert darwin.killpg(pid, signal.SIGKILL) == errno.EPERM
    assert attach(darwin, pid) == errno.ESRCH
    assert (darwin.getsid(pid), darwin.errno) == (None, errno.ESRCH)


def test_a_reaped_process_is_gone_everywhere(darwin: Darwin, actors: Actors) -> None:
    """ESRCH, an empty reply with rc 0, and no place in any list."""
    process = actors.zombie()
    actors.reap(process)
    pid = process.pid
    for flavour in SEEN_AS_ZOMBIES:
        assert (darwin.pidinfo(pid, flavour, 1), darwin.errno) == (None, errno.ESRCH)
    assert darwin.kinfo(pid) is None
    assert pid not in darwin.listpids(ALL_PIDS)
    assert (darwin.listpids(GROUP, pid), darwin.errno) == ([], 0)
    assert (darwin.kill(pid, 0), darwin.killpg(pid, 0)) == (errno.ESRCH, errno.ESRCH)
    assert attach(darwin, pid) == errno.ESRCH
    assert (darwin.getsid(pid), darwin.errno) == (None, errno.ESRCH)


def test_an_orphan_leaves_no_zombie(darwin: Darwin, actors: Actors, request: pytest.FixtureRequest) -> None:
    """The kernel reaps it inside its own exit: there is nothing to read afterwards."""
    if not ON_A_MAC:
        request.getfixturevalue("lineage")
    starter = actors.script(DAEMON)
    daemon = actors.other(actors.says(starter))
    until(lambda: darwin.pidinfo(daemon, SHORT).pbsi_ppid == 1, "the daemon is an orphan")
    uniq = darwin.unique(daemon).p_uniqueid
    with Kqueue(darwin) as queue:
        assert queue.attach(daemon, NOTE_EXIT) == 0
        assert darwin.kill(daemon, signal.SIGKILL) == 0
        assert [event.ident for event in queue.wait()] == [daemon]

    def gone() -> bool:
        answer = darwin.pidinfo(daemon, UNIQUE, 1)
        assert not actors.is_zombie(daemon)
        return answer is None or answer.p_uniqueid != uniq

    until(gone, "nothing is left of it")
