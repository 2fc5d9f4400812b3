"""The questions that source could not settle, asked of the system that runs: P1 to P14, as JSON.

`python -m tests.darwin.probes [LIBRARY]` prints one object, a member each; on a Mac without LIBRARY. A probe that fails
says so in its own member and stops no other. These are findings for a person, not tests: the contract suite has those.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from contain.darwin import launchd
from contain.darwin.handle import opened
from contain.darwin.libproc import Libproc
from tests.darwin.abi import (
    ALL_PIDS,
    BARRIER,
    BOTH,
    BSD,
    COALITION,
    FULL,
    GROUP,
    NOTE_EXIT,
    SHORT,
    UNIQUE,
    Darwin,
    ffi,
)
from tests.darwin.events import Kqueue
from tests.darwin.processes import DAEMON, WAIT_S, Actors, until

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 20
FORKING_ROUNDS_ON_A_MAC = 1000

Finding = dict[str, object]

EXECUTES = "import os, sys; sys.stdin.readline(); os.execlp('cat', 'cat')"


def named(number: int) -> str:
    """ESRCH and the like; "0" for none."""
    return errno.errorcode.get(number, str(number))


def p1_zombies(darwin: Darwin, actors: Actors) -> Finding:
    """Are zombies told to argument 1, and hidden from 0?"""
    pid = actors.zombie().pid
    finding: Finding = {}
    for flavour in (BSD, SHORT, UNIQUE, BOTH):
        for arg in (0, 1):
            answer = darwin.pidinfo(pid, flavour, arg)
            finding[f"flavour {flavour} arg {arg}"] = "data" if answer is not None else named(darwin.errno)
    return finding


def p2_parents(darwin: Darwin, actors: Actors) -> Finding:
    """What becomes of p_puniqueid and p_orig_ppidversion after a reparent and an exec?"""
    starter = actors.script(DAEMON)
    parent = darwin.unique(starter.pid)
    daemon = darwin.unique(actors.other(actors.says(starter)))
    return {
        "names its starter": daemon.p_puniqueid == parent.p_uniqueid,
        "names launchd": daemon.p_puniqueid == 1,
        "opidv": daemon.p_orig_ppidversion,
        "starter idversion": parent.p_idversion,
    }


def p3_escape(darwin: Darwin, actors: Actors) -> Finding:
    """How many killpg does a group need that forks all the time?"""
    needed: list[int] = []
    rounds = FORKING_ROUNDS_ON_A_MAC if darwin.path is None else ROUNDS
    for _ in range(rounds):
        leader = actors.script(FORK_FOR_A_WHILE)
        group, calls = actors.says(leader), 0
        while set(darwin.listpids(GROUP, group)) - zombies(darwin, group):
            darwin.killpg(group, signal.SIGKILL)
            calls += 1
        needed.append(calls)
        actors.reap(leader)
    return {"rounds": rounds, "most": max(needed), "calls": needed}


FORK_FOR_A_WHILE = """
import os, signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print(os.getpid(), flush=True)
for depth in range(6):
    os.fork()
