"""What a snapshot becomes: a ticket joins, a decision is applied, a permit is returned. Pure, like the decision."""

from __future__ import annotations

from contain.budget.arbiter.facts import Grant, Permit
from contain.budget.arbiter.walk import cost, share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from contain.budget.arbiter.facts import Decision, Now, Snapshot, Ticket
    from contain.budget.policy import Policy


def enqueue(snapshot: Snapshot, ticket: Ticket, policy: Policy) -> Snapshot:
    """The ticket joins at the end; its seq must be the largest.

    A session that was not active starts at the smallest service of the active ones, or where the last busy time ended:
    it can neither save up turns while it is away, nor can anybody gain by inventing sessions. What it has used beyond
    that it still owes, up to ``policy.debt_s``: to go away for a moment must not pay, to use an idle machine may.
    """
    tickets = (*snapshot.tickets, ticket)
    session, service = ticket.session, snapshot.service
    active = {one.session for one in snapshot.permits}
    active.update([one.session for one in snapshot.tickets])
    if session in active or not service:
        return snapshot.replace(tickets=tickets)
    least = _least_service(snapshot, active) if active else max(service.values())
    start = min(max(service.get(session, 0.0), least), least + policy.debt_s)
    if start == service.get(session, 0.0):
        return snapshot.replace(tickets=tickets)
    return snapshot.replace(tickets=tickets, service={**service, session: start})


def _least_service(snapshot: Snapshot, active: Iterable[str]) -> float:
    """The smallest service of these sessions, without what their running permits were charged in advance.

    Those charges are corrected when the permits return. With them, who comes would wait for as long as the others'
    jobs were expected to take, and not for as long as they take.
    """
    service = dict(snapshot.service)
    for permit in snapshot.permits:
        service[permit.session] = service.get(permit.session, 0.0) - permit.charged
    return min([service.get(one, 0.0) for one in active])


def leave(snapshot: Snapshot, ticket_id: str) -> Snapshot:
    """The ticket is gone without a grant: canceled, refused, or its owner ended."""
    kept = tuple([one for one in snapshot.tickets if one.id != ticket_id])
    return snapshot.replace(tickets=kept, overtaken=_of_waiting(snapshot.overtaken, kept))


def after(snapshot: Snapshot, decision: Decision, policy: Policy, now: Now) -> Snapshot:
    """The snapshot with the decision applied: granted tickets are permits, the others overtaken, targets in force."""
    if not decision.grants and not decision.targets and decision.limit is snapshot.limit:
        return snapshot
    permits = _retargeted(snapshot, decision, policy, now) if decision.targets else snapshot.permits
    if not decision.grants:
        return snapshot.replace(permits=permits, limit=decision.limit)
    granted = {grant.ticket.id for grant in decision.grants}
    tickets = tuple([one for one in snapshot.tickets if one.id not in granted])
    service = dict(snapshot.service)
    fresh = [permit_of(grant, policy, now) for grant in decision.grants]
    for permit in fresh:
        service[permit.session] = service.get(permit.session, 0.0) + permit.charged
    return snapshot.replace(
        tickets=tickets,
        permits=(*permits, *fresh),
        overtaken=_overtaken(snapshot, decision, tickets, policy),
        service=service,
        limit=decision.limit,
    )


def run_anyway(snapshot: Snapshot, ticket_id: str, policy: Policy, now: Now) -> Snapshot:
    """The ticket is a permit for its least, marked ``open``: its time is over, and it runs without a grant, counted."""
    ticket = next((one for one in snapshot.tickets if one.id == ticket_id), None)
    if ticket is None:
        return snapshot
    permit = permit_of(
        Grant(ticket=ticket, units=min(ticket.min_units, policy.base), how="open"), policy, now
    )
    service = {**snapshot.service, permit.session: snapshot.service.get(permit.session, 0.0) + permit.charged}
    return leave(snapshot, ticket_id).replace(permits=(*snapshot.permits, permit), service=service)


