"""When a waiting ticket may expect its turn: by what each class usually takes, and by cpu units alone. A guess."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from contain.budget.registry import Book, PermitRow


def left_s(row: PermitRow, now_s: float) -> float:
    """Seconds until a permit is expected to return; 0 when it has taken longer than its class usually does."""
    return max(0.0, row.permit.granted_at_s + row.ticket.expected_s - now_s)


def turns(book: Book, now_s: float) -> Mapping[str, float | None]:
    """Ticket id -> seconds until its expected grant, in the order of arrival.

    None where units are not what it waits for, or where nothing that runs tells of an end.
    """
    free = book.snapshot.limit.limit
    ends: list[tuple[float, int]] = []
    for row in book.permits.values():
        free -= row.permit.accounted
        ends.append((left_s(row, now_s), row.permit.accounted))
    heapify(ends)
    found: dict[str, float | None] = {}
    at_s = 0.0
    for ticket in (row.ticket for row in book.tickets.values()):
        if ticket.dormant or not ticket.min_units:
            found[ticket.id] = None
            continue
        waits = False
        while free < ticket.min_units and ends:
            at_s, units = heappop(ends)
            free += units
            waits = True
        fits = free >= ticket.min_units
        # Units are free and it waits all the same: for memory, a pool, a hold or a calmer machine.
        found[ticket.id] = at_s if fits and (waits or at_s) else None
        if fits:
            free -= ticket.min_units
            heappush(ends, (at_s + ticket.expected_s, ticket.min_units))
    return found