signal.pause()
"""


def zombies(darwin: Darwin, group: int) -> set[int]:
    """Those of its members that have ended."""
    ended = set()
    for pid in darwin.listpids(GROUP, group):
        answer = darwin.pidinfo(pid, SHORT, 1)
        if answer is None or answer.pbsi_status == 5:
            ended.add(pid)
    return ended


def p4_coalition(darwin: Darwin, actors: Actors) -> Finding:
    """Does a daemon stay in its coalition?"""
    daemon = actors.other(actors.says(actors.script(DAEMON)))
    own, its = darwin.pidinfo(os.getpid(), COALITION), darwin.pidinfo(daemon, COALITION)
    return {"own": own.coalition_id[0], "daemon's": its.coalition_id[0]}


def p4_launchd(darwin: Darwin, _actors: Actors) -> Finding:
    """Does launchd give a job a coalition of its own, which domain has it, and how many are in there?"""
    launchctl = str(Path(darwin.path).with_name("launchctl")) if darwin.path else launchd.LAUNCHCTL
    own = darwin.pidinfo(os.getpid(), COALITION).coalition_id[0]
    found: Finding = {"own": own}
    libproc = Libproc(opened(darwin.path))
    for domain in launchd.DOMAINS:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            target = launchd.service(domain, f"probe-{os.getpid()}")
            told = Path(folder, "pid")
            script = f"echo $$ > {folder}/part; mv {folder}/part {told}; exec sleep 60"
            plist = launchd.write(folder, target, ["/bin/sh", "-c", script])
            call = launchd.bootstrap(launchctl, target, plist)
            status = call.wait(WAIT_S)
            found[domain] = {"status": status, "said": call.why}
            if status == 0:
                until(told.exists, "it runs")
                its = libproc.coalition(int(told.read_text()))
                began_s = time.monotonic()
                tasks = libproc.tasks(its)
                launchd.bootout(launchctl, target, WAIT_S)
                removed_ms = (time.monotonic() - began_s) * 1000
                found[domain] = {"coalition": its, "tasks": tasks, "removed_ms": round(removed_ms)}
    return found


def p5_exact(darwin: Darwin, actors: Actors) -> Finding:
    """Is a signal by audit token allowed, and void after an exec?"""
    if not hasattr(darwin.lib, "proc_signal_with_audittoken"):
        return {"symbol": False}
    process = actors.script(EXECUTES)
    old = darwin.unique(process.pid).p_idversion
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    until(lambda: darwin.unique(process.pid).p_idversion != old, "it executes")
    new = darwin.unique(process.pid).p_idversion
    return {
        "symbol": True,
        "token of before the exec": named(darwin.signal_exactly(process.pid, old, signal.SIGTERM)),
        "token of now": named(darwin.signal_exactly(process.pid, new, signal.SIGTERM)),
    }


def p6_killpg(darwin: Darwin, actors: Actors) -> Finding:
    """The errno of killpg in each state of a group."""
    leader = actors.sleeper()
    finding: Finding = {"live": named(darwin.killpg(leader.pid, 0)), "pgid 1": named(darwin.killpg(1, 0))}
    actors.end(leader)
    finding["zombie"] = named(darwin.killpg(leader.pid, 0))
    actors.reap(leader)
    finding["reaped"] = named(darwin.killpg(leader.pid, 0))
    return finding


def p7_attach(darwin: Darwin, actors: Actors) -> Finding:
    """What does attaching to a zombie say?"""
    with Kqueue(darwin) as queue:
        return {
            "zombie": named(queue.attach(actors.zombie().pid, NOTE_EXIT)),
            "events": len(queue.wait(0.05)),
        }


def p8_gap(darwin: Darwin, actors: Actors) -> Finding:
    """How long after NOTE_EXIT is a child waitable?"""
    gaps_us: list[int] = []
    for _ in range(ROUNDS):
        process = actors.sleeper()
        with Kqueue(darwin) as queue:
            queue.attach(process.pid, NOTE_EXIT)
            process.kill()
            queue.wait()
        told_ns = time.monotonic_ns()
        while process.poll() is None:
            pass
        gaps_us.append((time.monotonic_ns() - told_ns) // 1000)
    return {"gaps_us": gaps_us}


def p9_sessions(darwin: Darwin, actors: Actors) -> Finding:
    """Is the session of another user's process told, such as that of pid 1?"""
    actors.sleeper()
    return {"uid": os.getuid(), "session of pid 1": darwin.getsid(1), "errno": named(darwin.errno)}


