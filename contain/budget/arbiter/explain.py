"""`explain`: every reason why one ticket waits. `free`: how many more would be granted now. Both walk as `decide`."""

from __future__ import annotations

from contain.budget.arbiter.accounts import enqueue
from contain.budget.arbiter.checks import SOFT, impossible
from contain.budget.arbiter.checks import failures as failing
from contain.budget.arbiter.facts import LimitState, Now, Sample, Snapshot, Ticket, Unknown
from contain.budget.arbiter.reasons import MEMORY, Holding, Reason, figure
from contain.budget.arbiter.walk import Walk, decide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from contain.budget.arbiter.checks import Failure
    from contain.budget.arbiter.facts import Permit
    from contain.budget.arbiter.room import Room
    from contain.budget.policy import ClassCost, Policy


def explain(
    snapshot: Snapshot, sample: Sample, policy: Policy, now: Now, ticket: Ticket
) -> tuple[Reason, ...]:
    """All reasons why ``ticket`` is not granted now, in the order of the checks; empty if it is.

    A ticket that does not wait yet is looked at as if it had just come.
    """
    if all(one.id != ticket.id for one in snapshot.tickets):
        snapshot = enqueue(snapshot, ticket, policy)
    if ticket.dormant:
        return (Reason(kind="dormant", resource=""),)
    walk = Walk(snapshot, sample, policy, now)
    found = walk.run(until=ticket.id)
    if found is None:
        # It is skipped, for a hold or an ill pool: nobody is ahead of it in anything.
        walk = Walk(snapshot.replace(tickets=()), sample, policy, now)
        found = failing(walk.room, ticket)
    reasons = tuple(_reason(failure, walk, ticket) for failure in found)
    thrash = walk.room.thrashing()
    if thrash and not walk.room.used_cpu and found and all(kind in SOFT for kind, _, _, _ in found):
        name, has, mark = thrash
        reasons += (Reason(kind="thrash", resource=name, need=mark, has=has),)
    return reasons


def never(policy: Policy, ticket: Ticket) -> tuple[Reason, ...]:
    """Why ``ticket`` can never be granted under this policy, whatever stands in the queue; empty if it can.

    To be asked before a ticket joins: `decide` names the impossible as well, but only as far as it walks.
    """
    walk = Walk(Snapshot(limit=LimitState(limit=policy.base)), Sample(), policy, Now(awake_s=0.0))
    return tuple(_reason(failure, walk, ticket) for failure in impossible(walk.room, ticket))


def free(
    snapshot: Snapshot, sample: Sample, policy: Policy, now: Now, asked: ClassCost, session: str
) -> int | None:
    """How many tickets of a class, appended now by ``session``, would be granted at once; None: any number."""
    most = _bound(policy, asked)
    if most is None:
        first = _granted(snapshot, sample, policy, now, [ticket_of(policy, asked, session, 1, "free-0")])
        return None if first else 0
    last = max((one.seq for one in snapshot.tickets), default=0)
    last = max(last, *(one.seq for one in snapshot.permits), 0)
    tickets = [ticket_of(policy, asked, session, last + n + 1, f"free-{n}") for n in range(most + 1)]
    return _granted(snapshot, sample, policy, now, tickets)


def ticket_of(policy: Policy, asked: ClassCost, session: str, seq: int, ticket_id: str) -> Ticket:
    """A plain ticket of a class, with the minimum that this machine allows."""
    least = policy.lowest_units(asked)
    return Ticket(
        id=ticket_id,
        seq=seq,
        session=session,
        class_name=asked.name,
        lane=asked.lane,
        min_units=least,
        want_units=max(least, asked.want_units),
        mem_mib=asked.mem_mib,
        draws=asked.draws,
        unit_draws=asked.unit_draws,
        resizable=asked.resizable,
        expected_s=asked.expected_s,
    )


def _granted(snapshot: Snapshot, sample: Sample, policy: Policy, now: Now, tickets: list[Ticket]) -> int:
    for ticket in tickets:
        snapshot = enqueue(snapshot, ticket, policy)
    ours = {ticket.id for ticket in tickets}
    return sum(grant.ticket.id in ours for grant in decide(snapshot, sample, policy, now).grants)


