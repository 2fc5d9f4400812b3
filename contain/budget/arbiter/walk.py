"""`decide`: the waiting in their order, each either granted or refused with what it waits for reserved."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from contain.budget.arbiter import limit as limits
from contain.budget.arbiter.checks import SOFT, failures, impossible, lowest, suspended
from contain.budget.arbiter.facts import Decision, Grant
from contain.budget.arbiter.resize import targets
from contain.budget.arbiter.room import Room

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from contain.budget.arbiter.checks import Failure
    from contain.budget.arbiter.facts import LimitState, Now, Sample, Snapshot, Ticket
    from contain.budget.policy import Policy

UNBOUNDED = 1 << 30
"""The part of one session where the order knows no sessions."""


class Walk:
    """One walk along the queue. It ends at its last ticket, at ``until``, or where nobody behind can be granted."""

    def __init__(self, snapshot: Snapshot, sample: Sample, policy: Policy, now: Now) -> None:
        """Derive the room, step the limit and bring the waiting in order; nothing is granted yet."""
        self.snapshot, self.policy = snapshot, policy
        self.room = room = Room(snapshot, sample, policy, now)
        self.pressed = tuple(name for name, _, _ in room.pressing())
        self.limit: LimitState = limits.step(
            snapshot.limit, policy, now.awake_s, pressed=bool(self.pressed), ours=room.work_is_ours()
        )
        room.limit = self.limit.limit
        self.due: list[Ticket] = []
        self.queues: dict[str, list[Ticket]] = {}
        self.cpuless = 0
        self._line_up()
        self.service = dict(snapshot.service)
        self.part = self._part()
        self.grants: list[Grant] = []
        self.refused: list[Ticket] = []
        self.impossible: list[str] = []
        self.cpu_wanted = False

    def _line_up(self) -> None:
        """Everybody who takes part, by session and seq; the due apart. One pass: a thousand may wait."""
        room, overtaken, queues = self.room, self.snapshot.overtaken, self.queues
        tickets = self.snapshot.tickets
        if room.holds or room.ill:
            tickets = tuple([one for one in tickets if not suspended(room, one)])
        fair, due_after = self.policy.order != "fifo", self.policy.due_after
        due = {seq for seq, count in overtaken.items() if count >= due_after} if fair else set()
        for ticket in tickets:
            if ticket.dormant:
                continue
            if not ticket.min_units:
                self.cpuless += 1
            if ticket.seq in due:
                self.due.append(ticket)
                continue
            session = ticket.session if fair else ""
            queue = queues.get(session)
            if queue is None:
                queues[session] = [ticket]
            else:
                queue.append(ticket)

    def _part(self) -> int:
        if self.policy.order == "fifo":
            return UNBOUNDED
        active = {permit.session for permit in self.snapshot.permits}
        active.update(self.queues)
        if self.due:
            active.update([ticket.session for ticket in self.due])
        return max(1, self.room.limit // max(1, len(active)))

    def run(self, until: str | None = None) -> list[Failure] | None:
        """Walk. With ``until``: the failures of that ticket when its turn comes, None if it does not wait."""
        room, cpuless = self.room, self.cpuless
        for ticket in self._in_order():
            cpuless -= not ticket.min_units
            if ticket.id == until:
                found = failures(room, ticket)
                return [] if self._size(ticket, found) is not None else found
            if room.reserved_cpu and ticket.min_units and room.free_cpu() <= 0:
                # Somebody ahead waits for all the cpu that is left: every further ask for cpu is behind. It only
                # reserves, and when no one is left who asks for none, nobody looks on.
                if until is None and not cpuless:
                    self.cpu_wanted = True
                    break
                self._refuse(ticket, None)
                continue
            self._consider(ticket)
        return None

    def _consider(self, ticket: Ticket) -> None:
        found = failures(self.room, ticket)
        sized = self._size(ticket, found)
        if sized is None:
            self._refuse(ticket, found)
            return
        units, how = sized
        grant = Grant(ticket=ticket, units=units, how=how)
        self.grants.append(grant)
        self.room.take(grant)
        used = share(self.policy, units, ticket.mem_mib) * ticket.expected_s
        self.service[ticket.session] = self.service.get(ticket.session, 0.0) + used

    def _size(self, ticket: Ticket, found: list[Failure]) -> tuple[int, str] | None:
        """(units, how) if the ticket is granted."""
        room, least = self.room, lowest(self.room, ticket)
        if found:
            alone = least and not room.used_cpu and room.thrashing() is None
            if alone and all(kind in SOFT for kind, _, _, _ in found):
                return least, "one-progress"
            return None
        free = room.free_cpu()
        if least > free:
            return least, "burst" if least else "limit"
        most = min(self.part, free, *(room.free_of(pool) for pool in ticket.unit_draws))
        return max(least, min(ticket.want_units, most)), "limit"

    def _refuse(self, ticket: Ticket, found: list[Failure] | None) -> None:
        """``found`` None: all cpu is waited for, and so was not looked at."""
        if (ticket.mem_mib or ticket.draws or ticket.unit_draws) and impossible(self.room, ticket):
            self.impossible.append(ticket.id)
            return
        self.refused.append(ticket)
        self.room.reserve(ticket)
        if ticket.min_units and (
            found is None or any(kind in SOFT or res == "cpu" for kind, res, _, _ in found)
        ):
            self.cpu_wanted = True

    def _in_order(self) -> Iterator[Ticket]:
        """Fifo: by seq, as one queue. Fair: the due by seq, then by service of the session and seq."""
        yield from self.due
        service, queues = self.service, self.queues
        heap = [(service.get(session, 0.0), queue[0].seq, session, 0) for session, queue in queues.items()]
        heapify(heap)
        while heap:
            _, _, session, place = heappop(heap)
            queue = queues[session]
            yield queue[place]
            if (place := place + 1) < len(queue):
                heappush(heap, (service.get(session, 0.0), queue[place].seq, session, place))


def decide(snapshot: Snapshot, sample: Sample, policy: Policy, now: Now) -> Decision:
    """What changes now: who is granted, what resizable permits move to, the limit, who must look.

    Pure, and deterministic: the same four values give the same decision. It fails closed: a required sensor that
    failed, an unknown pool or an ill one grants nothing.
    """
    walk = Walk(snapshot, sample, policy, now)
    walk.run()
    moved = targets(snapshot.permits, walk.room, part=walk.part, cpu_wanted=walk.cpu_wanted)
    return Decision(
        grants=tuple(walk.grants),
        targets=moved,
        limit=walk.limit,
        wake=_wake(snapshot, walk.grants, moved),
        impossible=tuple(walk.impossible),
        pressed=walk.pressed,
    )


def share(policy: Policy, units: int, mem_mib: int) -> float:
    """The share of the machine that a permit takes: by cpu units or by memory, whichever is more."""
    cpu = units / policy.base
    return max(cpu, mem_mib / policy.mem_budget_mib) if policy.mem_budget_mib and mem_mib else cpu


def cost(policy: Policy, units: int, ticket: Ticket) -> float:
    """Seconds of the whole machine that a grant of ``units`` is expected to take; never less than one unit's."""
    return share(policy, max(1, units), ticket.mem_mib) * max(1.0, ticket.expected_s)


def _wake(snapshot: Snapshot, grants: list[Grant], moved: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """Everybody granted who is not bound, the sentinel, and who has another target. A dict keeps the order."""
    granted = [grant.ticket.id for grant in grants]
    woken = [permit.id for permit in snapshot.permits if permit.state == "granted"] + granted
    for ticket in snapshot.tickets:
        if not ticket.dormant and ticket.id not in granted:
            woken.append(ticket.id)
            break
    return tuple(dict.fromkeys([*woken, *(permit for permit, _ in moved)])) if moved else tuple(woken)
