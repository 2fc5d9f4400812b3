"""Everyone's turn comes: half an hour of eight unequal sessions, a full-size ask among small ones, minted sessions."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import pytest

from contain.budget.arbiter import Now, Permit, Snapshot, Ticket, after, decide, enqueue, explain, release
from contain.budget.arbiter.facts import LimitState
from contain.budget.arbiter.walk import cost
from contain.budget.policy import preset
from tests.budget.scene import CALM, GIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

pytestmark = pytest.mark.timeout(240)
"""Many examples: seconds on an idle machine, and more where others work too."""

POLICY = preset("shared", 18, 128 * GIB).replace(ceiling=16)
"""Sixteen units, without burst: what a session gets is counted in these alone."""
HALF_AN_HOUR_S = 1800.0
SAMPLE = CALM.replace(busy=13.0)


class Run:
    """A simulated machine. Every session asks again as soon as one of its tickets is granted, if ``asks`` says so."""

    def __init__(self, asks: Callable[[Ticket, float], Ticket | None]) -> None:
        """``asks(granted ticket, now)`` is the next ticket of the same asker, or None."""
        self.snapshot = Snapshot(limit=LimitState(limit=POLICY.base))
        self.asks, self.seq, self.now_s = asks, 0, 0.0
        self.ends: list[tuple[float, int, str]] = []
        self.started: dict[str, float] = {}
        self.used: dict[str, float] = {}
        self.overtaken = 0.0

    def join(self, ticket: Ticket) -> str:
        """It waits from now on, under the next seq."""
        self.seq += 1
        joined = ticket.replace(seq=self.seq, id=f"{ticket.session}-{self.seq}")
        self.snapshot = enqueue(self.snapshot, joined, POLICY)
        return joined.id

    def turn(self, seconds: Callable[[Ticket], float]) -> None:
        """Decide; what is granted runs for ``seconds`` of it."""
        decision = decide(self.snapshot, SAMPLE, POLICY, Now(awake_s=self.now_s))
        self.snapshot = after(self.snapshot, decision, POLICY, Now(awake_s=self.now_s))
        self.overtaken = max(self.overtaken, *self.snapshot.overtaken.values(), 0.0)
        for grant in decision.grants:
            ticket, length_s = grant.ticket, seconds(grant.ticket)
            self.started[ticket.id] = self.now_s
            lasts_s = max(0.0, min(length_s, HALF_AN_HOUR_S - self.now_s))
            self.used[ticket.session] = self.used.get(ticket.session, 0.0) + grant.units * lasts_s
            heappush(self.ends, (self.now_s + length_s, ticket.seq, ticket.id))
            if (again := self.asks(ticket, self.now_s)) is not None:
                self.join(again)

    def until(self, end_s: float, seconds: Callable[[Ticket], float]) -> None:
        """Run on."""
        self.turn(seconds)
        while self.ends and self.ends[0][0] <= end_s:
            self.now_s, _, permit = heappop(self.ends)
            self.snapshot = release(self.snapshot, permit, POLICY, Now(awake_s=self.now_s))
            self.turn(seconds)


def jain(shares: Iterable[float]) -> float:
    """Jain's index: 1 if all are equal."""
    values = list(shares)
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def unequal(granted: Ticket) -> float:
    """Lengths from 3 to 90 s, by session and turn, and mostly not as expected."""
    return 3.0 + (int(granted.session) * 37 + granted.seq * 11) % 88


