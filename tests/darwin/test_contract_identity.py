"""What is fixed at birth and what is not: unique ids, pidversions, lineage, start times, the boot session."""

from __future__ import annotations

import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.darwin.abi import BOTH, BSD, SHORT, UNIQUE, ffi
from tests.darwin.processes import until
from tests.darwin.world import ON_A_MAC

if TYPE_CHECKING:
    import subprocess

    from tests.darwin.abi import Darwin, Struct
    from tests.darwin.processes import Actors

EXECUTES = """
import os, sys
sys.stdin.readline()
os.execlp("cat", "cat")
"""


@pytest.fixture(autouse=True)
def _seen_as_it_happens(request: pytest.FixtureRequest) -> None:
    """Execs and parents are facts of the moment."""
    if not ON_A_MAC:
        request.getfixturevalue("lineage")


def executed(darwin: Darwin, process: subprocess.Popen[str]) -> None:
    """Tells an actor of EXECUTES to do so, and returns when it has: the version is the last thing that changes."""
    before = darwin.unique(process.pid).p_idversion
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    until(lambda: darwin.unique(process.pid).p_idversion != before, "cat is executed")
    assert ffi.string(darwin.pidinfo(process.pid, SHORT).pbsi_comm) == b"cat"


def test_later_births_have_higher_unique_ids(darwin: Darwin, actors: Actors) -> None:
    """It counts forks: never the same twice, always upwards."""
    ids = [darwin.unique(actors.sleeper().pid).p_uniqueid for _ in range(5)]
    assert ids == sorted(set(ids))


def test_a_parent_is_named_by_its_unique_id(darwin: Darwin, actors: Actors) -> None:
    """Not by its pid, which could be another's by now."""
    parent = actors.parent()
    child = actors.other(actors.says(parent, "spawn"))
    assert darwin.unique(child).p_puniqueid == darwin.unique(parent.pid).p_uniqueid


def test_an_exec_keeps_the_birth_and_changes_the_version(darwin: Darwin, actors: Actors) -> None:
    """Pid, unique id and start stay; the pidversion does not, so an audit token of before is void."""
    process = actors.script(EXECUTES)
    before, start = darwin.unique(process.pid), start_of(darwin, process.pid)
    executed(darwin, process)
    after = darwin.unique(process.pid)
    assert after.p_uniqueid == before.p_uniqueid
    assert after.p_idversion != before.p_idversion
    assert start_of(darwin, process.pid) == start


def start_of(darwin: Darwin, pid: int) -> tuple[int, int]:
    """Seconds and microseconds of the wall clock at its fork."""
    info: Struct = darwin.pidinfo(pid, BSD, 1)
    return (info.pbi_start_tvsec, info.pbi_start_tvusec)


def test_a_start_is_a_wall_time_and_stays(darwin: Darwin, actors: Actors) -> None:
    """Taken once at the fork, told alike of the live one and of its zombie."""
    before_s = time.time() - 1
    process = actors.sleeper()
    start = start_of(darwin, process.pid)
    assert before_s <= start[0] + start[1] / 1e6 <= time.time() + 1
    actors.end(process)
    assert start_of(darwin, process.pid) == start


def test_one_read_tells_birth_and_state(darwin: Darwin, actors: Actors) -> None:
    """Flavour 18 is flavours 3 and 17 of the same instant."""
    pid = actors.sleeper().pid
    both = darwin.pidinfo(pid, BOTH)
    assert both.pbsd.pbi_pid == pid
    assert both.p_uniqidentifier.p_uniqueid == darwin.pidinfo(pid, UNIQUE).p_uniqueid


def test_a_stayed_orphan_names_its_parent_until_it_executes(darwin: Darwin, actors: Actors) -> None:
    """From macOS 13 on an exec after the parent's death sets p_puniqueid to launchd's (probe P2)."""
    orphan = actors.script(ORPHAN)
    child = actors.other(actors.says(orphan))
    parent = darwin.unique(orphan.pid)
    born = darwin.unique(child)
    assert born.p_puniqueid == parent.p_uniqueid
    actors.end(orphan)
    until(lambda: darwin.pidinfo(child, SHORT).pbsi_ppid == 1, "it is an orphan")
    assert darwin.unique(child).p_puniqueid == parent.p_uniqueid
    darwin.kill(child, signal.SIGUSR1)
    until(lambda: darwin.unique(child).p_idversion != born.p_idversion, "it executes")
    after = darwin.unique(child)
    assert after.p_puniqueid == darwin.unique(1).p_uniqueid
    if after.p_orig_ppidversion:
        assert after.p_orig_ppidversion == parent.p_idversion  # macOS 15.4: kept over both
    assert after.p_uniqueid == born.p_uniqueid


ORPHAN = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
pid = os.fork()
if pid == 0:
    signal.sigwait([signal.SIGUSR1])
    os.execlp("sleep", "sleep", "600")
print(pid, flush=True)
sys.stdin.read()
"""
"""A process whose child executes sleep at SIGUSR1, and not before."""


def test_a_boot_session_has_a_uuid_that_stays(darwin: Darwin) -> None:
    """37 bytes with the NUL, the same at every reading."""
    first = darwin.named("kern.bootsessionuuid")
    assert first is not None
    assert re.fullmatch(rb"[0-9A-F]{8}(-[0-9A-F]{4}){3}-[0-9A-F]{12}\0", first), first
    assert darwin.named("kern.bootsessionuuid") == first


def test_a_start_is_told_by_a_clock_that_no_step_moves_as_well(darwin: Darwin, actors: Actors) -> None:
    """rusage_info_v4 in Mach ticks: kept from the live process to its zombie, which has an exit time."""
    process = actors.sleeper()
    usage: Struct = ffi.new("struct rusage_info_v4 *")
    assert darwin.lib.proc_pid_rusage(process.pid, 4, usage) == 0
    start = usage.ri_proc_start_abstime
    assert 0 < start <= darwin.lib.mach_absolute_time()
    assert usage.ri_proc_exit_abstime == 0
    actors.end(process)
    assert darwin.lib.proc_pid_rusage(process.pid, 4, usage) == 0
    assert usage.ri_proc_start_abstime == start
    assert start < usage.ri_proc_exit_abstime <= darwin.lib.mach_absolute_time()
