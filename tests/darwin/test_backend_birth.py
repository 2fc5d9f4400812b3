"""Births and the one observation, in every state that XNU knows a process in (docs/DARWIN.md)."""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

import pytest

from contain.backend import Birth, Observation
from contain.darwin import birth, layout
from contain.darwin.handle import opened
from contain.darwin.libproc import LayoutChanged, Libproc
from tests.darwin.living import end, is_zombie, sleeper, until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.darwin.world import World


@pytest.fixture
def libproc(xnu: World) -> Libproc:
    """The questions, asked of a world with nothing wrong."""
    return Libproc(opened(xnu.library))


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A living child."""
    process = sleeper()
    yield process
    end(process)


def state(libproc: Libproc, born: Birth) -> str:
    """The word of one look."""
    return birth.sight(libproc, born).state


def test_the_layout_is_the_golden_table(libproc: Libproc) -> None:
    """Sizes and offsets of XNU's headers, by this machine's own ABI."""
    ffi = libproc.handle.ffi
    assert {name: ffi.sizeof(name) for name in layout.SIZES} == layout.SIZES
    found = {
        kind: {field: ffi.offsetof(kind, field) for field in fields}
        for kind, fields in layout.OFFSETS.items()
    }
    assert found == layout.OFFSETS


def test_a_birth_is_told_alike_twice_and_differs_by_process(
    libproc: Libproc, child: subprocess.Popen[bytes]
) -> None:
    """Boot, number and unique id."""
    mine = birth.mine(libproc)
    other = birth.take(libproc, child.pid)
    assert mine == birth.mine(libproc)
    assert (mine.pid, other.pid) == (os.getpid(), child.pid)
    assert (other.unique_id or 0) > (mine.unique_id or 0)


def test_live(libproc: Libproc, child: subprocess.Popen[bytes]) -> None:
    """The ordinary case; an exec changes nothing of it."""
    assert state(libproc, birth.take(libproc, child.pid)) == birth.LIVE


@pytest.mark.parametrize("seen_by", ["proc_pidinfo", "KERN_PROC_PID"])
def test_a_zombie_is_seen_by_either_way(
    xnu: World, libproc: Libproc, child: subprocess.Popen[bytes], seen_by: str
) -> None:
    """Should proc_pidinfo hide the dead after all (P1), the kernel's entry still tells."""
    born = birth.take(libproc, child.pid)
    child.kill()
    until(lambda: is_zombie(child.pid), "a zombie")
    if seen_by == "KERN_PROC_PID":
        xnu.control(f"fail call=pidinfo errno={errno.ESRCH}")
    assert state(libproc, born) == birth.ZOMBIE
    xnu.control("clear")
    child.wait()
    assert state(libproc, born) == birth.GONE


def test_one_that_cannot_get_out_is_exiting_and_never_gone(
    xnu: World, libproc: Libproc, child: subprocess.Popen[bytes]
) -> None:
    """``UE``: killed, and kept in the kernel. An observation of it is live, as it may hold a port."""
    born = birth.take(libproc, child.pid)
    xnu.control(f"hold-exit pid={child.pid} ms=-1")
    child.kill()
    until(lambda: state(libproc, born) == birth.EXITING, "exiting")
    assert birth.observation(birth.sight(libproc, born)).state == "live"
    xnu.control(f"release-exit pid={child.pid}")
    until(lambda: state(libproc, born) == birth.ZOMBIE, "a zombie")


def test_a_number_that_was_given_again_is_gone(
    xnu: World, libproc: Libproc, child: subprocess.Popen[bytes]
) -> None:
    """Another unique id has it."""
    born = birth.take(libproc, child.pid)
    xnu.control(f"reuse pid={child.pid}")
    assert birth.sight(libproc, born).why == birth.ANOTHER
    assert state(libproc, born) == birth.GONE
    assert state(libproc, birth.take(libproc, child.pid)) == birth.LIVE


def test_another_boot_is_gone(xnu: World, libproc: Libproc) -> None:
    """Whatever has the number now."""
    born = birth.mine(libproc)
    xnu.control("reboot")
    assert state(libproc, born) == birth.GONE


@pytest.mark.parametrize(
    "fault",
    [
        "deny flavour=17",
        "deny flavour=13",
        "deny all",
        "short flavour=17 bytes=40",
        "short flavour=13 bytes=60",
        f"fail call=pidinfo errno={errno.ENOMEM}",
        f"fail call=sysctlbyname errno={errno.EIO}",
    ],
)
def test_what_cannot_be_seen_is_unknown(
    xnu: World, libproc: Libproc, child: subprocess.Popen[bytes], fault: str
) -> None:
    """A sandbox, a kernel of another layout, no memory: none of it is an end."""
    born = birth.take(libproc, child.pid)
    xnu.control(fault)
    seen = birth.sight(libproc, born)
    assert seen.state == birth.UNKNOWN
    assert birth.observation(seen) == Observation(state="unknown", why=seen.why)


def test_the_same_unique_id_with_another_start_is_unknown(libproc: Libproc) -> None:
    """Two witnesses that disagree prove nothing."""
    mine = birth.mine(libproc)
    assert state(libproc, mine.replace(start_ticks=mine.start_ticks + 1)) == birth.UNKNOWN


def test_a_step_of_the_clock_changes_no_birth(xnu: World, libproc: Libproc) -> None:
    """The start was taken once; the boot's name is no time."""
    mine = birth.mine(libproc)
    xnu.control("step seconds=-3600")
    assert (birth.mine(libproc), state(libproc, mine)) == (mine, birth.LIVE)


def test_a_birth_of_another_system_is_unknown(libproc: Libproc) -> None:
    """A Linux birth has no unique id."""
    assert state(libproc, birth.mine(libproc).replace(unique_id=None)) == birth.UNKNOWN


def test_a_list_that_failed_is_no_empty_list(xnu: World, libproc: Libproc) -> None:
    """0 with an errno."""
    xnu.control(f"fail call=listpids errno={errno.EPERM}")
    with pytest.raises(PermissionError):
        libproc.listed(layout.ALL_PIDS)


def test_a_short_answer_is_not_read(xnu: World, libproc: Libproc) -> None:
    """It says how short."""
    xnu.control("short flavour=17 bytes=40")
    with pytest.raises(LayoutChanged, match="gave 40 bytes, not 56"):
        libproc.identity(os.getpid())


def test_a_group_is_listed_with_its_zombies(libproc: Libproc) -> None:
    """A census may rely on it."""
    leader = os.posix_spawn("/bin/sleep", ["sleep", "600"], {}, setpgroup=0)
    assert libproc.listed(layout.PGRP_ONLY, leader) == [leader]
    os.kill(leader, signal.SIGKILL)
    until(lambda: is_zombie(leader), "a zombie")
    assert libproc.listed(layout.PGRP_ONLY, leader) == [leader]
    os.waitpid(leader, 0)
    assert libproc.listed(layout.PGRP_ONLY, leader) == []
