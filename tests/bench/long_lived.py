"""Thousands of jobs from one process: the Python API and ``contain serve`` against peers that start anew each time."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.contestants import BWRAP, CONTAIN, UNSHARE, crun, private, spawn_and_wait
from tests.bench.programs import compile_command
from tests.bench.table import Table, medians, ms, ratio
from tests.session import TOKEN, descendants, new_id, stat_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRUE = "/bin/true"
IDLE = 1000
NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
BURST_S = 0.4
PEERS = ["bwrap", "unshare", "crun"]


class Worker:
    """One ``tests.bench.worker``."""

    def __init__(self, receipts: Path, ballast_mb: int = 0, before: tuple[str, ...] = ()) -> None:
        """Starts it."""
        words = [*before, sys.executable, "-m", "tests.bench.worker", str(receipts), str(ballast_mb)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, what: str, *args: object) -> float:
        """One request; its answer in seconds."""
        self.send(what, *args)
        return self.answer()

    def send(self, what: str, *args: object) -> None:
        """The request alone."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([what, *args]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> float:
        """The answer alone."""
        assert self.process.stdout is not None
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """Ends it, and its jobs."""
        self.process.communicate()


class Served:
    """One ``contain serve``; a job of it has the whole protocol: prepared, running, released."""

    def __init__(self, receipts: Path) -> None:
        """Starts it."""
        self.process = subprocess.Popen(
            [*CONTAIN, "serve", str(receipts)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def whole(self, command: str) -> float:
        """Seconds from the request to ``released``."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        head = {"id": new_id(), "token": TOKEN}
        request = json.dumps({**head, "permitId": head["id"], "command": command, "args": []})
        go = json.dumps({**head, "action": "go"})
        begun = time.perf_counter()
        for message, event in ((request, b'"prepared"'), (go, b'"released"')):
            self.process.stdin.write(message.encode() + b"\n")
            self.process.stdin.flush()
            while event not in self.process.stdout.readline():
                pass
        return time.perf_counter() - begun

    def close(self) -> None:
        """Ends it."""
        self.process.communicate()


@contextmanager
def in_memory() -> Iterator[Path]:
    """A place for receipts whose syncs cost nothing: what is left is what we cost."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield private(Path(name) / "receipts")


def whole_jobs(rounds: int, folder: Path, table: Table) -> None:
    """Goals 1, 2, 3 and 8."""
    stamp = compile_command("stamp", private(folder / "programs"))
    oci = crun(folder, TRUE)
    with ExitStack() as stack:
        shm = stack.enter_context(in_memory())
        durable, fast = Worker(private(folder / "api")), Worker(shm)
        served = Served(private(folder / "served"))
        for one in (durable, fast, served):
            stack.callback(one.close)
        contestants: dict[str, Callable[[], float]] = {
            "durable": lambda: durable.ask("whole", TRUE),
            "fast": lambda: fast.ask("whole", TRUE),
            "served": lambda: served.whole(TRUE),
            "bare": lambda: fast.ask("bare", TRUE),
            "bwrap": lambda: spawn_and_wait(*BWRAP, TRUE),
            "unshare": lambda: spawn_and_wait(*UNSHARE, TRUE),
            "first durable": lambda: durable.ask("first", stamp),
            "first fast": lambda: fast.ask("first", stamp),
            "bwrap stamp": lambda: spawn_and_wait(*BWRAP, stamp),
            "two replaces": lambda: durable.ask("replaces", 2),
        }
        if oci is not None:
            contestants["crun"] = lambda: spawn_and_wait(*oci)
        found = dict(zip(contestants, medians(list(contestants.values()), rounds, 5), strict=True))
    rows(found, table)


def rows(found: dict[str, list[float]], table: Table) -> None:
    """The table's lines of ``whole_jobs``."""
    peers: dict[str, str] = {name: f"{name} {ms(found[name])}" for name in PEERS if name in found}

    def row(claim: str, ours: str, peer: str, target: float, said: str = "") -> None:
        table.row(claim, ms(found[ours]), said or peers[peer], ratio(found[ours], found[peer]), target)

    row("1 whole job of true, long-lived, both receipts durable", "durable", "bwrap", 0.70)
    if "crun" in found:
        row("1   the same", "durable", "crun", 0.50)
    row("1   the same", "durable", "unshare", float("inf"))
    row("1 whole job by contain serve: prepared, running, released", "served", "bwrap", 0.95)
    row("1 whole job, receipts in memory", "fast", "bwrap", 0.30)
    row("1   the same", "fast", "bare", 1.15, f"subprocess {ms(found['bare'])}")
    stamp = f"bwrap {ms(found['bwrap stamp'])}"
    row("2 call to first instruction, receipts in memory", "first fast", "bwrap stamp", 0.12, stamp)
    row("2 call to first instruction, launch receipt durable", "first durable", "bwrap stamp", 0.30, stamp)
    price = [a - b for a, b in zip(found["durable"], found["fast"], strict=True)]
    table.row(
        "3 price of two durable receipts",
        ms(price),
        f"bare replaces {ms(found['two replaces'])}",
        statistics.median(price) / statistics.median(found["two replaces"]),
        1.4,
    )


def weights(rounds: int, folder: Path, table: Table) -> None:
    """Goals 4 and 8: what a heavy wrapper, a crowd and a plain user cost."""
    programs = folder / "weights"
    programs.mkdir()
    pause = compile_command("pause", programs)
    stamp = compile_command("stamp", programs)
    with ExitStack() as stack:
        light = Worker(private(folder / "light"))
        heavy = Worker(private(folder / "heavy"), 500)
        crowded = Worker(private(folder / "crowded"))
        workers = [light, heavy, crowded]
        theirs = private(folder / "nobody")
        if os.geteuid() == 0 and shutil.which("setpriv") is not None:
            os.chown(theirs, 65534, 65534)
            workers.append(Worker(theirs, 0, NOBODY))
        for one in workers:
            stack.callback(one.close)
        crowded.ask("idle", pause, IDLE)
        contestants = [lambda one=one: one.ask("whole", stamp) for one in workers]
        found = medians(contestants, rounds, 5)
        before_s = _cpu_s(crowded.process.pid)
        time.sleep(5.0)
        used = (_cpu_s(crowded.process.pid) - before_s) / 5.0
    alone = f"alone {ms(found[0])}"
    table.row("4 a wrapper of 500 MB", ms(found[1]), f"20 MB {ms(found[0])}", ratio(found[1], found[0]), 1.2)
    table.row(f"4 one more job beside {IDLE} idle ones", ms(found[2]), alone, ratio(found[2], found[0]), 1.6)
    table.row(f"4 processor of {IDLE} idle jobs, in %", f"{used * 100:.2f} %", "", used * 100, 0.1)
    if len(found) > 3:
        table.row(
            "8 a plain user's job", ms(found[3]), f"root {ms(found[0])}", ratio(found[3], found[0]), 1.2
        )


def _cpu_s(pid: int) -> float:
    """Processor time of a process and everything below it that lives."""
    ticks = 0
    for one in [pid, *descendants(pid)]:
        fields = stat_fields(one)
        if fields is not None:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def rates(rounds: int, folder: Path, table: Table) -> None:
    """Goal 5: jobs per second of two workers at once."""
    with ExitStack() as stack:
        shm = stack.enter_context(in_memory())
        fast = [Worker(shm), Worker(shm)]
        durable = [Worker(private(folder / f"rate{n}")) for n in range(2)]
        for one in (*fast, *durable):
            stack.callback(one.close)

        def both(pair: list[Worker]) -> float:
            for one in pair:
                one.send("burst", TRUE, BURST_S)
            return statistics.mean(one.answer() for one in pair) / 2

        contestants = [lambda: both(fast), lambda: both(durable), two_bwraps]
        found = medians(contestants, rounds, 1)
    for name, ours, target in (("receipts in memory", found[0], 4.0), ("receipts durable", found[1], 1.6)):
        table.row(
            f"5 jobs per second, two workers, {name}: bwrap's rate to ours",
            f"{1 / statistics.median(ours):.0f}/s",
            f"bwrap {1 / statistics.median(found[2]):.0f}/s",
            ratio(ours, found[2]),
            1 / target,
        )


def two_bwraps() -> float:
    """Seconds per job of two processes that run one bwrap after the other."""
    script = f"{' '.join(BWRAP)} {TRUE}"
    loop = f"import subprocess, time; e = time.time() + {BURST_S}; n = 0\n"
    loop += f"while time.time() < e: subprocess.run({script.split()!r}); n += 1\nprint(n)"
    both = [subprocess.Popen([sys.executable, "-c", loop], stdout=subprocess.PIPE) for _ in range(2)]
    counts = [int(one.communicate()[0]) for one in both]
    return BURST_S / max(1, sum(counts))
