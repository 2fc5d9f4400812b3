"""``contain cancel`` and ``contain release --force``: an operator's word about one request. Both are recorded."""

from __future__ import annotations

import os

from contain.budget.arbiter import release
from contain.cli.desk import opened, options
from contain.cli.why import permit, waiting
from contain.errors import NoReceipt, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.arbiter import Now
    from contain.budget.registry import Book


def cancel(args: list[str]) -> int:
    """Takes a waiting ticket out of the queue; its owner is told, and does not run its command."""
    _, words = options(args, (), ())
    if len(words) != 1:
        raise UsageError("contain cancel takes the id of one ticket.", advice="contain status lists the ids.")
    _, desk = opened()

    book = desk.look()
    held = permit(book, words[0])
    if held is not None:
        raise NoReceipt(
            f"{held.permit.id} does not wait: it has its permit ({held.permit.state}).",
            advice=f"End its command (kill -TERM {held.owner.pid}): the permit returns when its tree is gone.",
            state="",
        )
    if not desk.cancel(waiting(book, words[0]).id, f"by uid {os.getuid()}"):
        raise NoReceipt(
            f"{words[0]} has left the queue meanwhile.", advice="contain status shows more.", state=""
        )
    return 0


def release_permit(args: list[str]) -> int:
    """The operator's way out: ``contain release --force ID --reason TEXT`` returns a permit without proof; recorded."""
    chosen, words = options(args, ("--reason",), ("--force",))
    if len(words) != 1:
        raise UsageError(
            "contain release takes the id of one permit.", advice="contain status lists the ids."
        )
    if "--force" not in chosen or not chosen.get("--reason"):
        raise UsageError(
            "A permit returns by itself, by the proof that its tree is gone; to return it without needs --force and"
            " --reason TEXT.",
            advice="contain inspect tells what is left of its job.",
        )
    _, desk = opened()

    def change(book: Book, now: Now) -> None:
        row = permit(book, words[0])
        if row is None:
            raise NoReceipt(
                f"There is no permit {words[0]}.", advice="contain status lists the ids.", state=""
            )
        why_text = f"forced by uid {os.getuid()}: {chosen['--reason']}"
        book.note("forced", row, now.awake_s, now.wall_s, why_text)
        book.settle(release(book.snapshot, row.permit.id, desk.policy, now), now.awake_s)

    desk.commit(change)
    return 0