def p10_holders(darwin: Darwin, actors: Actors) -> Finding:
    """How long does it take to find who holds a file?"""
    with tempfile.NamedTemporaryFile() as file:
        room = ffi.new("int[]", 4096)
        begun_ns = time.monotonic_ns()
        got = darwin.lib.proc_listpidspath(ALL_PIDS, 0, os.fsencode(file.name), 0, room, 4096 * 4)
        taken_us = (time.monotonic_ns() - begun_ns) // 1000
        found = os.getpid() in list(room[0 : max(got, 0) // 4])
    return {
        "us": taken_us,
        "finds us": found,
        "of": len(darwin.listpids(ALL_PIDS)),
        "child": actors.sleeper().pid > 0,
    }


def p11_memory(darwin: Darwin, _actors: Actors) -> Finding:
    """Raw counters beside the system's own tool, where it has one."""
    counts, count = ffi.new("int[]", 64), ffi.new("uint32_t *", 38)
    result = darwin.lib.host_statistics64(darwin.lib.mach_host_self(), 4, counts, count)
    vm = ffi.cast("struct vm_statistics64 *", counts)
    tool = shutil.which("vm_stat")
    said = subprocess.run([tool], capture_output=True, text=True, check=False).stdout if tool else None
    names = (
        "free_count",
        "active_count",
        "inactive_count",
        "wire_count",
        "speculative_count",
        "external_page_count",
    )
    finding: Finding = {name: int(getattr(vm, name)) for name in names}
    level = darwin.named("kern.memorystatus_level") or b""
    return {
        **finding,
        "kern_return": result,
        "count": count[0],
        "page_bytes": darwin.lib.vm_kernel_page_size,
        "level_percent": int.from_bytes(level, "little"),
        "vm_stat": said,
    }


def p12_syncs(darwin: Darwin, _actors: Actors) -> Finding:
    """What do fsync, the barrier and the full sync cost, in microseconds?"""
    finding: Finding = {}
    with tempfile.NamedTemporaryFile() as file:
        for name, command in (("fsync", 0), ("barrier", BARRIER), ("full", FULL)):
            costs_us: list[int] = []
            for _ in range(ROUNDS):
                file.write(b"x" * 600)
                file.flush()
                begun_ns = time.monotonic_ns()
                if command:
                    darwin.lib.fcntl(file.fileno(), command)
                else:
                    os.fsync(file.fileno())
                costs_us.append((time.monotonic_ns() - begun_ns) // 1000)
            finding[name] = sorted(costs_us)[ROUNDS // 2]
    return finding


def p13_locks(_darwin: Darwin, _actors: Actors) -> Finding:
    """Do flock and fcntl locks conflict?"""
    import fcntl  # noqa: PLC0415 - only here

    with tempfile.NamedTemporaryFile() as file, Path(file.name).open("r+") as again:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
        try:
            fcntl.lockf(again.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return {"conflict": True, "errno": named(error.errno or 0)}
        return {"conflict": False}


def p14_boot(darwin: Darwin, _actors: Actors) -> Finding:
    """The boot session; whether it stays over a sleep, a runner cannot tell."""
    session = darwin.named("kern.bootsessionuuid") or b""
    boot = darwin.named("kern.boottime") or b""
    return {
        "bootsessionuuid": session.rstrip(b"\0").decode(),
        "boottime_s": int.from_bytes(boot[:8], "little"),
    }


PROBES: tuple[Callable[[Darwin, Actors], Finding], ...] = (
    p1_zombies,
    p2_parents,
    p3_escape,
    p4_coalition,
    p4_launchd,
    p5_exact,
    p6_killpg,
    p7_attach,
    p8_gap,
    p9_sessions,
    p10_holders,
    p11_memory,
    p12_syncs,
    p13_locks,
    p14_boot,
)


def findings(library: str | None) -> dict[str, Finding]:
    """What every probe found, and on which system."""
    darwin = Darwin(library)
    found: dict[str, Finding] = {
        "system": {"release": platform.release(), "mac": platform.mac_ver()[0], "machine": platform.machine()}
    }
    for probe in PROBES:
        try:
            with Actors(darwin) as actors:
                found[probe.__name__] = probe(darwin, actors)
        except Exception as error:  # noqa: BLE001 - it is the finding
            found[probe.__name__] = {"failed": repr(error)}
    return found


if __name__ == "__main__":
    json.dump(findings(sys.argv[1] if len(sys.argv) > 1 else None), sys.stdout, indent=1)
    print()  # noqa: T201 - it is a program