def permit_of(grant: Grant, policy: Policy, now: Now) -> Permit:
    """The permit that a grant becomes; its session is charged for the expected time."""
    ticket = grant.ticket
    return Permit(
        id=ticket.id,
        seq=ticket.seq,
        session=ticket.session,
        class_name=ticket.class_name,
        lane=ticket.lane,
        units=grant.units,
        target=grant.units,
        min_units=min(ticket.min_units, policy.base),
        mem_mib=ticket.mem_mib,
        draws=ticket.draws,
        unit_draws=ticket.unit_draws,
        resizable=ticket.resizable,
        granted_at_s=now.awake_s,
        holder=ticket.holder,
        how=grant.how,
        charged=share(policy, grant.units, ticket.mem_mib) * ticket.expected_s,
        served_at_s=now.awake_s,
    )


def settled(permit: Permit, policy: Policy, now: Now, units: int) -> Permit:
    """The wrapper holds ``units`` from now on: what it used before is closed into ``served``."""
    if units == permit.units:
        return permit
    return permit.replace(units=units, served=used_service(permit, policy, now), served_at_s=now.awake_s)


def used_service(permit: Permit, policy: Policy, now: Now) -> float:
    """Service that the permit has really used until now."""
    open_s = max(0.0, now.awake_s - permit.served_at_s)
    return permit.served + share(policy, permit.units, permit.mem_mib) * open_s


def release(snapshot: Snapshot, permit_id: str, policy: Policy, now: Now) -> Snapshot:
    """The permit is returned: its session pays what was used instead of what was expected."""
    permit = next((one for one in snapshot.permits if one.id == permit_id), None)
    if permit is None:
        return snapshot
    owed = snapshot.service.get(permit.session, 0.0) + used_service(permit, policy, now) - permit.charged
    return snapshot.replace(
        permits=tuple([one for one in snapshot.permits if one is not permit]),
        service={**snapshot.service, permit.session: max(0.0, owed)},
    )


def _retargeted(snapshot: Snapshot, decision: Decision, policy: Policy, now: Now) -> tuple[Permit, ...]:
    """Upwards the units are accounted at once, since the command may take them; downwards when it has let go."""
    wanted = dict(decision.targets)
    moved: list[Permit] = []
    for permit in snapshot.permits:
        target = wanted.get(permit.id)
        if target is None:
            moved.append(permit)
        else:
            larger = settled(permit, policy, now, max(permit.units, target))
            moved.append(larger.replace(target=target))
    return tuple(moved)


def _overtaken(
    snapshot: Snapshot, decision: Decision, left: tuple[Ticket, ...], policy: Policy
) -> dict[int, float]:
    """Every grant to a later seq counts by its cost over the ticket's own, for the first who waits of each session.

    The others wait behind their own session, and a dormant ticket does not wait: nobody overtakes them.
    """
    counts = _of_waiting(snapshot.overtaken, left)
    costs = [(one.ticket.seq, cost(policy, one.units, one.ticket)) for one in decision.grants]
    last = max([seq for seq, _ in costs])
    sessions: set[str] = set()
    for ticket in left:
        if ticket.seq > last:
            break  # nobody overtook those who came after the last of the granted
        if ticket.dormant or ticket.session in sessions:
            continue
        sessions.add(ticket.session)
        if passed := sum([one for seq, one in costs if seq > ticket.seq]):
            own = cost(policy, min(ticket.min_units, policy.base), ticket)
            counts[ticket.seq] = counts.get(ticket.seq, 0.0) + passed / own
    return counts


def _of_waiting(overtaken: Mapping[int, float], left: tuple[Ticket, ...]) -> dict[int, float]:
    if not overtaken:
        return {}
    waiting = {ticket.seq for ticket in left}
    return {seq: count for seq, count in overtaken.items() if seq in waiting}


def measured(snapshot: Snapshot, uses: Mapping[str, tuple[float | None, float | None]]) -> Snapshot:
    """Permits with what was measured of them, (busy cores, MiB) by id; who is not in there is not known."""

    def one(permit: Permit) -> Permit:
        cpu, rss = uses.get(permit.id, (None, None))
        return permit if (cpu, rss) == (permit.cpu, permit.rss_mib) else permit.replace(cpu=cpu, rss_mib=rss)

    return snapshot.replace(permits=tuple([one(permit) for permit in snapshot.permits]))