@pytest.mark.parametrize("order", ["fair", "fifo"])
def test_half_an_hour_of_eight_unequal_sessions(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One to eight units a job, three tickets waiting each: unit-seconds are equal. First come first served is not."""
    monkeypatch.setitem(globals(), "POLICY", POLICY.replace(order=order))
    run = Run(lambda granted, _: granted)
    for session in range(8):
        for _ in range(3):
            run.join(
                Ticket(id="", seq=0, session=str(session), min_units=session + 1, want_units=session + 1)
            )
    run.until(HALF_AN_HOUR_S, unequal)
    index = jain(run.used.values())
    assert index >= 0.98 if order == "fair" else index < 0.9, run.used


def test_short_jobs_are_not_starved_by_long_ones() -> None:
    """Two sessions with jobs of two minutes among six with jobs of 4 s, one to eight units: still equal shares."""

    def length_s(session: int) -> float:
        return 120.0 if session % 4 == 3 else 4.0

    run = Run(lambda granted, _: granted)
    for session in range(8):
        units, expected_s = session + 1, length_s(session)
        ticket = Ticket(id="", seq=0, session=str(session), min_units=units, want_units=units)
        run.join(ticket.replace(expected_s=expected_s))
    run.until(HALF_AN_HOUR_S, lambda granted: length_s(int(granted.session)))
    assert jain(run.used.values()) >= 0.98, run.used


def test_a_full_size_ask_starts_within_one_job() -> None:
    """Sixteen units among a stream of one-unit jobs of 10 to 13 s: once it is first, what runs ends, and it starts."""
    run = Run(lambda granted, _: granted if granted.min_units == 1 else None)
    for session in range(8):
        for n in range(4):
            run.join(Ticket(id="", seq=0, session=str(session), expected_s=10.0 + n))
    run.until(100, lambda granted: granted.expected_s)
    asked_s = run.now_s
    wanted = run.join(Ticket(id="", seq=0, session="big", min_units=16, want_units=16))
    first_s = None
    while wanted not in run.started and run.now_s < asked_s + 100:
        ticket = next(one for one in run.snapshot.tickets if one.id == wanted)
        reasons = explain(run.snapshot, SAMPLE, POLICY, Now(awake_s=run.now_s), ticket)
        if first_s is None and all(reason.kind == "cpu" for reason in reasons):
            first_s = run.now_s
        run.until(run.ends[0][0], lambda granted: granted.expected_s)
    assert first_s is not None
    assert wanted in run.started
    assert run.started[wanted] - first_s <= 13.0
    assert run.started[wanted] - asked_s <= 2 * 13.0


@pytest.mark.parametrize("expected_s", [3.0, 60.0])
def test_a_wrong_expectation_delays_nobody_who_comes(expected_s: float) -> None:
    """The same, where all jobs are expected to take a minute and take 3 s: it starts when those that run have ended."""
    run = Run(lambda granted, _: granted if granted.min_units == 1 else None)
    for session in range(4):
        for _ in range(8):
            run.join(Ticket(id="", seq=0, session=str(session), expected_s=expected_s))
    run.until(100, lambda _: 3.0)
    asked_s = run.now_s
    big = Ticket(id="", seq=0, session="big", min_units=16, want_units=16, expected_s=expected_s)
    wanted = run.join(big)
    run.until(asked_s + 60, lambda _: 3.0)
    assert run.started[wanted] - asked_s <= 3.0


def test_minted_sessions_do_not_starve_anybody() -> None:
    """Every job a new session, and the big ask's own has used much: it is due after sixteen times its own cost."""
    names = iter(range(10_000))

    def asks(granted: Ticket, _: float) -> Ticket | None:
        return None if granted.session == "big" else granted.replace(session=f"new{next(names)}")

    run = Run(asks)
    for _ in range(24):
        run.join(Ticket(id="", seq=0, session=f"new{next(names)}", expected_s=1.0))
    run.until(5, lambda granted: 1.0 + granted.seq % 7 / 10)
    run.snapshot = run.snapshot.replace(service={**run.snapshot.service, "big": 1e9})
    asked_s = run.now_s
    big = Ticket(id="", seq=0, session="big", min_units=12, want_units=12, expected_s=2.0)
    wanted = run.join(big)
    allowed = POLICY.due_after * cost(POLICY, 12, big)
    run.until(asked_s + 300, lambda granted: 1.0 + granted.seq % 7 / 10)
    assert asked_s + 5 < run.started[wanted], "it does owe"
    assert POLICY.due_after <= run.overtaken <= POLICY.due_after + 2
    assert run.started[wanted] - asked_s <= 2 * allowed


def test_nobody_gains_by_inventing_sessions() -> None:
    """One asker with a new session for every ticket, one with a single session: about the same unit-seconds."""
    names = iter(range(10_000))

    def asks(granted: Ticket, _: float) -> Ticket:
        honest = granted.session in {"a", "b", "c"}
        return granted if honest else granted.replace(session=f"mint{next(names)}")

    run = Run(asks)
    for session in ("a", "b", "c", "mint"):
        for _ in range(4):
            run.join(Ticket(id="", seq=0, session=session, min_units=4, want_units=4))
    run.until(HALF_AN_HOUR_S, lambda granted: 20.0 + granted.seq % 5)
    minted = sum(units for session, units in run.used.items() if session.startswith("mint"))
    fair = (sum(run.used.values())) / 4
    assert minted <= 4 * fair, "four tickets at a time are at most four sessions' worth"
    assert min(run.used[session] for session in "abc") > 0


def test_to_go_away_for_a_moment_does_not_pay() -> None:
    """One job at a time, and the next only when it has ended: a session with long wide jobs is no better off."""
    jobs = {"wide": (8, 60.0), **{f"narrow{n}": (4, 5.0) for n in range(6)}}
    run = Run(lambda *_: None)

    def ask(session: str) -> None:
        units, expected_s = jobs[session]
        ticket = Ticket(id="", seq=0, session=session, min_units=units, want_units=units)
        run.join(ticket.replace(expected_s=expected_s))

    for session in jobs:
        ask(session)
    run.turn(lambda granted: granted.expected_s)
    while run.ends[0][0] <= HALF_AN_HOUR_S:
        run.now_s, _, permit = heappop(run.ends)
        run.snapshot = release(run.snapshot, permit, POLICY, Now(awake_s=run.now_s))
        run.turn(lambda granted: granted.expected_s)
        ask(permit.rpartition("-")[0])
        run.turn(lambda granted: granted.expected_s)
    narrow = [units for session, units in run.used.items() if session != "wide"]
    assert run.used["wide"] <= 1.6 * sum(narrow) / len(narrow), run.used


def test_permits_say_what_they_were_charged() -> None:
    """The registry stores what the correction needs."""
    permit = Permit(id="p", seq=1, session="s", units=2, target=2, granted_at_s=0.0, charged=7.5)
    held = Snapshot(limit=LimitState(limit=16), permits=(permit,), service={"s": 7.5})
    assert release(held, "p", POLICY, Now(awake_s=16.0)).service == {"s": 2.0}
