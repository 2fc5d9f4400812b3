"""Stops or kills itself while it holds the registry's lock: ``python -m tests.faults.in_the_lock FOLDER SIGNAL``."""

from __future__ import annotations

import os
import sys

from contain.budget.arbiter import Ticket
from contain.budget.registry import TicketRow
from tests.budget.customer import desk, say


def main() -> int:
    """With a ticket half written. Whoever continues it lets it commit."""
    folder, number = sys.argv[1], int(sys.argv[2])
    counter = desk(folder)
    with counter.registry.transaction((), {}) as book:
        ticket = Ticket(id="half-written", seq=0, session="lock")
        book.add(TicketRow(ticket=ticket, owner=counter.owner(), since_s=0.0))
        say("inside")
        os.kill(os.getpid(), number)
    say("outside")
    sys.stdin.readline()
    return 0


if __name__ == "__main__":
    sys.exit(main())
