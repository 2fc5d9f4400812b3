"""``contain repair [DIR...]``: a registry that cannot be read is made anew; nothing is released by it."""

from __future__ import annotations

import os
import sys

from contain.budget.repair import repair
from contain.cli.desk import opened, options
from contain.errors import ContainmentHeld
from contain.platform import backend as find_backend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.registry import PermitRow
    from contain.budget.repair import Repaired


def main(args: list[str]) -> int:
    """Says what it did; 0, or 80 where something could not be read that may have a living tree."""
    _, words = options(args, (), ())
    _, desk = opened()
    # Absolute: what is bound names its directory so, and one that is read twice would be counted once all the same.
    done = repair(desk, find_backend(), [None, *(os.path.abspath(word) for word in words)])
    book = desk.tick()
    sys.stdout.write("\n".join(told(done)) + "\n")
    sys.stdout.write(f"now: {len(book.permits)} permits, {len(book.tickets)} waiting\n")
    return ContainmentHeld.exit_code if done.unread else 0


def told(done: Repaired) -> list[str]:
    """What was found and done, line by line."""
    if done.wrong is None:
        return ["The registry is well: nothing was changed, and what has ended was settled."]
    lines = [done.wrong]
    lines.append(f"It is kept as {done.kept}." if done.kept else "There was nothing to keep.")
    lines.append(f"A new registry has {len(done.rows)} permits of trees that are not proven gone:")
    lines += [_line(row) for row in done.rows]
    if done.by_receipt_alone:
        lines.append(
            f"Of {done.by_receipt_alone} nothing but the receipt is known: each counts as the whole machine until its"
            " tree is gone. contain inspect DIR ID --finish ends one; contain release --force gives one up."
        )
    if done.torn_lines:
        lines.append(f"{done.torn_lines} lines of the bindings were torn and passed over.")
    lines += [f"Not read, and not counted: {one}. contain inspect says more." for one in done.unread]
    return lines


def _line(row: PermitRow) -> str:
    permit = row.permit
    return (
        f"  {permit.id}  {permit.state}, {permit.units} units, {permit.class_name},"
        f" job {row.job_id}, owner {row.owner.pid}"
    )
