"""Goal 9: how long a grant takes among many who wait, idle and under load, whom it wakes, and what the waiting cost."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.bench import account
from tests.session import stat_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.bench.table import Table

WAITERS = 100
GRANTS = 200
HOLD_S = 0.05
"""Longer than a returning asker needs to ask again: then the lock is free when the next one returns."""
CROWD = 1000
FIRST_CROWD = 100
LARGEST_MIB = 4096
"""If a thousand would take more, a hundred are measured, and the figure is ten times theirs."""
SETTLE_S = 60.0
QUIET_S = 0.1
"""Of processor in three seconds."""
WATCHED_S = 10.0
MIB_PER_KIB = 1 / 1024


class Askers:
    """``tests.bench.askers``, and what they have logged."""

    def __init__(self, count: int, hold_s: float, log: Path) -> None:
        """Starts them; returns when all wait but the one that holds the unit."""
        words = [sys.executable, "-m", "tests.bench.askers", str(count), str(hold_s), str(log)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.log = log
        assert self._process.stdout is not None
        self.pids = [int(word) for word in self._process.stdout.readline().split()]

    def lines(self) -> list[tuple[int, int]]:
        """(granted, release begun or 0), in the order of the log."""
        if not self.log.exists():
            return []
        pairs = (line.split() for line in self.log.read_text().splitlines())
        return [(int(granted), int(begun)) for granted, begun in pairs]

    def latencies_s(self, count: int) -> list[float]:
        """From the start of a release to the next grant read, for so many grants from now on."""
        before = len(self.lines())
        account.until("grants", lambda: len(self.lines()) > before + 2 * count + 2, 0.2)
        fresh = self.lines()[before:]
        grants = sorted({granted for granted, _ in fresh})
        releases = sorted(begun for _, begun in fresh if begun)
        found = []
        for begun in releases[1:]:
            after = [granted for granted in grants if granted > begun]
            if after:
                found.append((after[0] - begun) / 1e9)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ends them."""
        self._process.communicate()


@contextmanager
def processes(*commands: list[str]) -> Iterator[None]:
    """So long as these run."""
    running = [subprocess.Popen(words) for words in commands]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


@contextmanager
def busy_loops(_: Path) -> Iterator[None]:
    """Two for each core."""
    with processes(*[["sh", "-c", "while :; do :; done"]] * (2 * (os.cpu_count() or 1))):
        yield


@contextmanager
def fsync_storm(folder: Path) -> Iterator[None]:
    """Two writers that sync every page, on the registry's own file system."""
    script = "import os, sys\nf = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)\n"
    script += "while True: os.pwrite(f, os.urandom(4096), 0), os.fsync(f)"
    with processes(*[[sys.executable, "-c", script, str(folder / f"storm{n}")] for n in range(2)]):
        yield


@contextmanager
def nothing(_: Path) -> Iterator[None]:
    """An idle machine."""
    yield


def percentile(values: list[float], share: float) -> float:
    """The value below which ``share`` of them are."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def grants(folder: Path, table: Table) -> None:
    """Release to grant among a hundred who wait, in three kinds of weather; and whom a holder's death wakes."""
    account.policy(1, "fifo")
    weathers: list[tuple[str, Callable[[Path], object], float | None, float]] = [
        ("idle", nothing, 1.0, 5.0),
        ("two busy loops a core", busy_loops, None, 20.0),
        ("an fsync storm", fsync_storm, None, 20.0),
    ]
    with Askers(WAITERS + 2, HOLD_S, folder / "grants") as askers:
        account.until("a full queue", account.waiting(WAITERS))
        for name, weather, middle_ms, worst_ms in weathers:
            with weather(folder):  # type: ignore[attr-defined]
                found = [value * 1000 for value in askers.latencies_s(GRANTS)]
            for what, share, target in (("p50", 0.5, middle_ms), ("p99", 0.99, worst_ms)):
                value = percentile(found, share)
                claim = f"9 release to grant, {WAITERS} waiting, {name}, {what} in ms"
                table.row(claim, f"{value:.2f} ms", "", value, target or float("inf"))
    with Askers(WAITERS + 1, 1e6, folder / "deaths") as askers:
        account.until("a full queue", account.waiting(WAITERS))
        woken = woken_by_a_death(askers)
    claim = "9 waiters that run when a holder is killed: the granted, the next first, the next second"
    table.row(claim, str(woken), "", woken, 3)


