"""Whether everybody's turn comes: simulated for half an hour, and for two minutes with real commands."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from contain.budget.arbiter import Ticket
from contain.budget.replay import same
from tests.bench import account
from tests.bench.arbiter import POLICY, SAMPLE, log
from tests.bench.jobs import all_at_once, logged, read_log
from tests.budget.test_fairness import HALF_AN_HOUR_S, Run, jain, unequal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.table import Table

SESSIONS = 8
UNITS = 4
LIVE_S = 120.0
IN_LINE = 3
LEAST_JAIN = 0.98
SMALL_S = 3.0
STREAM = 8


def replays(table: Table) -> None:
    """Goal 9: recorded events a second through the arbiter, in processor time."""
    for depth, goal in ((20, 50_000), (100, 10_000)):
        events, best_s = log(depth, 6000), float("inf")
        for _ in range(5):
            begun = time.process_time()
            if same(events, POLICY, SAMPLE):
                raise AssertionError("a replay differs from its own log")
            best_s = min(best_s, time.process_time() - begun)
        rate = len(events) / best_s
        table.row(
            f"9 replay, {depth} waiting: {goal:,} events a second to ours",
            f"{rate:,.0f}/s",
            "",
            goal / rate,
            1,
        )


def simulated(table: Table) -> None:
    """Eight sessions with jobs of one to eight units and 3 to 90 s."""
    run = Run(lambda granted, _: granted)
    for session in range(SESSIONS):
        for _ in range(3):
            units = session + 1
            run.join(Ticket(id="", seq=0, session=str(session), min_units=units, want_units=units))
    run.until(HALF_AN_HOUR_S, unequal)
    unfair(table, f"{SESSIONS} unequal sessions, half an hour simulated", list(run.used.values()))


def unfair(table: Table, claim: str, used: list[float]) -> None:
    """A row of Jain's index; smaller is better there, so its distance from 1 is what is compared."""
    index = jain(used)
    table.row(f"{claim}: 1 - Jain", f"{index:.3f}", "", 1 - index, 1 - LEAST_JAIN)


def make(folder: Path, name: str, units: int, seconds: float, log_to: Path, session: str) -> list[str]:
    """A ``contain exec`` of a make that says how many units it takes, and waits instead of compiling."""
    file = folder / f"{name}.mk"
    file.write_text(f"all:\n\t@{' '.join(logged(log_to, seconds))}\n")
    return account.exec_command("make", "-s", f"-j{units}", "-f", str(file), session=session)


def live(folder: Path, table: Table) -> None:
    """Eight sessions, each with three commands in line all the time: of one to four units, and one to three seconds."""
    account.policy(UNITS)
    end_s = time.time() + LIVE_S

    def session(number: int) -> None:
        name, units = f"live{number}", number % UNITS + 1
        words = make(folder, name, units, 1.0 + 0.25 * ((number * 3) % 8), folder / name, name)
        while time.time() < end_s:
            all_at_once([words])

    in_threads([lambda number=number: session(number) for number in range(SESSIONS) for _ in range(IN_LINE)])
    used = []
    for number in range(SESSIONS):
        spans = read_log(folder / f"live{number}")
        lengths = sum(max(0.0, min(ended, end_s) - begun) for begun, ended in spans)
        used.append(lengths * (number % UNITS + 1))
    unfair(table, f"{SESSIONS} unequal sessions, {LIVE_S / 60:g} min of real commands", used)


def full_size(folder: Path, table: Table) -> None:
    """One that wants the whole machine among a stream of small ones: it starts within the length of one of them."""
    account.policy(UNITS)
    begun = time.monotonic()
    all_at_once([make(folder, "alone", 1, SMALL_S, folder / "alone", "alone")])
    whole_s = time.monotonic() - begun
    over = threading.Event()

    def small(number: int) -> None:
        words = make(folder, f"small{number}", 1, SMALL_S, folder / "small", f"small{number % UNITS}")
        while not over.is_set():
            all_at_once([words])

    def large() -> None:
        account.until("a stream", account.waiting(STREAM - UNITS))
        time.sleep(SMALL_S / 2)
        asked_s.append(time.time())
        all_at_once([make(folder, "large", UNITS, 0.1, folder / "large", "large")])
        over.set()

    asked_s: list[float] = []
    in_threads([*[lambda number=number: small(number) for number in range(STREAM)], large])
    waited_s = read_log(folder / "large")[0][0] - asked_s[0]
    claim = f"an ask for all units among commands of {SMALL_S:g} s: its wait to one of these"
    table.row(claim, f"{waited_s:.2f} s", f"alone {whole_s:.2f} s", waited_s / whole_s, 1)


def in_threads(works: list[object]) -> None:
    """Runs all of them at once, and waits for all."""
    threads = [threading.Thread(target=work) for work in works]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
