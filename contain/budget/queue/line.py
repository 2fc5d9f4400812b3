"""Who stands where, and whom a change of that concerns.

A waiter sleeps with what it saw last: the first watches every permit, the second knows that it has to tick, each other
one watches its predecessor. Whoever would do otherwise after a commit is rung; nobody else is, and least of all
everybody's sentinel by a look that has changed nothing: that would ring itself again and again.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.registry import Book, PermitRow, TicketRow

SECOND = 1
"""The last place whose waiter ticks."""


class Line:
    """The waiting tickets that are not dormant, in their order, and the permits, at one moment of a book."""

    def __init__(self, book: Book) -> None:
        """Keeps the rows as they are now."""
        self._waiting = [row for row in book.tickets.values() if not row.ticket.dormant]
        self._waiting.sort(key=lambda row: row.ticket.seq)
        self._all: dict[str, TicketRow | PermitRow] = {**book.tickets, **book.permits}
        self._permits = {name: row.permit.state for name, row in book.permits.items()}
        names = [row.ticket.id for row in self._waiting]
        self._places = {name: (min(n, SECOND + 1), names[n - 1] if n else "") for n, name in enumerate(names)}

    def moved(self, after: Line) -> list[TicketRow]:
        """Whose place is another one ``after``: by predecessor or duty, or as the first, by the permits to watch."""
        places, watched = self._places, self._permits == after._permits
        return [
            row
            for n, row in enumerate(after._waiting)
            if after._places[row.ticket.id] != places.get(row.ticket.id) or (n == 0 and not watched)
        ]

    def left(self, book: Book) -> list[TicketRow | PermitRow]:
        """Who was here and is not in the ``book`` any more, neither as a ticket nor as a permit."""
        return [
            row for name, row in self._all.items() if name not in book.tickets and name not in book.permits
        ]
