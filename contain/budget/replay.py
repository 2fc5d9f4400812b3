"""Recorded events through the arbiter's own functions: the same grants again, or what another policy would have done.

Pure and deterministic: time is the events' own. `same` says whether a log was decided by these rules; `what_if` keeps
only who asked when, for what and how long it ran, and lets another policy decide the rest.
"""

from __future__ import annotations

from heapq import heappop, heappush

from contain.budget.arbiter import (
    LimitState,
    Now,
    Sample,
    Snapshot,
    after,
    decide,
    enqueue,
    leave,
    measured,
    release,
    settled,
)
from receipts.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from contain.budget.arbiter import Decision, Ticket
    from contain.budget.policy import Policy


class Event(Record):
    """One thing that happened.

    ``kind`` is enqueue (with ``ticket``), grant (with ``units`` and ``how``), settled (the wrapper now holds
    ``units``), release, leave or sample. ``at_s`` is awake seconds, ``id`` the ticket's or permit's; ``uses`` of a
    sample are permit id, busy cores and MiB.
    """

    kind: str
    at_s: float
    id: str = ""
    ticket: Ticket | None = None
    units: int = 0
    how: str = "limit"
    sample: Sample | None = None
    uses: tuple[tuple[str, float | None, float | None], ...] = ()


class Difference(Record):
    """A grant that was recorded and not decided, or the other way. 0 units: not granted."""

    at_s: float
    id: str
    recorded: int
    decided: int


class Replay:
    """The state of one replay. ``snapshot`` is what the registry would hold now."""

    def __init__(self, policy: Policy, sample: Sample) -> None:
        """An empty queue under ``policy``; ``sample`` is in force until the first recorded one."""
        self.policy, self.sample = policy, sample
        self.snapshot = Snapshot(limit=LimitState(limit=policy.base))
        self.events = 0

    def apply(self, event: Event) -> Decision | None:
        """One event and the decision that follows it. A recorded grant decides nothing: None."""
        self.events += 1
        now = Now(awake_s=event.at_s, wall_s=event.at_s)
        if event.kind == "enqueue":
            assert event.ticket is not None
            self.snapshot = enqueue(self.snapshot, event.ticket, self.policy)
        elif event.kind == "release":
            self.snapshot = release(self.snapshot, event.id, self.policy, now)
        elif event.kind == "settled":
            self.snapshot = _settled(self.snapshot, event, self.policy, now)
        elif event.kind == "leave":
            self.snapshot = leave(self.snapshot, event.id)
        elif event.kind == "sample":
            assert event.sample is not None
            self.sample = event.sample
            if event.uses:
                self.snapshot = measured(self.snapshot, {name: (cpu, rss) for name, cpu, rss in event.uses})
        else:
            return None
        decision = decide(self.snapshot, self.sample, self.policy, now)
        self.snapshot = after(self.snapshot, decision, self.policy, now)
        for ticket_id in decision.impossible:
            self.snapshot = leave(self.snapshot, ticket_id)
        return decision


def same(events: Iterable[Event], policy: Policy, sample: Sample) -> tuple[Difference, ...]:
    """Where the recorded grants and the decided ones differ; empty means: the same grants, one for one."""
    replay = Replay(policy, sample)
    recorded: dict[str, int] = {}
    decided: dict[str, tuple[float, int]] = {}
    found: list[Difference] = []
    for event in events:
        if event.kind == "grant":
            at_s, units = decided.pop(event.id, (event.at_s, 0))
            if units != event.units:
                found.append(Difference(at_s=at_s, id=event.id, recorded=event.units, decided=units))
            recorded[event.id] = event.units
            continue
        decision = replay.apply(event)
        if decision is not None:
            decided.update({one.ticket.id: (event.at_s, one.units) for one in decision.grants})
    left = [Difference(at_s=at, id=name, recorded=0, decided=n) for name, (at, n) in decided.items()]
    return (*found, *left)


def what_if(
    events: Iterable[Event], policy: Policy, sample: Sample, seconds: Mapping[str, float] | None = None
) -> list[Event]:
    """What ``policy`` would have done with the same asks and samples: the whole new log.

    A job runs ``seconds`` (by id), else as long as it was recorded, else as expected. Samples stay as recorded, though
    another policy would have made other load: a limit of every replay, and said wherever a result is shown.
    """
    log = list(events)
    lengths = {**_lengths(log), **(seconds or {})}
    asks = [event for event in log if event.kind in {"enqueue", "sample", "leave"}]
    replay, ends, done = Replay(policy, sample), list[tuple[float, int, str]](), list[Event]()
    place = 0
    while place < len(asks) or ends:
        if ends and (place == len(asks) or ends[0][0] <= asks[place].at_s):
            at_s, _, permit = heappop(ends)
            event = Event(kind="release", at_s=at_s, id=permit)
        else:
            event, place = asks[place], place + 1
        done.append(event)
        decision = replay.apply(event)
        for grant in decision.grants if decision is not None else ():
            name, seq = grant.ticket.id, grant.ticket.seq
            done.append(Event(kind="grant", at_s=event.at_s, id=name, units=grant.units, how=grant.how))
            heappush(ends, (event.at_s + lengths.get(name, grant.ticket.expected_s), seq, name))
    return done


def _lengths(log: list[Event]) -> dict[str, float]:
    begun: dict[str, float] = {}
    lengths: dict[str, float] = {}
    for event in log:
        if event.kind == "grant":
            begun[event.id] = event.at_s
        elif event.kind == "release" and event.id in begun:
            lengths[event.id] = event.at_s - begun[event.id]
    return lengths


def _settled(snapshot: Snapshot, event: Event, policy: Policy, now: Now) -> Snapshot:
    permits = snapshot.permits
    return snapshot.replace(
        permits=tuple(
            [settled(one, policy, now, event.units) if one.id == event.id else one for one in permits]
        )
    )
