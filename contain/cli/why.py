"""``contain why``: every reason why a ticket waits, or what a command would be and whether it would wait."""

from __future__ import annotations

import os
import sys

from contain.budget import asking, costs
from contain.budget.arbiter import explain, never, render
from contain.cli.desk import opened, options, say, whole_id
from contain.cli.status_table import plain, span
from contain.errors import NoReceipt, UsageError
from contain.job import new_id
from contain.lifecycle import terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.arbiter import Now, Ticket
    from contain.budget.opening import Budget
    from contain.budget.queue.desk import Desk
    from contain.budget.registry import Book, PermitRow


def main(args: list[str]) -> int:
    """Every reason why a ticket waits, or why a command would: ``contain why ID`` or ``contain why -- COMMAND``."""
    of_command = args[:1] == ["--"]
    words = args[1:] if of_command else options(args, (), ())[1]
    if not words or not words[0] or (not of_command and len(words) > 1):
        raise UsageError(
            "contain why takes the id of one request, or -- and a command.",
            advice="contain status lists the ids.",
        )
    budget, desk = opened()
    book = desk.tick()
    if of_command:
        return _command(budget, desk, book, words)
    row = permit(book, words[0])
    if row is not None:
        _say(_held(row, desk.now()))
        return 0
    _reasons(desk, book, waiting(book, words[0]))
    return 0


def _command(budget: Budget, desk: Desk, book: Book, words: list[str]) -> int:
    # As `contain exec` would see it, from the same place: on a terminal a shell is somebody who sits there.
    asked = asking.recognise(words, os.getcwd(), terminal=terminal.find() is not None)
    if not asked.takes_part:
        _say(f"{words[0]}: somebody sits in front of it, so it needs no permit; what is started from it does")
        return 0
    if budget.outer is not None:
        _say(
            f"it would run at once, under the permit of the job that this runs in ({budget.outer.permit_id})"
        )
        return 0
    session, source = asking.session_of(os.environ, budget.backend)
    key = costs.key_of(asked, words[0], os.getcwd())
    learned = budget.costs(say).recall(key)
    ticket = asking.ticket(new_id(), asked, desk.policy, session, "", learned)
    taken = asking.expected(asked, desk.policy, learned)
    units = f"{ticket.min_units}..{ticket.want_units}" if ticket.want_units else "none"
    tool = f" ({asked.tool})" if asked.tool else ""
    _say(f"class {asked.name}{tool}, lane {ticket.lane}, units {units}, session {session} (from {source})")
    _say(f"memory {taken.memory_mib:,} MiB ({taken.memory_from})")
    _say(f"expected {taken.wall_s:.0f} s ({taken.wall_from}); key {key}")
    impossible = never(desk.policy, ticket)
    for reason in impossible:
        _say(render(reason, desk.now()))
    if not impossible:
        _reasons(desk, book, ticket)
    return 0


def _reasons(desk: Desk, book: Book, ticket: Ticket) -> None:
    now = desk.now()
    reasons = explain(desk.judged(book.snapshot), desk.sample(), desk.policy, now, ticket)
    for reason in reasons:
        _say(render(reason, now))
    if not reasons:
        _say("it would be granted now")


def _held(row: PermitRow, now: Now) -> str:
    one = row.permit
    return (
        f"it does not wait: it has had its permit for {span(now.awake_s - one.granted_at_s)}"
        f" ({one.state}, units {one.units}, by {one.how})"
    )


def _say(text: str) -> None:
    sys.stdout.write(plain(text) + "\n")


def permit(book: Book, word: str) -> PermitRow | None:
    """The permit of this id, or None."""
    return book.permits.get(whole_id(book.permits, word))


def waiting(book: Book, word: str) -> Ticket:
    """The ticket of this id. Raises NoReceipt where nobody of this id waits."""
    row = book.tickets.get(whole_id(book.tickets, word))
    if row is None:
        raise NoReceipt(f"Nobody with the id {word} waits.", advice="contain status lists the ids.", state="")
    return next(one for one in book.snapshot.tickets if one.id == row.ticket.id)
