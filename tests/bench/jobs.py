"""Whole commands under a budget, beside the queues that people use: flock, nq, task-spooler and GNU sem."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import account
from tests.bench.contestants import BARE, CONTAIN, spawn_and_wait
from tests.bench.table import medians, ms, ratio

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.table import Table

TRUE = "/bin/true"
JOBS = 10
JOB_S = 2.0
AT_ONCE = 2
HANDED = 12
HANDED_S = 0.05


def spooler() -> str | None:
    """Task-spooler's name on this system."""
    return next((name for name in ("tsp", "ts") if shutil.which(name) == f"/usr/bin/{name}"), None)


def serial_queues(folder: Path) -> dict[str, list[str]]:
    """Words before a command that let one run at a time, and return when it has ended; absent tools are left out."""
    found = {"contain": account.exec_command(), "flock": ["flock", str(folder / "flock")]}
    if shutil.which("sem"):
        found["sem"] = ["sem", "--fg", "-j1", "--id", f"bench{os.getpid()}"]
    if (tsp := spooler()) is not None:
        found["tsp"] = [tsp, "-f"]
    if shutil.which("nq"):
        found["nq"] = ["sh", "-c", 'nq -q "$@" && nq -q -w', "sh"]
    return found


def absent(folder: Path) -> list[str]:
    """Of the peers, those that are not here."""
    return [name for name in ("flock", "nq", "tsp", "sem") if name not in serial_queues(folder)]


def environment(folder: Path) -> None:
    """Queues of our own, of all tools."""
    os.environ["NQDIR"] = str(folder / "nq")
    os.environ["TS_SOCKET"] = str(folder / "ts.socket")
    os.environ["PARALLEL_HOME"] = str(folder / "parallel")
    (folder / "nq").mkdir()
    (folder / "parallel").mkdir()
    (folder / "parallel" / "will-cite").touch()


def close(folder: Path) -> None:
    """Task-spooler leaves a server behind."""
    if (tsp := spooler()) is not None and (folder / "ts.socket").exists():
        subprocess.run([tsp, "-K"], check=False)


def launches(rounds: int, folder: Path, table: Table) -> None:
    """Goal 7 with a permit: a whole ``contain exec`` where a unit is free, beside none and beside the peers."""
    account.policy(AT_ONCE)
    queues = serial_queues(folder)
    contestants: dict[str, Callable[[], float]] = {
        "bare": lambda: spawn_and_wait(*BARE),
        "without": lambda: spawn_and_wait(*CONTAIN, "exec", "--no-budget", "--", TRUE),
    }
    for name, words in queues.items():
        contestants[name] = lambda words=words: spawn_and_wait(*words, TRUE)  # type: ignore[misc]
    found = dict(zip(contestants, medians(list(contestants.values()), rounds), strict=True))
    ours, bare = found["contain"], f"python {ms(found['bare'])}"
    table.row("7 whole contain exec of true, a permit free", ms(ours), bare, ratio(ours, found["bare"]), 5)
    without = found["without"]
    table.row("7 the same with --no-budget", ms(without), bare, ratio(without, found["bare"]), 4)
    for name in queues:
        if name != "contain":
            table.row(
                "7 the same as the first",
                ms(ours),
                f"{name} {ms(found[name])}",
                ratio(ours, found[name]),
                float("inf"),
            )


def handovers(folder: Path, table: Table) -> None:
    """From the end of one command to the start of the next, where many wait for one place."""
    account.policy(1, "fifo")
    if (tsp := spooler()) is not None:
        # Its server is there before a dozen clients want to start it.
        subprocess.run([tsp, "-S", "1"], check=True)
    gaps = {name: gap_s(words, folder / f"handed-{name}") for name, words in serial_queues(folder).items()}
    for name, gap in gaps.items():
        if name != "contain":
            claim = f"end of a command to the start of the next, {HANDED} in line"
            peer = f"{name} {gap * 1000:.1f} ms"
            table.row(claim, f"{gaps['contain'] * 1000:.1f} ms", peer, gaps["contain"] / gap, float("inf"))


