"""Readings of the machine, syncs and locks: lengths, units, and what must be given back."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest

from tests.darwin.abi import BARRIER, FULL, Struct, ffi
from tests.darwin.world import ON_A_MAC

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.darwin.abi import Darwin

VM, CPU_LOAD, WORDS = 4, 2, 38
KERN_SUCCESS = 0
PLENTY = 64


@pytest.fixture
def host(darwin: Darwin) -> Iterator[int]:
    """The port of the host, given back."""
    port = darwin.lib.mach_host_self()
    yield port
    assert darwin.lib.mach_port_deallocate(darwin.lib.mach_task_self_, port) == KERN_SUCCESS


def memory(darwin: Darwin, host: int, words: int = WORDS) -> tuple[int, int, Struct]:
    """The kern_return, the count that came back, and the struct."""
    counts, count = ffi.new("int[]", PLENTY), ffi.new("uint32_t *", words)
    result = darwin.lib.host_statistics64(host, VM, counts, count)
    return result, count[0], ffi.cast("struct vm_statistics64 *", counts)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("kern.memorystatus_level", 4),
        ("kern.memorystatus_vm_pressure_level", 4),
        ("hw.memsize", 8),
        ("kern.maxproc", 4),
        ("kern.maxprocperuid", 4),
        ("vm.swapusage", 32),
        ("kern.boottime", 16),
    ],
)
def test_a_value_has_the_length_that_is_read(name: str, size: int, darwin: Darwin) -> None:
    """A shorter or a longer one would be another ABI."""
    value = darwin.named(name)
    assert value is not None, darwin.errno
    assert len(value) == size


def test_a_level_is_a_percentage_and_a_pressure_one_of_three(darwin: Darwin) -> None:
    """0 to 100; 1, 2 or 4."""
    level, pressure = (
        darwin.named("kern.memorystatus_level"),
        darwin.named("kern.memorystatus_vm_pressure_level"),
    )
    assert level is not None
    assert pressure is not None
    assert 0 <= struct.unpack("i", level)[0] <= 100
    assert struct.unpack("i", pressure)[0] in (1, 2, 4)


def test_a_name_that_is_none_is_enoent(darwin: Darwin) -> None:
    """By name; nothing is written."""
    assert (darwin.named("kern.no_such_name"), darwin.errno) == (None, errno.ENOENT)


def test_a_value_too_long_for_its_room_is_enomem(darwin: Darwin) -> None:
    """Without a buffer its length is told."""
    assert (darwin.named("kern.bootsessionuuid", room=8), darwin.errno) == (None, errno.ENOMEM)
    size = ffi.new("size_t *")
    assert darwin.lib.sysctlbyname(b"kern.bootsessionuuid", ffi.NULL, size, ffi.NULL, 0) == 0
    assert size[0] == 37


def test_memory_is_told_in_kernel_pages(darwin: Darwin, host: int) -> None:
    """38 words; all that is free and active fits into the machine by vm_kernel_page_size."""
    result, count, counts = memory(darwin, host)
    size = darwin.named("hw.memsize")
    assert size is not None
    assert (result, count) == (KERN_SUCCESS, WORDS)
    pages = counts.free_count + counts.active_count + counts.inactive_count + counts.wire_count
    assert 0 < pages * darwin.lib.vm_kernel_page_size <= 1.1 * struct.unpack("Q", size)[0]
    assert counts.speculative_count <= counts.free_count
    assert counts.speculative_count <= counts.external_page_count


def test_an_older_count_gives_an_older_struct(darwin: Darwin, host: int) -> None:
    """24 words: less than 38 is no reading of ours."""
    assert memory(darwin, host, 24)[:2] == (KERN_SUCCESS, 24)
    assert memory(darwin, host, 8)[0] != KERN_SUCCESS


def test_the_memory_is_measured_a_few_times_a_second_only(darwin: Darwin, host: int) -> None:
    """Every call succeeds, also those that were given the old copy: two equal samples are not "no change"."""
    assert {memory(darwin, host)[0] for _ in range(40)} == {KERN_SUCCESS}


def test_processors_are_told_in_ticks_of_an_array_to_give_back(darwin: Darwin, host: int) -> None:
    """Four words each: user, system, idle, and a nice that is 0."""
    cpus, count, ticks = ffi.new("uint32_t *"), ffi.new("uint32_t *"), ffi.new("int **")
    lib: Any = darwin.lib
    assert lib.host_processor_info(host, CPU_LOAD, cpus, ticks, count) == KERN_SUCCESS
    assert cpus[0] >= 1
    assert count[0] == 4 * cpus[0]
    values = ffi.cast("uint32_t *", ticks[0])
    assert sum(values[0 : count[0]]) > 0
    assert all(values[4 * cpu + 3] == 0 for cpu in range(cpus[0]))
    address = int(ffi.cast("uintptr_t", ticks[0]))
    assert lib.vm_deallocate(lib.mach_task_self_, address, 4 * count[0]) == KERN_SUCCESS


def test_a_flavour_that_is_none_is_refused(darwin: Darwin, host: int) -> None:
    """By a kern_return that is not success."""
    cpus, count, ticks = ffi.new("uint32_t *"), ffi.new("uint32_t *"), ffi.new("int **")
    assert darwin.lib.host_processor_info(host, 77, cpus, ticks, count) != KERN_SUCCESS


def test_a_tick_of_the_mach_clock_has_a_length(darwin: Darwin) -> None:
    """Numerator and denominator, and the clock goes on."""
    base: Struct = ffi.new("struct mach_timebase_info *")
    assert darwin.lib.mach_timebase_info(base) == KERN_SUCCESS
    assert base.numer > 0
    assert base.denom > 0
    assert darwin.lib.mach_absolute_time() <= darwin.lib.mach_absolute_time()


@pytest.mark.parametrize("command", [FULL, BARRIER])
def test_a_file_and_a_directory_can_be_synced(command: int, darwin: Darwin, tmp_path: Path) -> None:
    """F_FULLFSYNC and F_BARRIERFSYNC."""
    with (tmp_path / "file").open("wb") as file:
        file.write(b"x")
        file.flush()
        assert darwin.lib.fcntl(file.fileno(), command) == 0
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert darwin.lib.fcntl(folder, command) == 0
    finally:
        os.close(folder)


@pytest.mark.parametrize("command", [FULL, BARRIER])
def test_a_descriptor_that_is_none_cannot(command: int, darwin: Darwin) -> None:
    """EBADF."""
    ffi.errno = 0
    assert darwin.lib.fcntl(-1, command) == -1
    assert darwin.errno == errno.EBADF


def test_a_lock_lives_as_long_as_the_last_of_its_descriptors(tmp_path: Path) -> None:
    """It belongs to the open file: a dup that leaked keeps it."""
    path = tmp_path / "lock"
    first = os.open(path, os.O_RDWR | os.O_CREAT)
    second = os.open(path, os.O_RDWR)
    leaked = os.dup(first)
    fcntl.flock(first, fcntl.LOCK_EX)
    os.close(first)
    with pytest.raises(BlockingIOError):
        fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(leaked)
    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(second)


@pytest.mark.skipif(not ON_A_MAC, reason="capability: Darwin's one list of locks, which the fake has not")
def test_flock_and_fcntl_locks_are_one_list(tmp_path: Path) -> None:
    """They conflict, unlike on Linux: never both on one file (probe P13)."""
    path = tmp_path / "lock"
    first, second = os.open(path, os.O_RDWR | os.O_CREAT), os.open(path, os.O_RDWR)
    fcntl.flock(first, fcntl.LOCK_EX)
    with pytest.raises(OSError, match="unavailable"):
        fcntl.lockf(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(first)
    os.close(second)
