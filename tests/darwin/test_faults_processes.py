"""Faults of processes: slow exits, hidden children, numbers that are another's, members of somebody else."""

from __future__ import annotations

import errno
import os
import signal
import socket
from typing import TYPE_CHECKING

import pytest

from tests.darwin.abi import (
    ALL_PIDS,
    BSD,
    COALITION,
    GROUP,
    IN_EXIT,
    KINFO_STATUS,
    NOTE_EXIT,
    NOTE_EXITSTATUS,
    RUNNING,
    SHORT,
    TASK,
    UNIQUE,
    ZOMBIE,
    Darwin,
    ffi,
)
from tests.darwin.events import Kqueue
from tests.darwin.processes import Actors, until
from tests.darwin.test_contract_coalitions import counted
from tests.darwin.test_contract_identity import EXECUTES, ORPHAN, executed, start_of
from tests.darwin.test_contract_signals import FAKE_ANCHOR

if TYPE_CHECKING:
    import subprocess

    from tests.darwin.world import World


def held(xnu: World, process: subprocess.Popen[str], how: str) -> None:
    """Kills a process whose exit takes long; returns when it has begun."""
    try:
        xnu.control(f"hold-exit pid={process.pid} {how}")
    except PermissionError:
        pytest.skip("capability: ptrace of other processes, to keep an exit from ending")
    os.kill(process.pid, signal.SIGKILL)


def flags_of(darwin: Darwin, pid: int) -> int:
    """By flavour 13, among zombies too."""
    return int(darwin.pidinfo(pid, SHORT, 1).pbsi_flags)


