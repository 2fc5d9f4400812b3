"""Faults of answers: each thing that a kernel may say wrongly, late or not at all, and that the backend must survive.

These tests prove that the fake does what it is told; what the backend makes of it is tested beside the backend.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from tests.darwin.abi import (
    ALL_PIDS,
    BSD,
    COALITION,
    GROUP,
    NOTE_EXIT,
    SHORT,
    STRUCT_OF,
    UNIQUE,
    Darwin,
    Struct,
    ffi,
)
from tests.darwin.events import Kqueue
from tests.darwin.test_contract_calls import file_system
from tests.darwin.test_contract_machine import memory

if TYPE_CHECKING:
    from tests.darwin.processes import Actors
    from tests.darwin.world import World


@pytest.mark.parametrize("flavour", STRUCT_OF)
def test_01_one_flavour_is_refused(flavour: int, xnu: World, darwin: Darwin, actors: Actors) -> None:
    """EPERM for that flavour and that process, as often as asked; the others answer."""
    pid, other = actors.sleeper().pid, actors.sleeper().pid
    xnu.control(f"deny flavour={flavour} pid={pid} times=2")
    for _ in range(2):
        assert (darwin.pidinfo(pid, flavour), darwin.errno) == (None, errno.EPERM)
    assert darwin.pidinfo(pid, flavour) is not None
    xnu.control(f"deny flavour={flavour} pid={pid}")
    assert darwin.pidinfo(other, flavour) is not None
    assert darwin.pidinfo(pid, UNIQUE if flavour == BSD else BSD) is not None
    xnu.control("clear")
    assert darwin.pidinfo(pid, flavour) is not None


def test_02_everything_is_refused(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """As in a sandbox: EPERM from every call about a process."""
    pid = actors.sleeper().pid
    xnu.control("deny all")
    assert (darwin.pidinfo(pid, UNIQUE, 1), darwin.errno) == (None, errno.EPERM)
    assert (darwin.listpids(ALL_PIDS), darwin.errno) == ([], errno.EPERM)
    assert (darwin.kill(pid, 0), darwin.killpg(pid, 0)) == (errno.EPERM, errno.EPERM)
    assert darwin.signal_exactly(pid, 1, 9) == errno.EPERM
    assert (darwin.getsid(pid), darwin.errno) == (None, errno.EPERM)
    size = ffi.new("size_t *", 0)
    name = ffi.new("int[]", [1, 14, 1, pid])
    assert darwin.lib.sysctl(name, 4, ffi.NULL, size, ffi.NULL, 0) == -1
    assert darwin.named("kern.bootsessionuuid") is not None


def test_03_an_answer_is_short(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """Fewer bytes than the struct: another ABI, so nothing is known."""
    pid = actors.sleeper().pid
    xnu.control("short flavour=17 bytes=40 times=1")
    room = ffi.new("char[]", 56)
    assert darwin.lib.proc_pidinfo(pid, UNIQUE, 1, room, 56) == 40
    assert darwin.lib.proc_pidinfo(pid, UNIQUE, 1, room, 56) == 56


def test_04_a_census_fails(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """0 with errno, which alone tells it from an empty group."""
    pid = actors.sleeper().pid
    xnu.control(f"fail call=listpids errno={errno.ENOMEM} times=1")
    assert (darwin.listpids(GROUP, pid), darwin.errno) == ([], errno.ENOMEM)
    assert (darwin.listpids(GROUP, pid), darwin.errno) == ([pid], 0)


def test_05_a_census_is_cut(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """Fewer pids than there are, without an error."""
    leader = actors.sleeper()
    actors.sleeper(leader.pid)
    xnu.control("truncate keep=1 times=1")
    assert len(darwin.listpids(GROUP, leader.pid)) == 1
    assert len(darwin.listpids(GROUP, leader.pid)) == 2


def test_06_a_watch_comes_too_late(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """ESRCH although the process is there."""
    pid = actors.sleeper().pid
    xnu.control(f"attach-lost pid={pid}")
    with Kqueue(darwin) as queue:
        assert queue.attach(pid, NOTE_EXIT) == errno.ESRCH
    assert darwin.pidinfo(pid, SHORT) is not None


def test_16_the_clock_is_set(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """The boot time moves, and the start of who is born later; who was born before keeps his."""
    old = actors.sleeper().pid
    boot, start = boot_s(darwin), darwin.pidinfo(old, BSD).pbi_start_tvsec
    xnu.control("step seconds=3600")
    assert boot_s(darwin) - boot in range(3599, 3602)
    assert darwin.pidinfo(old, BSD).pbi_start_tvsec == start
    assert darwin.pidinfo(actors.sleeper().pid, BSD).pbi_start_tvsec - start >= 3599


def boot_s(darwin: Darwin) -> int:
    """The seconds of kern.boottime."""
    value = darwin.named("kern.boottime")
    assert value is not None
    return int.from_bytes(value[:8], "little")


def test_17_the_machine_was_booted_again(xnu: World, darwin: Darwin) -> None:
    """Another boot session: every birth of before is gone."""
    before = darwin.named("kern.bootsessionuuid")
    xnu.control("reboot")
    assert darwin.named("kern.bootsessionuuid") != before


def test_18_memory_is_stale_refused_or_in_other_pages(xnu: World, darwin: Darwin) -> None:
    """The old copy with KERN_SUCCESS; KERN_FAILURE; a page size that only the symbol tells."""
    host = darwin.lib.mach_host_self()
    first = bytes(ffi.buffer(memory(darwin, host)[2]))
    xnu.control("stale")
    again = [memory(darwin, host) for _ in range(12)]
    assert {result for result, _, _ in again} == {0}
    assert {bytes(ffi.buffer(counts)) for _, _, counts in again} == {first}
    xnu.control(f"fail call=host_statistics64 errno={errno.EIO} times=1")
    assert memory(darwin, host)[0] == 5
    xnu.control("page-size bytes=4096")
    assert darwin.lib.vm_kernel_page_size == 16384
    assert Darwin(xnu.old_library).lib.vm_kernel_page_size == 4096


def test_19_a_queue_is_interrupted_or_full(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """EINTR from waiting, ENOMEM for a knote, EMFILE for a queue."""
    pid = actors.sleeper().pid
    with Kqueue(darwin) as queue:
        xnu.control(f"fail call=kevent errno={errno.EINTR} times=1")
        ffi.errno = 0
        room: Struct = ffi.new("struct kevent[1]")
        assert darwin.lib.kevent(queue.fd, ffi.NULL, 0, room, 1, ffi.NULL) == -1
        assert darwin.errno == errno.EINTR
        xnu.control(f"fail call=attach errno={errno.ENOMEM} times=1")
        assert queue.attach(pid, NOTE_EXIT) == errno.ENOMEM
        assert queue.attach(pid, NOTE_EXIT) == 0
    xnu.control(f"fail call=kqueue errno={errno.EMFILE} times=1")
    assert darwin.lib.kqueue() == -1
    assert darwin.errno == errno.EMFILE


def test_any_call_can_fail(xnu: World, darwin: Darwin, actors: Actors) -> None:
    """By its own kind of error."""
    pid = actors.sleeper().pid
    for call in (
        "kill",
        "killpg",
        "getsid",
        "audittoken",
        "pidinfo",
        "sysctlbyname",
        "fcntl51",
        "listcoalitions",
    ):
        xnu.control(f"fail call={call} errno={errno.EIO} times=1")
    assert (darwin.kill(pid, 0), darwin.killpg(pid, 0)) == (errno.EIO, errno.EIO)
    assert (darwin.getsid(pid), darwin.errno) == (None, errno.EIO)
    assert darwin.signal_exactly(pid, 1, 9) == errno.EIO
    assert (darwin.pidinfo(pid, COALITION), darwin.errno) == (None, errno.EIO)
    assert (darwin.named("hw.memsize"), darwin.errno) == (None, errno.EIO)
    assert (darwin.lib.fcntl(1, 51), darwin.errno) == (-1, errno.EIO)
    assert (darwin.lib.proc_listcoalitions(1, 0, ffi.NULL, 0), darwin.errno) == (-1, errno.EIO)
    assert darwin.kill(pid, 0) == 0


def test_a_value_can_be_said(xnu: World, darwin: Darwin) -> None:
    """Pressure and swap, which no test can have at will."""
    xnu.control("sysctl name=kern.memorystatus_vm_pressure_level value=4")
    xnu.control("sysctl name=vm.swapusage value=1000,400,600")
    assert darwin.named("kern.memorystatus_vm_pressure_level") == (4).to_bytes(4, "little")
    swap = darwin.named("vm.swapusage")
    assert swap is not None
    assert [int.from_bytes(swap[at : at + 8], "little") for at in (0, 8, 16)] == [1000, 400, 600]


@pytest.mark.parametrize("command", ["", "no-such-word", "deny", "deny flavour=x", "hide", "fail call=kill"])
def test_a_command_that_is_none_is_refused(command: str, xnu: World) -> None:
    """A fault that was misspelled would be a test that cannot fail."""
    with pytest.raises(ValueError, match="not a command"):
        xnu.control(command)


def test_a_fault_of_a_process_that_is_none_is_refused(xnu: World) -> None:
    """ESRCH."""
    with pytest.raises(ProcessLookupError):
        xnu.control("hide pid=4123456")


def test_intel_has_two_calls_for_file_systems(xnu: World, darwin: Darwin) -> None:
    """What the plain one fills says no name where the new layout has it; arm64 has no other."""
    intel = Darwin(xnu.intel_library)
    assert file_system(intel, "fstatfs", 0) != "apfs"
    assert file_system(intel, "fstatfs$INODE64", 0) == "apfs"
    assert not hasattr(darwin.lib, "fstatfs$INODE64")
