"""A machine, a queue and a moment, in a line each: what the tests of the arbiter are written in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contain.budget.arbiter import (
    Decision,
    LimitState,
    Now,
    Permit,
    Sample,
    Snapshot,
    Ticket,
    after,
    decide,
    enqueue,
    explain,
)
from contain.budget.arbiter.reasons import Reason, render

if TYPE_CHECKING:
    from contain.budget.policy import Policy

GIB = 1024
CALM = Sample(id="calm", busy=0.0, load1=0.0, psi_cpu=0.0, psi_io=0.0, psi_memory=0.0, available_mib=1 << 20)
LONG_AGO_S = 100_000.0
NOW_S = 200_000.0


class Scene:
    """A snapshot that tickets join and decisions change. Permits given here are old: they are settled."""

    def __init__(self, policy: Policy, sample: Sample = CALM, **state: Any) -> None:  # noqa: ANN401 - fields of a record, checked by it
        """``state`` is of a Snapshot; the limit is the base unless said."""
        self.policy, self.sample = policy, sample
        limit = state.pop("limit", policy.base)
        self.snapshot = Snapshot(limit=LimitState(limit=limit), **state)
        self.now = Now(awake_s=NOW_S, wall_s=NOW_S)
        self.seq = 0

    def waits(self, session: str, least: int, want: int | None = None, **fields: Any) -> Ticket:  # noqa: ANN401 - fields of a record, checked by it
        """A ticket joins."""
        self.seq += 1
        fields.setdefault("id", f"{session}-{self.seq}")
        ticket = Ticket(seq=self.seq, session=session, min_units=least, want_units=want or least, **fields)
        self.snapshot = enqueue(self.snapshot, ticket, self.policy)
        return ticket

    def holds(self, session: str, units: int, *, age_s: float = LONG_AGO_S, **fields: Any) -> Permit:  # noqa: ANN401 - fields of a record, checked by it
        """A permit that runs."""
        self.seq += 1
        fields.setdefault("id", f"{session}-{self.seq}")
        fields.setdefault("state", "running")
        permit = Permit(
            seq=self.seq,
            session=session,
            units=units,
            target=fields.pop("target", units),
            granted_at_s=NOW_S - age_s,
            served_at_s=NOW_S - age_s,
            **fields,
        )
        self.snapshot = self.snapshot.replace(permits=(*self.snapshot.permits, permit))
        return permit

    def shows(self, **readings: Any) -> Scene:  # noqa: ANN401 - fields of a record, checked by it
        """The sample has these readings now."""
        self.sample = self.sample.replace(**readings)
        return self

    def decide(self) -> Decision:
        """What the arbiter says now; nothing changes."""
        return decide(self.snapshot, self.sample, self.policy, self.now)

    def step(self, seconds: float = 0.0) -> Decision:
        """Time passes, the arbiter decides, and it is applied."""
        self.now = Now(awake_s=self.now.awake_s + seconds, wall_s=self.now.wall_s + seconds)
        decision = self.decide()
        self.snapshot = after(self.snapshot, decision, self.policy, self.now)
        return decision

    def granted(self) -> dict[str, int]:
        """Ticket id -> units of the grants that would be made now."""
        return {grant.ticket.id: grant.units for grant in self.decide().grants}

    def units(self) -> list[int]:
        """Units of the grants that would be made now, in their order."""
        return [grant.units for grant in self.decide().grants]

    def why(self, ticket: Ticket) -> tuple[Reason, ...]:
        """Every reason why it waits."""
        return explain(self.snapshot, self.sample, self.policy, self.now, ticket)

    def lines(self, ticket: Ticket) -> list[str]:
        """The same for a person."""
        return [render(reason, self.now) for reason in self.why(ticket)]
