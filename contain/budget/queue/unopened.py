"""Permits that are bound to a tree whose command does not start: their wrapper was stopped just before the gate.

What is running is on disk before the gate opens (the receipt says so), so a receipt that does not say it is proof that
nothing has run. Then what leads it (init, anchor) alone is killed, and its permit returns on its end like any other.
"""

from __future__ import annotations

from contain.budget.queue.reconcile import BOUND, proof_of
from receipts import PREPARED, Receipt, Store, Unreadable, Unsafe, open_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.backend import Backend
    from contain.budget.arbiter import Now
    from contain.budget.registry import Book, PermitRow

LOOKED_AT_S = 1.0
"""Between bind and gate lie two writes; whoever takes longer is looked at."""
UNOPENED_S = 30.0


def look(book: Book, backend: Backend, now: Now) -> list[str]:
    """The ids of bound permits whose commands have begun. Ends the trees of those that should have, long ago."""
    begun = []
    for permit_id, row in book.permits.items():
        age_s = now.awake_s - row.state_s
        if row.permit.state != BOUND or age_s < LOOKED_AT_S:
            continue
        found = _begun(row, backend)
        if found:
            begun.append(permit_id)
        elif found is False and age_s >= UNOPENED_S and (proof := proof_of(row.proof or "")) is not None:
            backend.finish(proof, 0.0, kill=True)
    return begun


def _begun(row: PermitRow, backend: Backend) -> bool | None:
    """Whether the command may have run; None where the receipt cannot be read, and so proves nothing."""
    if row.receipts is None or row.job_id is None:
        return None
    try:
        with open_place(row.receipts, statfs_type=backend.file_system_magic, create=False) as place:
            receipt = Store(place.fd, place.path).find(row.job_id)
    except (Unsafe, OSError):
        return None
    if isinstance(receipt, Unreadable):
        return None
    # None: an adapter that binds at once writes its first receipt when it is bound, and before the gate.
    return isinstance(receipt, Receipt) and receipt.state != PREPARED
