"""One request, from its ticket to its grant.

The oldest ticket that is not dormant is the sentinel's: it looks at everybody every 2 s, and at once when a permit's
owner or tree ends. Every other waiter watches its predecessor alone and sleeps; the second in line also looks every
30 s, and so takes over from a sentinel that is stopped. Whoever is granted is rung.
"""

from __future__ import annotations

import select
import time

from contain.budget.arbiter import explain, render
from contain.budget.queue import eta, reconcile
from contain.budget.queue.wake import Bell
from contain.budget.registry.rows import TicketRow
from contain.errors import LockUnavailable, NeverPossible, RegistryDamaged, WaitedTooLong, WaitInterrupted
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
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
    """A request that waits for its grant, in steps: ``run`` takes them for one, a loop of its own for many.

    ``begin``, then ``step`` until it returns a permit; between two of them ``fds`` and ``due_s`` say what to sleep for,
    and ``wake`` is told what came. Where it ends without a permit: ``withdraw`` and ``end``. With one, ``bell`` stays
    the caller's: it rings again when the permit's target changes.
    ``tell`` is called with a Standing at each step.
    """

    def __init__(
        self,
        desk: Desk,
        backend: Backend,
        ticket: Ticket,
        *,
        until_s: float | None,
        interrupts: Interrupts | None,
        tell: Callable[[Standing], None],
        runs_anyway: bool = False,
    ) -> None:
        """``until_s``: awake seconds; None waits for ever. ``runs_anyway``: what comes then, instead of an error."""
        self._runs_anyway = runs_anyway
        self._desk = desk
        self._backend = backend
        self._ticket = ticket
        self._until_s = until_s
        self._interrupts = interrupts
        self._tell = tell
        self.bell: Bell
        self._row: TicketRow
        self._restored = False
        self._watched: list[Watched] = []
        self._predecessor: list[TicketRow] = []
        self._ticked_s = time.monotonic()
        self._tick_at_s: float | None = None
        self._native: Native | None = None
        self._native_at_s = 0.0

    def run(self, native: Native | None = None, resumed: TicketRow | None = None) -> PermitRow:
        """Waits. Raises WaitedTooLong, WaitInterrupted and NeverPossible; then no ticket is left, and no bell.

        ``native``: may wait for us. ``resumed``: what it was given; that ticket stands, and is waited for.
        """
        self._native, self._native_at_s = native, time.monotonic() + NATIVE_AFTER_S
        self.begin(resumed)
        try:
            while (granted := self.step()) is None:
                self.wake(self._poll())
        except LockUnavailable:
            self.end()
            raise  # nothing can be changed there now; the ticket ends with us, its owner
        except BaseException as error:
            # Whatever ends the wait, a kill but for -9 included: the ticket is gone before we are.
            try:
                self.withdraw(type(error).__name__)
            finally:
                self.end()
            raise
        return granted

    # -- the steps -------------------------------------------------------------------------------------------------

    def begin(self, resumed: TicketRow | None = None) -> None:
        """Opens the bell, then commits the ticket. Raises RegistryDamaged and its like; then nothing is left."""
        self.bell = Bell(self._desk.registry.folder, self._ticket.id, again=resumed is not None)
        try:
            row = resumed or TicketRow(
                ticket=self._ticket,
                owner=self._desk.owner(),
                wake=self.bell.name,
                since_s=self._desk.now().awake_s,
                until_s=self._until_s,
            )
            self._row = row if resumed else self._desk.enqueue(row)
        except LockUnavailable:
            self.bell.close()
            raise  # nothing can be changed there now
        except BaseException as error:
            # It may have been committed before what came came.
            try:
                self.withdraw(type(error).__name__)
            finally:
                self.bell.close()
            raise

    def step(self) -> PermitRow | None:
        """The permit, once it is granted. Raises as ``run``; then the ticket is still to be withdrawn."""
        self._forget()
        try:
            granted = self._desk.permit(self._ticket.id)
            if granted is not None:
                return granted
            book = self._desk.look()
            self._speak(book)
            self._check(book)
        except RegistryDamaged as error:
            # Nothing is granted from what cannot be read, and nobody is sent away: after a repair we ask again.
            self._expire(error.message)
            self._tell(Standing(place=0, waiting=0, reasons=(str(error),), eta_s=None))
            self._tick_at_s = time.monotonic() + TICK_S
        else:
            self._attend(book)
        return None

    def fds(self) -> list[int]:
        """Each can be read when something may have changed for us."""
        return [self.bell.fd, *(one.fd for one in self._watched if one.fd >= 0)]

    @property
    def due_s(self) -> float | None:
        """When (monotonic) to go on even if nothing came; None: never."""
        times = [at_s for at_s in (self._tick_at_s, self._until_s) if at_s is not None]
        return min(times) if times else None

    def wake(self, ready: Collection[int]) -> None:
        """What came: ``ready`` of ``fds``, or the time. As the sentinel, everybody's change is made."""
        if self.bell.fd in ready:
            self.bell.silence()
        ended = any(one.fd in ready or one.observation.gone for one in self._watched)
        # Who only rang has decided already; a tick of ours would ring back.
        if ended or (self._tick_at_s is not None and time.monotonic() >= self._tick_at_s):
            self._ticked_s = time.monotonic()
            try:
                self._desk.tick(*self._predecessor)
            except RegistryDamaged:
                pass  # the next step meets it too, and says so

    def withdraw(self, why: str) -> None:
        """Gives the ticket up, or the permit that it has become meanwhile."""
        try:
            self._desk.withdraw(self._ticket.id, why)
        except RegistryDamaged:
            pass  # it stands in no registry that anybody will read: a repair brings back permits, not tickets

    def end(self) -> None:
        """Lets go of every descriptor."""
        self._forget()
        self.bell.close()

    # -- what a step does ------------------------------------------------------------------------------------------

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
            return
        self._restored = False
        if found.ticket.dormant:
            self._desk.restore(found.replace(ticket=found.ticket.replace(dormant=False)))

    def _check(self, book: Book) -> None:
        ticket = next((one for one in book.snapshot.tickets if one.id == self._ticket.id), self._row.ticket)
        now = self._desk.now()
        reasons = explain(
            self._desk.judged(book.snapshot), self._desk.sample(), self._desk.policy, now, ticket
        )
        lines = tuple(render(reason, now) for reason in reasons)
        if any(reason.kind == "impossible" for reason in reasons):
            raise NeverPossible(
                f"This can never be granted here ({'; '.join(lines)}).",
                advice="Ask for less, or change the policy (contain policy show).",
            )
        self._expire("; ".join(lines))
        order = [one.id for one in book.snapshot.tickets]
        place = order.index(ticket.id) + 1 if ticket.id in order else 0
        self._tell(Standing(place=place, waiting=len(order), reasons=lines, eta_s=_eta_s(book, now.awake_s)))

    def _expire(self, why: str) -> None:
        """Raises WaitedTooLong when the time is over, WaitInterrupted when somebody wants an end."""
        if self._until_s is not None and self._desk.now().awake_s >= self._until_s:
            if self._runs_anyway:
                self._desk.run_anyway(self._ticket.id)
                return
            raise WaitedTooLong(
                f"Not granted in time ({why}).",
                advice="contain status shows who has what; ask again, or wait longer (--max-wait).",
            )
        caught = self._interrupts.asked() if self._interrupts is not None else None
        if caught is not None:
            raise WaitInterrupted(
                f"{caught} came while waiting.", advice="", state="The ticket is withdrawn."
            )

    def _attend(self, book: Book) -> None:
        """Whom to watch until the next step, and when to look in any case."""
        awake = [row for row in book.tickets.values() if not row.ticket.dormant]
        place = next((n for n, row in enumerate(awake) if row.ticket.id == self._ticket.id), 0)
        self._predecessor = awake[place - 1 : place]
        if place == 0:
            self._watched = self._everybody(book)
        elif awake[place - 1].owner != self._row.owner:
            self._watched = [self._backend.watch(awake[place - 1].owner)]
        tick_s = TICK_S if place == 0 else SECOND_TICK_S if place == 1 else None
        self._tick_at_s = None if tick_s is None else self._ticked_s + tick_s
        if any(one.observation.gone for one in self._watched):
            self._tick_at_s = time.monotonic()

    def _everybody(self, book: Book) -> list[Watched]:
        """As the sentinel: the owner of every permit but of our own, and every tree whose owner is gone."""
        found: list[Watched] = []
        for row in book.permits.values():
            if row.owner == self._row.owner:
                continue  # this very process will not see its own end
            if not self._desk.gone(row):
                found.append(self._backend.watch(row.owner))
            elif (
                row.permit.state == reconcile.CLEANUP
                and (proof := reconcile.proof_of(row.proof or "")) is not None
            ):
                found.append(self._backend.watch(proof))
        return found

    def _forget(self) -> None:
        for one in self._watched:
            one.close()
        self._watched = []
        self._tick_at_s = None

    def _poll(self) -> set[int]:
        """Sleeps for one alone: until something comes, or the time."""
        poll = select.poll()
        fds = self.fds()
        if self._native is not None and self._tick_at_s is None and time.monotonic() >= self._native_at_s:
            self._desk.registry.close()
            self._native.become(self._row, fds)  # comes back where it cannot be had
            self._native = None
        if self._interrupts is not None:
            fds.append(self._interrupts.fd)
        for fd in fds:
            poll.register(fd, select.POLLIN)
        due_s = self.due_s
        if self._native is not None and self._tick_at_s is None:
            due_s = self._native_at_s if due_s is None else min(due_s, self._native_at_s)
        return {
            fd for fd, _ in poll.poll(None if due_s is None else max(0.0, due_s - time.monotonic()) * 1000)
        }


def _eta_s(book: Book, now_s: float) -> float | None:
    """When the next permit is expected to return, by what its class usually takes; None where nobody holds one."""
    return min((eta.left_s(row, now_s) for row in book.permits.values()), default=None)
