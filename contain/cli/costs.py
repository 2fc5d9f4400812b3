"""``contain costs``: what finished jobs took, and the next of their kind are asked with."""

from __future__ import annotations

import sys
import time

from contain.budget.costs import keys
from contain.budget.opening import open_budget
from contain.cli.desk import options, say
from contain.errors import NoReceipt, UsageError
from contain.platform import backend as find_backend
from receipts import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.costs import LearnedCost

VERSION = 1
AGES = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def main(args: list[str]) -> int:
    """A table, or JSON; ``--forget KEY`` and ``--forget-all`` for a cost that will not come again."""
    chosen, words = options(args, ("--forget",), ("--json", "--forget-all"))
    if words or len(chosen) > 1:
        raise UsageError("contain costs [--json | --forget KEY | --forget-all]", advice="It shows the keys.")
    learned = open_budget(find_backend()).costs(say)
    if "--forget" in chosen and not learned.forget(chosen["--forget"]):
        raise NoReceipt("Nothing was learned under this key.", advice="contain costs lists them.", state="")
    if "--forget-all" in chosen:
        learned.forget(None)
    if "--forget" in chosen or "--forget-all" in chosen:
        return 0
    rows = learned.rows()
    if "--json" in chosen or not sys.stdout.isatty():
        sys.stdout.write(jsontext.dumps({"version": VERSION, "costs": [_plain(*row) for row in rows]}) + "\n")
    else:
        sys.stdout.write(table(rows, time.time()))
    return 0


def _plain(key: str, cost: LearnedCost) -> dict[str, object]:
    """The published form. Memory is MiB, times are seconds; ``seenAt`` is wall time."""
    class_name, tool, lane, project = key.split("/")
    return {
        "key": key,
        "class": class_name,
        "tool": None if tool == keys.NO_TOOL else tool,
        "lane": lane,
        "project": project,
        "memoryMib": cost.memory_mib,
        "memorySource": cost.memory_source,
        "memoryRuns": cost.memory_runs,
        "busyCores": None if cost.busy is None else round(cost.busy, 2),
        "wallS": round(cost.wall_s, 1),
        "runs": cost.runs,
        "seenAt": round(cost.seen_at_s),
    }


def table(rows: list[tuple[str, LearnedCost]], now_s: float) -> str:
    """For a person's eyes."""
    if not rows:
        return "nothing was learned yet: jobs of a second and more that have a permit teach it\n"
    width = max(len(key) for key, _ in rows)
    lines = [f"{'key':{width}} {'MiB':>7} {'cores':>6} {'seconds':>8} {'runs':>5} {'seen':>9}  source"]
    for key, cost in rows:
        busy = "" if cost.busy is None else f"{cost.busy:.1f}"
        lines.append(
            f"{key:{width}} {cost.memory_mib:>7,} {busy:>6} {cost.wall_s:>8,.0f} {cost.runs:>5}"
            f" {_ago(now_s - cost.seen_at_s):>9}  {cost.memory_source}"
        )
    return "\n".join(lines) + "\n"


def _ago(seconds: float) -> str:
    for unit_s, name in AGES:
        if seconds >= unit_s:
            return f"{seconds // unit_s:.0f} {name} ago"
    return "now"
