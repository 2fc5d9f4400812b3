"""The one store of tickets and permits: of one account, one PID namespace and one boot.

    lock        flock(2) on a file beside it; nothing sleeps inside
    rows        a ticket or permit of the arbiter, and who owns it
    book        what is read and written in one transaction
    store       the SQLite file: opened once in a process, again after fork and after a repair
    bindings    what is bound, as lines beside it: for a repair
    rebuild     a registry made anew in the place of one that cannot be read

Nothing here survives a reboot, and nothing has to: the receipts do (ADR 0011). SIGKILL loses nothing: what was
committed is in the kernel's hands.
"""

from __future__ import annotations

from contain.budget.registry.book import Book
from contain.budget.registry.rows import PermitRow, TicketRow
from contain.budget.registry.store import Registry

__all__ = ["Book", "PermitRow", "Registry", "TicketRow"]
