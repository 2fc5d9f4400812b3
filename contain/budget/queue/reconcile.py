"""What becomes of requests whose owners are gone. Facts are observed before the lock, and used under it.

A birth that is gone never comes back, so an old fact can only release late, never wrongly. Unknown is not gone: it
keeps what it has.

    what              owner              tree       then
    ticket            gone               -          withdrawn
    permit, unbound   gone               -          returned: nothing can have run
    permit, unbound   alive, 10 s awake  -          back to its place, dormant until its owner speaks
    permit, bound     any                gone       returned
    permit, bound     gone               otherwise  cleanup: the tree is ending, its end is waited for
    permit, bound     alive, 30 s        unopened   its init is killed (`unopened`); returned on its end
"""

from __future__ import annotations

from contain.budget.arbiter import leave, release
from contain.budget.registry.rows import PermitRow, TicketRow, dumps
from receipts import Unreadable, decode_proof, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from contain.backend import Birth
    from contain.budget.arbiter import Now
    from contain.budget.policy import Policy
    from contain.budget.registry import Book
    from receipts import Proof

UNBOUND_S = 10.0
"""A grant that nobody takes for so long, awake, is somebody else's turn."""

GLANCE = 64
"""So many of the waiting the sentinel looks at when it ticks: each is a few system calls, and a thousand may wait."""

GRANTED, BOUND, RUNNING, CLEANUP = "granted", "bound", "running", "cleanup"


def proof_of(text: str) -> Proof | None:
    """A proof as the registry has it; None for one that cannot be read: its tree is unknown, so its permit stays."""
    try:
        return decode_proof(jsontext.loads(text))
    except (ValueError, Unreadable):
        return None


def births(rows: Iterable[TicketRow | PermitRow]) -> dict[str, Birth | str]:
    """Whom to look at: every owner, under its JSON, and every proof (its JSON) under the key ``proof:ID``."""
    found: dict[str, Birth | str] = {}
    for row in rows:
        found[dumps(row.owner)] = row.owner
        if isinstance(row, PermitRow) and row.proof is not None:
            found[f"proof:{row.permit.id}"] = row.proof
    return found


def in_turn(rows: list[TicketRow], turn: int) -> list[TicketRow]:
    """``GLANCE`` of those who wait, others with every turn: all of a short queue, and a long one by and by."""
    first = turn * GLANCE % max(1, len(rows))
    return (rows[first:] + rows[:first])[:GLANCE]


def reconcile(book: Book, gone: Collection[str], policy: Policy, now: Now) -> None:
    """Applies what is known. ``gone``: keys of `births` that were proven gone."""
    snapshot = book.snapshot
    for ticket_id, row in list(book.tickets.items()) if gone else ():
        if dumps(row.owner) in gone:
            snapshot = leave(snapshot, ticket_id)
            book.note("vanished", row, now.awake_s, now.wall_s, "its owner is gone")
    for permit_id, permit in list(book.permits.items()):
        why = _over(permit_id, permit, gone)
        if why is not None:
            snapshot = release(snapshot, permit_id, policy, now)
            book.note("returned", permit, now.awake_s, now.wall_s, why)
        elif permit.proof is not None and permit.permit.state != CLEANUP and dumps(permit.owner) in gone:
            permits = tuple(
                one.replace(state=CLEANUP) if one.id == permit_id else one for one in snapshot.permits
            )
            snapshot = snapshot.replace(permits=permits)
            book.note("cleanup", permit, now.awake_s, now.wall_s, "its owner is gone, its tree is not yet")
    if snapshot is not book.snapshot:
        book.settle(snapshot, now.awake_s)
    for permit in list(book.permits.values()):
        if permit.permit.state == GRANTED and now.awake_s - permit.state_s > UNBOUND_S:
            _put_back(book, permit, policy, now)


def _over(permit_id: str, row: PermitRow, gone: Collection[str]) -> str | None:
    if row.proof is not None:
        # The drain is the evidence, whoever sees it: its owner may be stopped.
        why = "its owner and its tree are gone" if dumps(row.owner) in gone else "its tree is gone"
        return why if f"proof:{permit_id}" in gone else None
    return "its owner is gone, and nothing was bound" if dumps(row.owner) in gone else None


def _put_back(book: Book, row: PermitRow, policy: Policy, now: Now) -> None:
    """To its own place, where it is passed over until its owner speaks again."""
    book.settle(release(book.snapshot, row.permit.id, policy, now), now.awake_s)
    ticket = row.ticket.replace(seq=row.permit.seq, dormant=True)
    back = TicketRow(
        ticket=ticket,
        owner=row.owner,
        wake=row.wake,
        since_s=row.since_s,
        until_s=row.until_s,
        returned=row.returned + 1,
    )
    book.put_back(back)
    tickets = tuple(sorted((*book.snapshot.tickets, ticket), key=lambda one: one.seq))
    book.snapshot = book.snapshot.replace(tickets=tickets)
    book.note("dormant", back, now.awake_s, now.wall_s, f"it was granted, and not taken for {UNBOUND_S:g} s")
