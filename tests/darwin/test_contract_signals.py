"""kill, killpg and the signal by audit token: whom they reach, and what their answers prove."""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.darwin.processes import until
from tests.darwin.world import ON_A_MAC

if TYPE_CHECKING:
    import subprocess

    from tests.darwin.abi import Darwin
    from tests.darwin.processes import Actors


@pytest.fixture(autouse=True)
def _exact(darwin: Darwin) -> None:
    """From macOS 14.2 on."""
    if not hasattr(darwin.lib, "proc_signal_with_audittoken"):
        pytest.skip("capability: proc_signal_with_audittoken (macOS 14.2)")


def version(darwin: Darwin, process: subprocess.Popen[str]) -> int:
    """Its pidversion now."""
    return int(darwin.unique(process.pid, 1).p_idversion)


def test_an_exact_signal_arrives(darwin: Darwin, actors: Actors) -> None:
    """Pid and pidversion are right: 0 as the value, and the process dies of it."""
    process = actors.sleeper()
    until(lambda: darwin.signal_exactly(process.pid, version(darwin, process), signal.SIGTERM) == 0, "sent")
    assert actors.reap(process) == -signal.SIGTERM


def test_a_wrong_version_reaches_nobody(darwin: Darwin, actors: Actors) -> None:
    """ESRCH as the value: the number may be another's by now."""
    process = actors.sleeper()
    assert darwin.signal_exactly(process.pid, version(darwin, process) - 1, signal.SIGKILL) == errno.ESRCH
    assert process.poll() is None


def test_there_is_no_exact_probe(darwin: Darwin, actors: Actors) -> None:
    """Signal 0 is EINVAL, unlike kill's."""
    process = actors.sleeper()
    assert darwin.signal_exactly(process.pid, version(darwin, process), 0) == errno.EINVAL


def test_an_exact_signal_finds_no_zombie(darwin: Darwin, actors: Actors) -> None:
    """ESRCH for the exiting and for zombies, with the right version."""
    process = actors.zombie()
    assert darwin.signal_exactly(process.pid, version(darwin, process), signal.SIGKILL) == errno.ESRCH


def test_an_exact_signal_errs_by_its_value(darwin: Darwin) -> None:
    """Not by -1 with errno."""
    assert darwin.signal_exactly(99999 + 4_000_000, 1, signal.SIGKILL) == errno.ESRCH


def test_killpg_reaches_the_living_beside_zombies(darwin: Darwin, actors: Actors) -> None:
    """Success: one live member was permitted. The zombie that leads pins the group."""
    leader = actors.sleeper()
    member = actors.sleeper(leader.pid)
    actors.end(leader)
    assert darwin.killpg(leader.pid, signal.SIGKILL) == 0
    assert actors.reap(member) == -signal.SIGKILL
    assert darwin.killpg(leader.pid, signal.SIGKILL) == errno.EPERM  # only the zombie is left
    assert darwin.killpg(leader.pid, 0) == errno.EPERM
    actors.reap(leader)
    assert darwin.killpg(leader.pid, signal.SIGKILL) == errno.ESRCH


def test_a_group_without_its_leader_lives_on(darwin: Darwin, actors: Actors) -> None:
    """The number is a group's as long as it has a member."""
    leader = actors.sleeper()
    member = actors.sleeper(leader.pid)
    actors.end(leader)
    actors.reap(leader)
    assert darwin.killpg(leader.pid, 0) == 0
    assert darwin.killpg(leader.pid, signal.SIGKILL) == 0
    assert actors.reap(member) == -signal.SIGKILL


def test_killpg_of_0_is_the_own_group_and_of_1_is_refused(darwin: Darwin) -> None:
    """So a pgid is never passed unchecked."""
    assert darwin.killpg(0, 0) == 0
    assert darwin.killpg(1, 0) == errno.EPERM


def test_a_signal_that_is_none_is_einval(darwin: Darwin, actors: Actors) -> None:
    """By number, by group and by token."""
    process = actors.sleeper()
    assert darwin.kill(process.pid, 4711) == errno.EINVAL
    assert darwin.killpg(process.pid, 4711) == errno.EINVAL
    assert darwin.signal_exactly(process.pid, version(darwin, process), 4711) == errno.EINVAL


def test_kill_of_0_ends_the_own_group(darwin: Darwin, actors: Actors) -> None:
    """An anchor's last act, which needs no identity: everybody in its group, itself included."""
    if ON_A_MAC:
        call = "import os, signal, sys; print(os.getpid(), flush=True); sys.stdin.readline(); os.kill(0, 9)"
        leader = actors.script(call)
    else:
        leader = actors.script(FAKE_ANCHOR.format(library=darwin.path))
    actors.says(leader)
    members = [actors.sleeper(leader.pid) for _ in range(3)]
    assert leader.stdin is not None
    leader.stdin.write("now\n")
    leader.stdin.flush()
    assert [actors.reap(member) for member in members] == [-signal.SIGKILL] * 3
    assert actors.reap(leader) == -signal.SIGKILL


FAKE_ANCHOR = """
import ctypes, os, sys
library = ctypes.CDLL({library!r})
print(os.getpid(), flush=True)
sys.stdin.readline()
library.kill(0, 9)
"""


def test_kill_of_0_of_ones_own_reaches_no_other_group(darwin: Darwin, actors: Actors) -> None:
    """A bystander in a group of its own is told nothing."""
    bystander = actors.sleeper()
    leader = actors.sleeper()
    assert darwin.killpg(leader.pid, signal.SIGKILL) == 0
    actors.reap(leader)
    assert bystander.poll() is None
    assert darwin.getsid(bystander.pid) == os.getsid(0)
