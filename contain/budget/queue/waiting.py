"""One request, from its ticket to its grant.

The oldest ticket that is not dormant is the sentinel's: it looks at everybody every 2 s, and at once when a permit's
owner or tree ends. Every other waiter watches its predecessor alone and sleeps; the second in line also looks every
30 s, and so takes over from a sentinel that is stopped. Whoever is granted is rung.
"""

from __future__ import annotations

import select
import time

from contain.budget.arbiter import explain, render
from contain.budget.queue import reconcile
from contain.budget.queue.desk import proof_of
from contain.budget.queue.wake import Bell
from contain.budget.registry.rows import TicketRow
from contain.errors import LockUnavailable, NeverPossible, RegistryDamaged, WaitedTooLong, WaitInterrupted
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from contain.backend import Backend, Watched
    from contain.budget.arbiter import Ticket
    from contain.budget.queue.desk import Desk
    from contain.budget.registry import Book, PermitRow

    class Interrupts(Protocol):
        """What may end the wait: ``fd`` can be read when something came, ``ask`` says whether it ends the wait."""

        fd: int

        def asked(self) -> str | None:
            """The name of what came (``SIGINT``), or None."""

    class Native(Protocol):
        """A program of a few pages that can wait in this process's place."""

        def become(self, row: TicketRow, wake: Sequence[int]) -> None:
            """Does not return where it can be had. This process begins anew when one of ``wake`` can be read."""
else:
    Interrupts = Native = object

TICK_S = 2.0
SECOND_TICK_S = 30.0
NATIVE_AFTER_S = 2.0
"""Who waits longer, and has nothing to look after, does so without Python: a thousand of those are gigabytes."""


class Standing(Record):
    """How a waiting ticket stands: for people."""

    place: int
    waiting: int
    reasons: tuple[str, ...]
    eta_s: float | None