def test_07_an_exit_is_told_before_it_can_be_waited_for(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """NOTE_EXIT at once; the zombie, and the wait, only later."""
    process = actors.sleeper()
    with Kqueue(darwin) as queue:
        assert queue.attach(process.pid, NOTE_EXIT | NOTE_EXITSTATUS) == 0
        held(xnu, process, "ms=300")
        (event,) = queue.wait()
    assert event.data & 0xFFFF == signal.SIGKILL
    assert process.poll() is None  # really: Linux does not say either that it has ended
    assert darwin.pidinfo(process.pid, SHORT) is None
    assert flags_of(darwin, process.pid) & IN_EXIT
    until(lambda: darwin.pidinfo(process.pid, SHORT, 1).pbsi_status == ZOMBIE, "it is a zombie")
    assert actors.reap(process) == -signal.SIGKILL


def test_08_an_exit_is_stuck(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """The row "exiting" of the table; KILL has no effect, and its port stays taken."""
    process = actors.script(LISTENS)
    port = actors.says(process)
    birth = darwin.unique(process.pid).p_uniqueid
    with Kqueue(darwin) as queue:
        assert queue.attach(process.pid, NOTE_EXIT) == 0
        held(xnu, process, "ms=-1")
        until(lambda: darwin.pidinfo(process.pid, SHORT) is None, "it exits")
        assert queue.wait(0.05) == []
        assert queue.attach(process.pid, NOTE_EXIT) == errno.ESRCH
    pid = process.pid
    record = darwin.kinfo(pid)
    assert record is not None
    assert (record[KINFO_STATUS], darwin.pidinfo(pid, SHORT, 1).pbsi_status) == (RUNNING, RUNNING)
    assert flags_of(darwin, pid) & IN_EXIT
    assert darwin.unique(pid, 1).p_uniqueid == birth
    assert darwin.listpids(GROUP, pid) == [pid]
    assert (darwin.kill(pid, signal.SIGKILL), darwin.killpg(pid, signal.SIGKILL)) == (0, errno.EPERM)
    assert darwin.signal_exactly(pid, darwin.unique(pid, 1).p_idversion, signal.SIGKILL) == errno.ESRCH
    assert (darwin.getsid(pid), darwin.errno) == (None, errno.ESRCH)
    assert (darwin.pidinfo(pid, TASK, 1), darwin.errno) == (None, errno.ESRCH)
    with socket.socket() as client:
        client.connect(("127.0.0.1", port))
    assert process.poll() is None
    xnu.control(f"release-exit pid={pid}")
    assert actors.reap(process) == -signal.SIGKILL


LISTENS = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_an_exit_that_has_only_begun_is_found_by_everything(
    xnu: World, darwin: Darwin, actors: Actors
) -> None:
    """The row "exit begun": data with INEXIT for any argument, and killpg succeeds."""
    process = actors.sleeper()
    held(xnu, process, "ms=-1 early=1")
    pid = process.pid
    until(lambda: flags_of(darwin, pid) & IN_EXIT, "its exit has begun")
    assert darwin.pidinfo(pid, BSD).pbi_flags & IN_EXIT
    assert (darwin.kill(pid, 0), darwin.killpg(pid, signal.SIGKILL)) == (0, 0)
    assert darwin.getsid(pid) == os.getsid(0)
    with Kqueue(darwin) as queue:
        assert queue.attach(pid, NOTE_EXIT) == 0
    xnu.control("clear")
    assert actors.reap(process) == -signal.SIGKILL


def test_09_a_child_is_missing_from_one_census(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """In its group and not yet in the list: that killpg passes it over, and the next census has it."""
    leader, child = actors.sleeper(), None
    child = actors.sleeper(leader.pid)
    xnu.control(f"hide pid={child.pid} times=1")
    assert darwin.killpg(leader.pid, signal.SIGTERM) == 0
    assert actors.reap(leader) == -signal.SIGTERM
    assert darwin.listpids(GROUP, leader.pid) == []
    assert darwin.listpids(GROUP, leader.pid) == [child.pid]
    assert child.poll() is None
    assert darwin.killpg(leader.pid, signal.SIGTERM) == 0
    assert actors.reap(child) == -signal.SIGTERM


def test_09_the_next_child_of_a_process_is_missing(lineage: World, darwin: Darwin, actors: Actors) -> None:
    """For children that a test cannot name yet."""
    parent = actors.parent()
    lineage.control(f"hide-next-child pid={parent.pid} times=1")
    child = actors.other(actors.says(parent, "spawn"))
    assert darwin.listpids(GROUP, parent.pid) == [parent.pid]
    assert sorted(darwin.listpids(GROUP, parent.pid)) == sorted([parent.pid, child])


def test_10_a_version_changes_between_read_and_signal(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """The token is void at once; a second reading gives one that works."""
    process = actors.sleeper()
    until(lambda: executes_sleep(darwin, process.pid), "it executes sleep")
    xnu.control(f"bump pid={process.pid} times=1")
    first = darwin.unique(process.pid)
    assert darwin.signal_exactly(process.pid, first.p_idversion, signal.SIGTERM) == errno.ESRCH
    second = darwin.unique(process.pid)
    assert second.p_uniqueid == first.p_uniqueid
    assert darwin.signal_exactly(process.pid, second.p_idversion, signal.SIGTERM) == 0
    assert actors.reap(process) == -signal.SIGTERM


def executes_sleep(darwin: Darwin, pid: int) -> bool:
    """Its exec is over: nothing of its own accord changes its version any more."""
    room = ffi.new("char[]", 64)
    return int(darwin.lib.proc_name(pid, room, 64)) == len("sleep")


def test_11_a_number_is_anothers(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """The same pid with another unique id, start and version."""
    process = actors.sleeper()
    before, start = darwin.unique(process.pid), start_of(darwin, process.pid)
    xnu.control(f"reuse pid={process.pid}")
    after = darwin.unique(process.pid)
    assert after.p_uniqueid > before.p_uniqueid
    assert after.p_idversion != before.p_idversion
    assert start_of(darwin, process.pid) > start
    assert darwin.signal_exactly(process.pid, before.p_idversion, signal.SIGKILL) == errno.ESRCH
    assert process.poll() is None


@pytest.mark.parametrize("release", [12, 13])
def test_12_an_exec_keeps_or_resets_the_parents_id(
    release: int, lineage: World, darwin: Darwin, actors: Actors
) -> None:
    """On macOS 12 it stays for life; from 13 on an orphan that executes is launchd's."""
    lineage.control(f"mode puniqueid={release}")
    orphan = actors.script(ORPHAN)
    child = actors.other(actors.says(orphan))
    parent, born = darwin.unique(orphan.pid).p_uniqueid, darwin.unique(child)
    actors.end(orphan)
    until(lambda: darwin.pidinfo(child, SHORT).pbsi_ppid == 1, "it is an orphan")
    darwin.kill(child, signal.SIGUSR1)
    until(lambda: darwin.unique(child).p_idversion != born.p_idversion, "it executes")
    assert darwin.unique(child).p_puniqueid == (parent if release == 12 else darwin.unique(1).p_uniqueid)


@pytest.mark.parametrize("release", [0, 1])
def test_13_the_parents_version_is_there_or_0(
    release: int, lineage: World, darwin: Darwin, actors: Actors
) -> None:
    """From macOS 15.4 on; it survives an exec."""
    lineage.control(f"mode opidv={release}")
    process = actors.script(EXECUTES)
    own = darwin.unique(os.getpid()).p_idversion
    executed(darwin, process)
    assert darwin.unique(process.pid).p_orig_ppidversion == (own if release else 0)


def test_14_there_is_no_exact_signal_before_14_2(xnu: World, actors: Actors) -> None:
    """The symbol is missing; all else is the same, in the same world."""
    old = Darwin(xnu.old_library)
    pid = actors.sleeper().pid
    assert not hasattr(old.lib, "proc_signal_with_audittoken")
    assert old.unique(pid).p_uniqueid == Darwin(xnu.library).unique(pid).p_uniqueid


def test_15_a_group_has_a_member_of_somebody_else(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """To killpg that is success, if the others could be reached; that one alone makes EPERM."""
    leader = actors.sleeper()
    member = actors.sleeper(leader.pid)
    xnu.control(f"foreign pid={member.pid} uid=4242")
    assert darwin.killpg(leader.pid, signal.SIGKILL) == 0
    assert actors.reap(leader) == -signal.SIGKILL
    assert member.poll() is None
    assert darwin.pidinfo(member.pid, SHORT).pbsi_uid == 4242
    assert (darwin.pidinfo(member.pid, BSD), darwin.errno) == (None, errno.EPERM)
    assert darwin.killpg(leader.pid, signal.SIGKILL) == errno.EPERM
    assert darwin.kill(member.pid, signal.SIGKILL) == errno.EPERM
    assert darwin.signal_exactly(member.pid, darwin.unique(member.pid).p_idversion, 9) == errno.EPERM
    with Kqueue(darwin) as queue:
        assert queue.attach(member.pid, NOTE_EXITSTATUS) == errno.EACCES
        assert queue.attach(member.pid, NOTE_EXIT) == 0


def test_20_a_coalition_has_a_late_member(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """Not counted by this look, and there at the next: one clean count proves nothing."""
    first, late = actors.sleeper().pid, actors.sleeper().pid
    fresh = xnu.control(f"coalition pid={first}")
    assert darwin.pidinfo(first, COALITION).coalition_id[0] == fresh
    assert counted(darwin)[fresh] == 1
    xnu.control(f"late-member pid={late} id={fresh}")
    assert counted(darwin)[fresh] == 1
    assert counted(darwin)[fresh] == 2
    xnu.control(f"coalition-join pid={os.getpid()} id=1")


def test_a_signal_never_leaves_the_test(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """Who does not descend from the maker of the world is out of reach, whoever asks."""
    outsider = darwin.unique(1)
    assert darwin.kill(1, signal.SIGTERM) == errno.EPERM
    assert darwin.kill(xnu.server.pid, signal.SIGTERM) == errno.EPERM
    assert darwin.kill(os.getpid(), signal.SIGTERM) == errno.EPERM
    assert darwin.kill(-1, signal.SIGTERM) == errno.EPERM
    assert darwin.signal_exactly(1, outsider.p_idversion, signal.SIGTERM) == errno.EPERM
    assert darwin.kill(actors.sleeper().pid, signal.SIGTERM) == 0


def test_a_world_that_ends_takes_its_processes_along(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """A test that forgets one leaves nothing behind."""
    process = actors.sleeper()
    assert darwin.pidinfo(process.pid, UNIQUE) is not None
    assert xnu.control("end") >= 1
    assert actors.reap(process) == -signal.SIGKILL


def test_an_anchor_needs_no_world_to_end_its_group(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """Its server is killed, and kill(0) of the library works all the same: nothing is left behind by such a test."""
    leader = actors.script(FAKE_ANCHOR.format(library=darwin.path))
    actors.says(leader)
    member = actors.sleeper(leader.pid)
    xnu.server.kill()
    xnu.server.wait()
    assert leader.stdin is not None
    leader.stdin.write("now\n")
    leader.stdin.flush()
    assert (actors.reap(member), actors.reap(leader)) == (-signal.SIGKILL, -signal.SIGKILL)


DAEMONS = """
import os, sys
sys.stdin.readline()
for _ in range({count}):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execlp("sleep", "sleep", "600")
        os._exit(0)
    os.wait()
print({count}, flush=True)
sys.stdin.read()
"""


def test_no_birth_is_missed(lineage: World, darwin: Darwin, actors: Actors) -> None:
    """A hundred setsid daemons whose middle process is gone at once: each is linked to its starter by unique ids."""
    starter = actors.script(DAEMONS.format(count=100))
    root = darwin.unique(starter.pid).p_uniqueid
    coalition = lineage.control(f"coalition pid={starter.pid}")
    assert actors.says(starter, "go") == 100
    assert counted(darwin)[coalition] == 1 + 100
    daemons = [pid for pid in darwin.listpids(ALL_PIDS) if in_coalition(darwin, pid, coalition)]
    assert len({darwin.unique(pid).p_uniqueid for pid in daemons}) == 1 + 100
    assert min(darwin.unique(pid).p_uniqueid for pid in daemons) == root
    assert lineage.control("lost") == 0
    for pid in daemons:
        assert darwin.kill(pid, signal.SIGKILL) == 0


def in_coalition(darwin: Darwin, pid: int, number: int) -> bool:
    """Whether it is there, and in this one."""
    answer = darwin.pidinfo(pid, COALITION)
    return answer is not None and answer.coalition_id[0] == number


THREAD_EXECUTES = """
import os, sys, threading
sys.stdin.readline()
threading.Thread(target=lambda: os.execlp("cat", "cat")).start()
threading.Event().wait()
"""


def test_a_process_lives_on_when_a_thread_of_it_executes(
    lineage: World, darwin: Darwin, actors: Actors
) -> None:
    """Linux ends the first thread then; to Darwin it is one process before and after."""
    process = actors.script(THREAD_EXECUTES)
    birth = darwin.unique(process.pid).p_uniqueid
    executed(darwin, process)
    assert lineage.control("lost") == 0
    assert darwin.unique(process.pid).p_uniqueid == birth
    assert darwin.kill(process.pid, signal.SIGTERM) == 0
    assert actors.reap(process) == -signal.SIGTERM