def woken_by_a_death(askers: Askers) -> int:
    """Of those who wait, how many have run between the death of a holder and a moment after the next grant."""
    holders: list[int] = []

    def one_of_us_holds() -> bool:
        holders[:] = [one["ownerPid"] for one in account.status()["permits"]]
        return len(holders) == 1 and holders[0] in askers.pids

    account.until("a holder", one_of_us_holds)
    holder = holders[0]
    time.sleep(1.0)  # whoever was rung by our look sleeps again
    others = [pid for pid in askers.pids if pid != holder]
    grants_before, before = len(askers.lines()), {pid: switches(pid) for pid in others}
    os.kill(holder, signal.SIGKILL)
    account.until("the next grant", lambda: len(askers.lines()) > grants_before, 0.01)
    select.select([], [], [], 0.3)
    return sum(switches(pid) != count for pid, count in before.items())


def switches(pid: int) -> int:
    """How often the process has gone to sleep."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith("voluntary")))


def crowd(table: Table) -> None:
    """What a thousand ``contain exec`` cost that wait: processor and memory in all."""
    account.policy(1, "fifo")
    with ExitStack() as stack:
        running: list[subprocess.Popen[bytes]] = []

        def join(count: int) -> None:
            words = account.exec_command("sleep", "1000")
            for _ in range(count):
                one = subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                running.append(one)
                stack.callback(end, one)
            account.until("they wait", account.waiting(len(running) - 1), 1.0)
            settle(running)

        join(FIRST_CROWD + 1)
        if memory_mib(running[1:]) * CROWD / FIRST_CROWD <= LARGEST_MIB:
            for _ in range(CROWD // FIRST_CROWD - 1):
                join(FIRST_CROWD)
        waiters = running[1:]
        before_s = processor_s(waiters)
        time.sleep(WATCHED_S)
        used = (processor_s(waiters) - before_s) / WATCHED_S * 100
        mib = memory_mib(waiters)
    times = CROWD / len(waiters)
    peer = "" if times == 1 else f"{len(waiters)} measured"
    table.row(f"9 processor of {CROWD} that wait, in %", f"{used * times:.2f} %", peer, used * times, 1)
    table.row(f"9 memory of {CROWD} that wait, MiB", f"{mib * times:.0f} MiB", peer, mib * times, 200)


def settle(running: list[subprocess.Popen[bytes]]) -> None:
    """Until they sleep, if they ever do: a waiter off a terminal becomes the native program after two seconds."""
    limit_s = time.monotonic() + SETTLE_S
    used_s = processor_s(running)
    while time.monotonic() < limit_s:
        time.sleep(3.0)
        before_s, used_s = used_s, processor_s(running)
        if used_s - before_s < QUIET_S:
            return


def end(process: subprocess.Popen[bytes]) -> None:
    """By its id. SIGTERM first: a wrapper takes its tree along."""
    process.terminate()
    process.wait()


def processor_s(running: list[subprocess.Popen[bytes]]) -> float:
    """Processor seconds of all."""
    fields = [stat_fields(one.pid) for one in running]
    return sum(int(one[11]) + int(one[12]) for one in fields if one) / os.sysconf("SC_CLK_TCK")


def memory_mib(running: list[subprocess.Popen[bytes]]) -> float:
    """Of all, what several share counted once (PSS)."""
    kib = 0
    for one in running:
        rollup = Path(f"/proc/{one.pid}/smaps_rollup").read_text()
        kib += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return kib * MIB_PER_KIB
