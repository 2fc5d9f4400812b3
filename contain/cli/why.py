"""``contain why``: every reason why a ticket waits, or what a command would be and whether it would wait."""

from __future__ import annotations

import os
import sys

from contain.budget import asking, costs
from contain.budget.arbiter import Ticket, explain, render
from contain.cli.desk import opened, options, say
from contain.errors import NoReceipt, UsageError
from contain.job import new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.registry import Book


def main(args: list[str]) -> int:
    """Every reason why a ticket waits, or why a command would: ``contain why ID`` or ``contain why -- COMMAND``."""
    _, words = ({}, args[1:]) if args[:1] == ["--"] else options(args, (), ())
    if not words:
        raise UsageError(
            "contain why takes a ticket's id, or -- and a command.", advice="contain status lists them."
        )
    budget, desk = opened()
    book = desk.tick()
    if args[:1] == ["--"]:
        asked = asking.recognise(words, os.getcwd(), terminal=False)
        if not asked.takes_part:
            sys.stdout.write(f"{asked.name}: no permit is needed\n")
            return 0
        session, source = asking.session_of(os.environ)
        key = costs.key_of(asked, words[0], os.getcwd())
        learned = budget.costs(say).recall(key)
        ticket = asking.ticket(new_id(), asked, desk.policy, session, "", learned)
        taken = asking.expected(asked, desk.policy, learned)
        sys.stdout.write(
            f"class {asked.name} ({asked.tool or 'no tool of ours'}), lane {ticket.lane}, units {ticket.min_units}.."
            f"{ticket.want_units}, session {session} (from {source})\n"
            f"memory {taken.memory_mib:,} MiB ({taken.memory_from})\n"
            f"expected {taken.wall_s:.0f} s ({taken.wall_from}); key {key}\n"
        )
    else:
        ticket = waiting(book, words[0])
    now = desk.now()
    reasons = explain(book.snapshot, desk.sample(), desk.policy, now, ticket)
    for reason in reasons:
        sys.stdout.write(render(reason, now) + "\n")
    if not reasons:
        sys.stdout.write("it would be granted now\n")
    return 0


def waiting(book: Book, ticket_id: str) -> Ticket:
    """The ticket of this id. Raises NoReceipt where nobody of this id waits."""
    row = book.tickets.get(ticket_id)
    if row is None:
        held = book.permits.get(ticket_id)
        state = f"it is {held.permit.state}" if held is not None else "nobody of this id waits"
        raise NoReceipt(f"{ticket_id}: {state}.", advice="contain status lists who waits.", state="")
    return row.ticket
