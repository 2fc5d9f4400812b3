"""Speed of the arbiter, in processor time: ``python -m tests.bench.arbiter``. It judges no test."""

from __future__ import annotations

import heapq
import sys
import time
from random import Random

from contain.budget.arbiter import LimitState, Now, Permit, Sample, Snapshot, Ticket, decide, explain
from contain.budget.policy import preset
from contain.budget.replay import Event, Replay, same

POLICY = preset("shared", 18, 128 * 1024)
SAMPLE = Sample(busy=5.0, load1=3.0, psi_cpu=5.0, psi_io=0.0, psi_memory=0.0, available_mib=100_000.0)
NOW = Now(awake_s=30.0)
SESSIONS = 10


def waiting(count: int) -> Snapshot:
    """A machine whose units are all held, and ``count`` tickets of ten sessions."""
    held = tuple(
        Permit(
            id=f"p{n}", seq=n, session=f"s{n}", units=2, target=2, granted_at_s=0.0, cpu=1.0, state="running"
        )
        for n in range(8)
    )
    tickets = tuple(
        Ticket(id=f"t{n}", seq=100 + n, session=f"s{n % SESSIONS}", min_units=2, want_units=8, mem_mib=500)
        for n in range(count)
    )
    overtaken = {100 + n: 3.0 for n in range(min(count, SESSIONS))}
    return Snapshot(limit=LimitState(limit=16), tickets=tickets, permits=held, overtaken=overtaken)


def log(depth: int, events: int) -> list[Event]:
    """A recorded log in which about ``depth`` tickets wait at any time."""
    dice, replay, made = Random(1), Replay(POLICY, SAMPLE), list[Event]()  # noqa: S311 - no secret
    ends: list[tuple[float, str]] = []
    at_s, seq = 0.0, 0
    while len(made) < events:
        if len(replay.snapshot.tickets) < depth or not ends:
            seq, at_s = seq + 1, at_s + 0.01
            want = dice.choice((1, 2, 4))
            ticket = Ticket(id=f"t{seq}", seq=seq, session=f"s{seq % SESSIONS}", want_units=want, mem_mib=500)
            event = Event(kind="enqueue", at_s=at_s, id=ticket.id, ticket=ticket)
        else:
            end_s, permit = heapq.heappop(ends)
            at_s = max(at_s, end_s)
            event = Event(kind="release", at_s=at_s, id=permit)
        made.append(event)
        decision = replay.apply(event)
        for grant in decision.grants if decision is not None else ():
            made.append(Event(kind="grant", at_s=at_s, id=grant.ticket.id, units=grant.units, how=grant.how))
            heapq.heappush(ends, (at_s + dice.uniform(5, 50), grant.ticket.id))
    return made


def main() -> int:
    """Prints one line a claim: the best of some rounds, with what it is to be."""
    for count, goal_us in ((20, 10), (100, 32), (1000, 311)):
        snapshot, turns, best, last = waiting(count), max(20, 4000 // count), float("inf"), float("inf")
        for _ in range(15):
            begun = time.process_time()
            for _ in range(turns):
                decide(snapshot, SAMPLE, POLICY, NOW)
            best = min(best, (time.process_time() - begun) / turns)
            begun = time.process_time()
            explain(snapshot, SAMPLE, POLICY, NOW, snapshot.tickets[-1])
            last = min(last, time.process_time() - begun)
        said = f"decide, {count} waiting: {best * 1e6:.0f} us (a prototype: {goal_us}); "
        sys.stdout.write(said + f"explain the last: {last * 1e6:.0f} us\n")
    for depth, goal in ((20, 50_000), (100, 10_000)):
        events, best = log(depth, 6000), float("inf")
        for _ in range(5):
            begun = time.process_time()
            if same(events, POLICY, SAMPLE):
                return 1
            best = min(best, time.process_time() - begun)
        sys.stdout.write(f"replay, {depth} waiting: {len(events) / best:,.0f} events/s (goal {goal:,})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