def _bound(policy: Policy, asked: ClassCost) -> int | None:
    """More than this can never be granted, whatever is free; None: nothing that the class draws is bounded."""
    least = policy.lowest_units(asked)
    bounds = [policy.size(pool) // n for pool, n in asked.draws if n]
    if least:
        # One more than fits in the ceiling: one-progress may go above it.
        bounds.append(max(policy.ceiling, policy.base) // least + 1)
        bounds += [policy.size(pool) // least for pool in asked.unit_draws]
    if asked.mem_mib:
        bounds.append((policy.mem_budget_mib or policy.memory_mib) // asked.mem_mib + 1)
    return min(bounds, default=None)


def _reason(failure: Failure, walk: Walk, ticket: Ticket) -> Reason:
    kind, resource, need, has = failure
    room = walk.room
    if kind == "hold":
        hold = next(one for one in room.holds if one.id == resource)
        covered = ", ".join(hold.covers) or "all"
        note = f"{hold.owner} holds {covered}: {hold.reason}"
        return Reason(kind=kind, resource=covered, until_s=hold.until_s, note=note)
    if kind == "unknown":
        return Reason(kind=kind, resource=resource, note=_why(room, resource))
    if kind in {"disk", "pressure", "impossible"}:
        return Reason(kind=kind, resource=resource, need=need, has=has)
    health = room.ill.get(resource)
    return Reason(
        kind=kind,
        resource=resource,
        need=need,
        has=has,
        of=_whole(room, resource),
        until_s=None if health is None else health.until_s,
        holders=tuple(_holders(walk, resource, ahead_of=ticket if kind == "behind" else None)),
        note=_note(room, kind, resource),
    )


def _note(room: Room, kind: str, resource: str) -> str:
    health, policy = room.ill.get(resource), room.policy
    if health is not None:
        return f"{'quarantined' if health.until_s is None else 'cooling'}: {health.reason}"
    if kind != "cpu" or policy.ceiling <= policy.base:
        return ""
    if room.limit < policy.base:
        return f"the limit is {room.limit} of {policy.base} after pressure"
    forecast, calm = room.forecast(), figure(policy.calm * policy.cores)
    said = "not known" if forecast is None else figure(forecast)
    note = f"above {policy.base} only under {calm} busy, forecast {said}"
    if forecast is None or forecast >= policy.calm * policy.cores:
        return note
    floor = policy.mem_floor_mib + (room.young + 1) * policy.burst_mem_mib
    available = "not known" if room.available is None else figure(room.available)
    return f"{note}, up to {policy.ceiling}, from {figure(floor)} MiB available, has {available}"


def _whole(room: Room, resource: str) -> float | None:
    if resource == "cpu":
        return room.limit
    if resource == "memory":
        return room.policy.mem_budget_mib
    return None if resource == "available" else room.size(resource)


def _holders(walk: Walk, resource: str, ahead_of: Ticket | None) -> Iterable[Holding]:
    """Those who hold the resource; or the waiting ahead, if only they are in the way."""
    if ahead_of is None:
        for permit in walk.snapshot.permits:
            if amount := _amount(permit, resource, permit.accounted):
                yield Holding(id=permit.id, session=permit.session, holder=permit.holder, amount=amount)
        for grant in walk.grants:
            if amount := _amount(grant.ticket, resource, grant.units):
                one = grant.ticket
                yield Holding(id=one.id, session=one.session, holder=one.holder, amount=amount)
        return
    for one in walk.refused:
        if amount := _amount(one, resource, one.min_units):
            yield Holding(id=one.id, session=one.session, holder=one.holder, amount=amount, waiting=True)


def _amount(one: Ticket | Permit, resource: str, units: int) -> int:
    if resource == "cpu":
        return units
    if resource in MEMORY:
        return one.mem_mib
    return sum(n for pool, n in one.draws if pool == resource) + (units if resource in one.unit_draws else 0)


def _why(room: Room, name: str) -> str:
    for sensor, why in (*room.failed_all, *room.failed_cpu):
        if sensor == name:
            return why
    reading = dict(room.sample.disks).get(name.removeprefix("disk:"))
    return reading.why if isinstance(reading, Unknown) else "no reading"
