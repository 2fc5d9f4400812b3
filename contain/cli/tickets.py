"""``contain cancel`` and ``contain release --force``: an operator's word about one request. Both are recorded."""

from __future__ import annotations

import os

from contain.budget.arbiter import leave, release
from contain.cli.desk import opened, options
from contain.cli.why import waiting
from contain.errors import NoReceipt, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.arbiter import Now
    from contain.budget.registry import Book


def cancel(args: list[str]) -> int:
    """Takes a waiting ticket out of the queue; its owner is told, and does not run its command."""
    _, words = options(args, (), ())
    if len(words) != 1:
        raise UsageError("contain cancel takes a ticket's id.", advice="contain status lists them.")
    _, desk = opened()

    def change(book: Book, now: Now) -> None:
        row = book.tickets.get(words[0])
        if row is None:
            waiting(book, words[0])
            return
        book.note("canceled", row, now.awake_s, now.wall_s, f"by uid {os.getuid()}")
        book.settle(leave(book.snapshot, words[0]), now.awake_s)

    desk.commit(change)
    return 0


def release_permit(args: list[str]) -> int:
    """The operator's way out: ``contain release --force ID --reason TEXT`` returns a permit without proof; recorded."""
    chosen, words = options(args, ("--reason",), ("--force",))
    if "--force" not in chosen or len(words) != 1 or not chosen.get("--reason"):
        raise UsageError(
            "contain release --force ID --reason TEXT: without force a permit returns by proof alone.",
            advice="contain status lists permits; contain inspect proves ends.",
        )
    _, desk = opened()

    def change(book: Book, now: Now) -> None:
        row = book.permits.get(words[0])
        if row is None:
            raise NoReceipt("There is no such permit.", advice="contain status lists them.", state="")
        why_text = f"forced by uid {os.getuid()}: {chosen['--reason']}"
        book.note("forced", row, now.awake_s, now.wall_s, why_text)
        book.settle(release(book.snapshot, words[0], desk.policy, now), now.awake_s)

    desk.commit(change)
    return 0
