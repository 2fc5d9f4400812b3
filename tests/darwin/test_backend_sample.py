"""The machine's load through Mach and sysctl, as the arbiter gets it."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from contain.darwin import sample
from contain.darwin.handle import opened
from contain.darwin.mach import Mach
from contain.machine import Machine, Unknown

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.world import World

MIB = 2**20


@pytest.fixture
def mach(xnu: World) -> Mach:
    """The questions, asked of a world with nothing wrong."""
    return Mach(opened(xnu.library))


@pytest.fixture
def machine(mach: Mach) -> Machine:
    """This machine."""
    return sample.judge(mach)


def test_everything_is_read(mach: Mach, machine: Machine, tmp_path: Path) -> None:
    """Each sensor is a number."""
    assert (machine.cores, machine.memory_mib > 0) == (os.cpu_count(), True)
    found = sample.Sampler(mach, machine).sample({"work": str(tmp_path)})
    for name in machine.sensors:
        assert isinstance(getattr(found, name), float), name
    assert 0 < float(str(found.available_mib)) <= machine.memory_mib
    assert [name for name, _ in found.disks] == ["work"]


def test_busy_counts_from_what_another_process_has_read(mach: Mach, machine: Machine) -> None:
    """Ticks of 32 bits that have gone round are a difference all the same."""
    first = sample.Sampler(mach, machine)
    at_s = first.sample().at_s
    second = sample.Sampler(mach, machine)
    ticks = mach.core_ticks()
    second.resume([at_s - 10.0, [(one - 500) % sample.TICKS_ROUND for one in ticks]])
    found = second.sample()
    assert found.interval_s >= 10.0
    assert float(str(found.busy)) >= min(machine.cores, len(ticks) * 500 / 100 / 10.5) * 0.9
    assert isinstance(second.counters(), list)


def test_the_level_is_an_upper_bound_only(xnu: World, mach: Mach, machine: Machine) -> None:
    """It calls anonymous pages available; what is free or cached bounds it, and it bounds that."""
    xnu.control("sysctl name=kern.memorystatus_level value=1")
    low = sample.Sampler(mach, machine).sample().available_mib
    assert low == pytest.approx(machine.memory_mib / 100)
    free, external, speculative = mach.memory_pages()
    xnu.control("sysctl name=kern.memorystatus_level value=100")
    high = sample.Sampler(mach, machine).sample().available_mib
    cached_mib = (free + external - speculative) * mach.page_bytes() / MIB
    assert high == pytest.approx(min(machine.memory_mib, cached_mib), rel=0.2)


@pytest.mark.parametrize(
    ("fault", "field"),
    [
        ("fail call=host_statistics64 errno=5", "available_mib"),
        ("fail call=host_processor_info errno=5", "busy"),
        (f"fail call=sysctlbyname errno={errno.ENOENT}", "swap_used_mib"),
    ],
)
def test_what_fails_is_unknown(xnu: World, mach: Mach, machine: Machine, fault: str, field: str) -> None:
    """And no old value stands in for it."""
    xnu.control(fault)
    assert isinstance(getattr(sample.Sampler(mach, machine).sample(), field), Unknown)


def test_another_page_size_is_the_kernels(xnu: World, machine: Machine) -> None:
    """16 KiB on Apple silicon, 4 KiB on Intel: never this process's own."""
    assert machine.cores > 0
    xnu.control("page-size bytes=4096")
    assert Mach(opened(xnu.old_library)).page_bytes() == 4096
