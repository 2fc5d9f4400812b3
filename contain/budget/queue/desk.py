"""Every change of the registry. Whoever holds the lock is the judge: a commit that frees or adds also decides."""

from __future__ import annotations

import time

from contain.budget.arbiter import (
    Now,
    after,
    decide,
    enqueue,
    explain,
    leave,
    measured,
    release,
    render,
    run_anyway,
    settled,
)
from contain.budget.queue import reconcile, unopened, wake
from contain.budget.queue.line import Line
from contain.budget.registry import bindings
from contain.budget.registry.rows import dumps
from contain.errors import NestedRefused, PermitLost
from contain.job import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import TypeVar

    from contain.backend import Backend, Birth
    from contain.budget.arbiter import Decision, Health, Hold, Sample, Snapshot
    from contain.budget.policy import Policy
    from contain.budget.queue.meter import Meter, Uses
    from contain.budget.registry import Book, PermitRow, Registry, TicketRow

    T = TypeVar("T")

SAMPLE_S = 2.0
"""No decision is made on an older look at the machine."""


class Desk:
    """One process's way to the registry: looks before the lock, changes and decides inside, wakes after it."""

    def __init__(
        self,
        registry: Registry,
        policy: Policy,
        backend: Backend,
        sample: Callable[[], Sample],
        operator: Callable[[], tuple[tuple[Hold, ...], Mapping[str, Health]]],
        forget: Callable[[str, str | None], None] = lambda _id, _proof: None,
    ) -> None:
        """``sample`` reads the machine, ``operator`` the holds and pools' health; neither is called in the lock.

        ``forget`` removes what else a killed owner has left, by its ticket's id and its proof.
        """
        self.meter: Meter | None = None
        """What permits use; without one nothing is known of that."""
        self._forget = forget
        self.judges = True
        """False in a process from whose PID namespace no birth of the registry can be seen: it only looks."""
        self.registry = registry
        self.policy = policy
        self._backend = backend
        self._read_sample = sample
        self._read_operator = operator
        self._gone: set[str] = set()
        self._turn = 0
        self._sample: Sample | None = None
        self._sampled_s = float("-inf")

    # -- looking, outside the lock ---------------------------------------------------------------------------------

    @staticmethod
    def now() -> Now:
        """CLOCK_MONOTONIC stands still in suspend: nothing has expired when a lid opens."""
        return Now(awake_s=time.monotonic(), wall_s=time.time())

    def sample(self) -> Sample:
        """A look at the machine, at most ``SAMPLE_S`` old."""
        now_s = time.monotonic()
        if self._sample is None or now_s - self._sampled_s > SAMPLE_S / 2:
            self._sample = self._read_sample()
            self._sampled_s = now_s
        return self._sample

    def look(self) -> Book:
        """The registry as it was last committed."""
        return self.registry.look(*self._read_operator())

    def judged(self, snapshot: Snapshot) -> Snapshot:
        """With what was measured of the permits: what decisions and reasons are made of, and what is never stored."""
        return _with(self._uses(), snapshot)

    def _uses(self) -> Uses:
        return {} if self.meter is None else self.meter.uses()

    def permit(self, permit_id: str) -> PermitRow | None:
        """One permit as it was last committed: cheap, however many wait."""
        return self.registry.permit(permit_id)

    def observe(self, rows: Iterable[TicketRow | PermitRow]) -> None:
        """Looks at every birth in these rows that is not known to be gone."""
        for key, born in reconcile.births(rows).items():
            if key not in self._gone:
                known = reconcile.proof_of(born) if isinstance(born, str) else born
                if known is None:
                    continue
                watched = self._backend.watch(known)
                watched.close()
                if watched.observation.gone:
                    self._gone.add(key)

    # -- changing, inside ------------------------------------------------------------------------------------------

    def commit(self, change: Callable[[Book, Now], T]) -> tuple[T, Decision, Book]:
        """One transaction: ``change`` is made, the dead are settled, and what can be granted is granted.

        Who is granted is there: its bell is, or it was looked at. Nobody is looked at inside the lock: a decision that
        grants to somebody else is forgotten, and made again after the look. So ``change`` may be called more than once.
        """
        if not self.judges:
            raise NestedRefused(
                "This runs inside a job of this budget, from where nobody's end can be seen.",
                advice="Change the budget from outside the job.",
                state="Nothing was changed.",
            )
        seen: set[str] = set()
        while True:
            sample, operator = self.sample(), self._read_operator()
            uses = self._uses()  # a file, so it is read before the lock
            with self.registry.transaction(*operator) as book:
                now = self.now()
                before = Line(book)
                # The owner's own word first: it knows more than that somebody is gone.
                result = change(book, now)
                reconcile.reconcile(book, self._gone, self.policy, now)
                decision = decide(_with(uses, book.snapshot), sample, self.policy, now)
                strangers = self._strangers(book, decision, seen)
                book.forgotten = bool(strangers)
                if not strangers:
                    bells = self._carry_out(before, book, decision, now)
            if not strangers:
                break
            self.observe(strangers)
            seen.update([dumps(row.owner) for row in strangers])
        for name in bells:
            wake.ring(self.registry.folder, name)
        for row in before.left(book):
            if self.gone(row):  # it was killed: what it has left
                wake.forget(self.registry.folder, row.ticket.id)
                self._forget(row.ticket.id, getattr(row, "proof", None))
        return result, decision, book

    def _strangers(self, book: Book, decision: Decision, seen: Collection[str]) -> list[TicketRow]:
        """Who would be granted, and may not be there."""
        granted = [book.tickets[grant.ticket.id] for grant in decision.grants]
        folder = self.registry.folder
        silent = [row for row in granted if not row.wake or not wake.listens(folder, row.wake)]
        return [row for row in silent if dumps(row.owner) not in seen]

    def _carry_out(self, before: Line, book: Book, decision: Decision, now: Now) -> list[str]:
        """Writes what was decided; returns the bells to ring."""
        book.settle(after(book.snapshot, decision, self.policy, now), now.awake_s)
        self._write_down(book, [permit_id for permit_id, _ in decision.targets])
        for grant in decision.grants:
            book.note("granted", book.permits[grant.ticket.id], now.awake_s, now.wall_s, grant.how)
        return self._bells(before, book, decision)

    def _bells(self, before: Line, book: Book, decision: Decision) -> list[str]:
        """Of everyone who must look. Grants are derived from the rows: nothing is lost with a judge that dies here."""
        moved = {name for name, _ in decision.targets}
        rows: list[TicketRow | PermitRow] = [row for name, row in book.permits.items() if name in moved]
        rows += [row for row in book.permits.values() if row.permit.state == reconcile.GRANTED]
        rows += before.moved(Line(book))
        rows += [row for row in before.left(book) if not self.gone(row)]
        return list(dict.fromkeys(row.wake for row in rows if row.wake))

    def _write_down(self, book: Book, permit_ids: Iterable[str]) -> None:
        """Beside the registry, before it counts: what these bound permits have now."""
        bound = [row for row in book.permits.values() if row.proof is not None]
        for permit_id in permit_ids:
            row = book.permits[permit_id]
            if row.proof is not None:
                bindings.note(self.registry.folder, row, [one for one in bound if one is not row])

    def tick(self, *suspects: TicketRow | PermitRow) -> Book:
        """Settles and decides: what the sentinel does.

        Looks at every holder and at what is bound and should run, at some of the waiting (others each time) and at
        ``suspects``.
        """
        book = self.look()
        if not self.judges:
            return book
        waiting = reconcile.in_turn(list(book.tickets.values()), self._turn)
        self._turn += 1
        self.observe([*book.permits.values(), *waiting, *suspects])
        begun = unopened.look(book, self._backend, self.now())
        if self.meter is not None:
            self.meter.measure(book.permits.values())

        def change(book: Book, now: Now) -> None:
            for permit_id in begun:
                row = book.permits.get(permit_id)
                if row is not None and row.permit.state == reconcile.BOUND:
                    book.restate(permit_id, reconcile.RUNNING, now.awake_s)

        book = self.commit(change)[2]
        wake.sweep(self.registry.folder, {*book.tickets, *book.permits})
        return book

    def enqueue(self, row: TicketRow) -> TicketRow:
        """A new ticket at the end of the line; it may be granted in the same commit.

        Who waits first is the sentinel from now on, and nobody has looked at the holders before it.
        """

        def change(book: Book, now: Now) -> TicketRow:
            placed = book.add(row)
            snapshot = enqueue(book.snapshot, placed.ticket, self.policy)
            book.settle(snapshot, now.awake_s)
            book.note("asked", placed, now.awake_s, now.wall_s)
            return placed

        placed, _, book = self.commit(change)
        if next(iter(book.tickets), None) == placed.ticket.id:
            self.tick()
        return placed

    def run_anyway(self, ticket_id: str) -> None:
        """The ticket's time is over, and the policy lets it run: a permit that was not granted, and is counted."""

        def change(book: Book, now: Now) -> None:
            if ticket_id in book.tickets:
                book.settle(run_anyway(book.snapshot, ticket_id, self.policy, now), now.awake_s)
                book.note("granted", book.permits[ticket_id], now.awake_s, now.wall_s, "open")

        self.commit(change)

    def restore(self, row: TicketRow) -> None:
        """A ticket that vanished, or was dormant, at its own place again."""

        def change(book: Book, now: Now) -> None:
            if row.ticket.id in book.permits:
                return
            book.put_back(row)
            others = [one for one in book.snapshot.tickets if one.id != row.ticket.id]
            tickets = tuple(sorted((*others, row.ticket), key=lambda one: one.seq))
            book.snapshot = book.snapshot.replace(tickets=tickets)
            book.note("restored", row, now.awake_s, now.wall_s)

        self.commit(change)

    def withdraw(self, ticket_id: str, why: str) -> None:
        """The ticket, or the grant that came meanwhile, is given up by its owner."""

        def change(book: Book, now: Now) -> None:
            row = book.tickets.get(ticket_id) or book.permits.get(ticket_id)
            if row is None:
                return
            book.note("withdrawn", row, now.awake_s, now.wall_s, why)
            snapshot = release(leave(book.snapshot, ticket_id), ticket_id, self.policy, now)
            book.settle(snapshot, now.awake_s)

        self.commit(change)

    def cancel(self, ticket_id: str, why: str) -> bool:
        """The ticket is taken out of the queue by somebody else, and its owner is rung; False where there is none."""

        def change(book: Book, now: Now) -> bool:
            row = book.tickets.get(ticket_id)
            if row is None:
                return False
            book.note("canceled", row, now.awake_s, now.wall_s, why)
            book.settle(leave(book.snapshot, ticket_id), now.awake_s)
            return True

        return self.commit(change)[0]

    def bind(self, permit_id: str, proof: str, receipts: str, job_id: str) -> None:
        """The permit is this containment's from now on. Raises PermitLost."""

        def change(book: Book, now: Now) -> None:
            row = book.permits.get(permit_id)
            if row is None or row.permit.state != reconcile.GRANTED:
                raise PermitLost(
                    f"The permit {permit_id} is not there any more.",
                    advice="Ask again; contain status shows what became of it.",
                )
            bound = row.replace(
                permit=row.permit.replace(state=reconcile.BOUND),
                proof=proof,
                receipts=receipts,
                job_id=job_id,
                state_s=now.awake_s,
            )
            book.put(bound)
            self._write_down(book, [permit_id])
            permits = tuple(bound.permit if one.id == permit_id else one for one in book.snapshot.permits)
            book.snapshot = book.snapshot.replace(permits=permits)

        self.commit(change)

    def settle(self, permit_id: str, units: int) -> None:
        """The job holds ``units`` from now on: what it had above them is free, and accounted so."""

        def change(book: Book, now: Now) -> None:
            row = book.permits.get(permit_id)
            if row is None:
                return
            permits = tuple(
                settled(one, self.policy, now, units) if one.id == permit_id else one
                for one in book.snapshot.permits
            )
            book.settle(book.snapshot.replace(permits=permits), now.awake_s)
            self._write_down(book, [permit_id])

        self.commit(change)

    def draw(self, permit: PermitRow, draws: tuple[tuple[str, int], ...]) -> tuple[str, str]:
        """More of some pools for a job that has a permit, at once or not at all: (its id, "") or ("", why not)."""
        assert permit.proof is not None
        ticket = permit.ticket.replace(
            id=new_id(), min_units=0, want_units=0, mem_mib=0, draws=draws, unit_draws=(), resizable=False
        )
        row = self.enqueue(permit.replace_ticket(ticket, self.now().awake_s))
        book = self.look()
        if ticket.id in book.permits:
            self.bind(ticket.id, permit.proof, permit.receipts or "", permit.job_id or "")
            return ticket.id, ""
        now = self.now()
        reasons = explain(self.judged(book.snapshot), self.sample(), self.policy, now, row.ticket)
        self.withdraw(ticket.id, "nested requests do not wait")
        return "", "; ".join(render(reason, now) for reason in reasons) or "it is not free now"

    def release(self, permit_id: str, why: str) -> None:
        """The permit returns: its tree is proven gone, or was never made."""

        def change(book: Book, now: Now) -> None:
            row = book.permits.get(permit_id)
            if row is None:
                return  # somebody saw the same proof before us
            book.note("returned", row, now.awake_s, now.wall_s, why)
            book.settle(release(book.snapshot, permit_id, self.policy, now), now.awake_s)

        self.commit(change)

    def give_back(self, permit_id: str, why: str) -> None:
        """A grant that was not used returns. One that is bound stays: its tree decides."""

        def change(book: Book, now: Now) -> None:
            row = book.permits.get(permit_id)
            if row is None or row.permit.state != reconcile.GRANTED:
                return
            book.note("returned", row, now.awake_s, now.wall_s, why)
            book.settle(release(book.snapshot, permit_id, self.policy, now), now.awake_s)

        self.commit(change)

    def owner(self) -> Birth:
        """This process."""
        return self._backend.birth()

    def gone(self, row: TicketRow | PermitRow) -> bool:
        """Whether the owner is known to be gone."""
        return dumps(row.owner) in self._gone


def _with(uses: Uses, snapshot: Snapshot) -> Snapshot:
    return measured(snapshot, uses) if uses else snapshot