def gap_s(words: list[str], log: Path) -> float:
    """The median of the gaps. Each command logs when it began and when it ended."""
    all_at_once([[*words, *logged(log, HANDED_S)]] * HANDED)
    spans = read_log(log)
    return statistics.median(later[0] - earlier[1] for earlier, later in pairwise(spans))


def logged(log: Path, seconds: float) -> list[str]:
    """A command that sleeps, and then logs its span of CLOCK_REALTIME. Plain words: sem hands them to a shell."""
    script = log.parent / "logged.sh"
    script.write_text('a=$(date +%s.%N)\nsleep "$1"\necho "$a $(date +%s.%N)" >> "$2"\n')
    return ["sh", str(script), str(seconds), str(log)]


def all_at_once(commands: list[list[str]]) -> None:
    """Starts all, and waits for all. Raises CalledProcessError."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [subprocess.Popen(words, **quiet) for words in commands]  # type: ignore[call-overload]
    for one in running:
        if one.wait():
            raise subprocess.CalledProcessError(one.returncode, one.args)


def read_log(log: Path) -> list[tuple[float, float]]:
    """(begun, ended) of each, by their beginning."""
    return sorted(
        (float(begun), float(ended)) for begun, ended in map(str.split, log.read_text().splitlines())
    )


def ten_jobs(folder: Path, table: Table) -> None:
    """Ten commands of two seconds, two at a time."""
    account.policy(AT_ONCE)
    queues = {"contain": account.exec_command()}
    if shutil.which("sem"):
        queues["sem"] = ["sem", "--fg", f"-j{AT_ONCE}", "--id", f"ten{os.getpid()}"]
    if (tsp := spooler()) is not None:
        subprocess.run([tsp, "-S", str(AT_ONCE)], check=True)
        queues["tsp"] = [tsp, "-f"]
    found: dict[str, tuple[float, float]] = {}
    for name, words in queues.items():
        log, begun_s = folder / f"ten-{name}", time.time()
        all_at_once([[*words, *logged(log, JOB_S)]] * JOBS)
        found[name] = read_log(log)[0][0] - begun_s, time.time() - begun_s
    peers = " ".join(f"{name} {whole:.1f}" for name, (_, whole) in found.items() if name != "contain")
    first_s, whole_s = found["contain"]
    table.row(
        f"{JOBS} commands of {JOB_S:g} s, {AT_ONCE} at a time, in s", f"{whole_s:.1f} s", peers, whole_s, 12
    )
    peers = " ".join(f"{name} {first:.2f}" for name, (first, _) in found.items() if name != "contain")
    table.row("  the first has started after, in s", f"{first_s:.2f} s", peers, first_s, 0.3)


def ninjas(folder: Path, table: Table) -> None:
    """Three builds at once under two units in all: so many compile jobs run at one time at most."""
    account.policy(2)
    beside = Path(sys.executable).with_name("ninja")
    for ninja in [str(beside)] * beside.exists() + ["/usr/bin/ninja"] * Path("/usr/bin/ninja").exists():
        version = subprocess.run(
            [ninja, "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()
        peaks = {}
        for name, words in (("bare", []), ("contain", account.exec_command())):
            log = folder / f"ninja-{version}-{name}"
            builds = [project(folder / f"build-{version}-{name}-{number}", log) for number in range(3)]
            all_at_once([[*words, ninja, "-C", str(one)] for one in builds])
            peaks[name] = peak(read_log(log))
        claim = f"three builds by ninja {version} under 2 units: compile jobs at one time"
        table.row(claim, str(peaks["contain"]), f"bare {peaks['bare']}", peaks["contain"], 2)


def project(folder: Path, log: Path) -> Path:
    """A build of eight compile jobs that wait instead of compiling."""
    folder.mkdir()
    words = " ".join(logged(log, 0.3))
    edges = "".join(f"build out{number}: cc\n" for number in range(8))
    (folder / "build.ninja").write_text(f"rule cc\n  command = {words} && touch $out\n{edges}")
    return folder


def peak(spans: list[tuple[float, float]]) -> int:
    """How many overlapped at most."""
    steps = sorted([(begun, 1) for begun, _ in spans] + [(ended, -1) for _, ended in spans])
    now = most = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most