class Waiting:
    """A request that waits for its grant. ``tell`` is called with a Standing when that has changed."""

    def __init__(
        self,
        desk: Desk,
        backend: Backend,
        ticket: Ticket,
        *,
        until_s: float | None,
        interrupts: Interrupts | None,
        tell: Callable[[Standing], None],
    ) -> None:
        """``until_s``: awake seconds; None waits for ever."""
        self._desk = desk
        self._backend = backend
        self._ticket = ticket
        self._until_s = until_s
        self._interrupts = interrupts
        self._tell = tell
        self.bell: Bell
        self._row: TicketRow
        self._restored = False
        self._ticked_s = time.monotonic()

    def run(self, native: Native | None = None, resumed: TicketRow | None = None) -> PermitRow:
        """Waits. Raises WaitedTooLong, WaitInterrupted and NeverPossible; then no ticket is left.

        ``native``: may wait for us. ``resumed``: what it was given; that ticket stands, and is waited for.
        ``bell`` stays the caller's: it rings again when the permit's target changes.
        """
        ticket = self._ticket
        self._native, self._native_at_s = native, time.monotonic() + NATIVE_AFTER_S
        self.bell = Bell(self._desk.registry.folder, ticket.id, again=resumed is not None)
        try:
            row = resumed or TicketRow(
                ticket=ticket,
                owner=self._desk.owner(),
                wake=self.bell.name,
                since_s=self._desk.now().awake_s,
                until_s=self._until_s,
            )
            self._row = row if resumed else self._desk.enqueue(row)
            return self._wait()
        except BaseException:
            self.bell.close()
            raise

    def _wait(self) -> PermitRow:
        try:
            while True:
                book = self._desk.look()
                granted = book.permits.get(self._ticket.id)
                if granted is not None:
                    return granted
                self._speak(book)
                self._check(book)
                self._sleep(book)
        except (LockUnavailable, RegistryDamaged):
            raise  # nothing can be changed there now; the ticket ends with us, its owner
        except BaseException as error:
            # Whatever ends the wait, a kill but for -9 included: the ticket is gone before we are.
            self._desk.withdraw(self._ticket.id, type(error).__name__)
            raise

    def _speak(self, book: Book) -> None:
        """A ticket that is missing, or dormant because we were stopped, takes its place again: once for the first.

        Not one that an operator has canceled: that is on record, and ends the wait.
        """
        found = book.tickets.get(self._ticket.id)
        if found is None:
            what, why = book.became(self._ticket.id)
            if what == "canceled":
                raise WaitInterrupted(
                    f"The ticket was canceled ({why}).",
                    advice="Ask again, or ask whoever canceled it.",
                    state="The command did not run.",
                )
            if self._restored:
                raise WaitInterrupted(
                    "The ticket has vanished from the queue twice.",
                    advice="Somebody removes tickets (contain cancel?); contain status shows the queue.",
                )
            self._restored = True
            self._desk.restore(self._row)
        elif found.ticket.dormant:
            self._desk.restore(found.replace(ticket=found.ticket.replace(dormant=False)))

    def _check(self, book: Book) -> None:
        ticket = next((one for one in book.snapshot.tickets if one.id == self._ticket.id), self._row.ticket)
        now = self._desk.now()
        reasons = explain(book.snapshot, self._desk.sample(), self._desk.policy, now, ticket)
        lines = tuple(render(reason, now) for reason in reasons)
        if any(reason.kind == "impossible" for reason in reasons):
            raise NeverPossible(
                f"This can never be granted here ({'; '.join(lines)}).",
                advice="Ask for less, or change the policy (contain policy show).",
            )
        if self._until_s is not None and now.awake_s >= self._until_s:
            raise WaitedTooLong(
                f"Not granted in time ({'; '.join(lines)}).",
                advice="contain status shows who has what; ask again, or wait longer (--max-wait).",
            )
        order = [one.id for one in book.snapshot.tickets]
        place = order.index(ticket.id) + 1 if ticket.id in order else 0
        self._tell(Standing(place=place, waiting=len(order), reasons=lines, eta_s=_eta_s(book, now.awake_s)))
        caught = self._interrupts.asked() if self._interrupts is not None else None
        if caught is not None:
            raise WaitInterrupted(
                f"{caught} came while waiting.", advice="", state="The ticket is withdrawn."
            )

    def _sleep(self, book: Book) -> None:
        """Until something may have changed for us; then, as the sentinel, everybody's change is made."""
        awake = [row for row in book.tickets.values() if not row.ticket.dormant]
        place = next((n for n, row in enumerate(awake) if row.ticket.id == self._ticket.id), 0)
        watched = self._watched(book) if place == 0 else [self._backend.watch(awake[place - 1].owner)]
        try:
            gone = any(one.observation.gone for one in watched)
            live = [one for one in watched if one.fd >= 0]
            every_s = 0.0 if gone else TICK_S if place == 0 else SECOND_TICK_S if place == 1 else None
            ended = self._poll(live, self._native_s(live) if every_s is None else self._due_s(every_s))
            # Who only rang has decided already; a tick of ours would ring back.
            if ended or (every_s is not None and self._due_s(every_s) <= 0):
                self._desk.tick()
                self._ticked_s = time.monotonic()
        finally:
            for one in watched:
                one.close()

    def _due_s(self, every_s: float) -> float:
        return max(0.0, self._ticked_s + every_s - time.monotonic())

    def _native_s(self, watched: list[Watched]) -> float | None:
        """In how many seconds the native waiter takes our place (now: this does not return); None where none can."""
        if self._native is None:
            return None
        left_s = self._native_at_s - time.monotonic()
        if left_s > 0:
            return left_s
        self._desk.registry.close()
        self._native.become(self._row, [self.bell.fd, *(one.fd for one in watched)])
        self._native = None
        return None

    def _watched(self, book: Book) -> list[Watched]:
        """As the sentinel: the owner of every permit, and every tree whose owner is gone."""
        found: list[Watched] = []
        for row in book.permits.values():
            if not self._desk.gone(row):
                found.append(self._backend.watch(row.owner))
            elif row.permit.state == reconcile.CLEANUP and (proof := proof_of(row.proof or "")) is not None:
                found.append(self._backend.watch(proof))
        return found

    def _poll(self, watched: list[Watched], tick_s: float | None) -> bool:
        """True when it is on us to look at everybody: something that is watched has ended, or it is time."""
        poll = select.poll()
        fds = [self.bell.fd, *(one.fd for one in watched)]
        if self._interrupts is not None:
            fds.append(self._interrupts.fd)
        for fd in fds:
            poll.register(fd, select.POLLIN)
        waits = [tick_s] if tick_s is not None else []
        if self._until_s is not None:
            waits.append(max(0.0, self._until_s - time.monotonic()))
        ready = {fd for fd, _ in poll.poll(min(waits) * 1000 if waits else None)}
        if self.bell.fd in ready:
            self.bell.silence()
        return any(one.fd in ready for one in watched)


def _eta_s(book: Book, now_s: float) -> float | None:
    """When the next permit is expected to return, by what its class usually takes; None where nobody holds one."""
    ends = [row.permit.granted_at_s + row.ticket.expected_s - now_s for row in book.permits.values()]
    return max(0.0, min(ends)) if ends else None
