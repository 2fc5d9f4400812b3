"""``contain hold``: an operator's pause of new grants, with an owner, a reason and an end."""

from __future__ import annotations

import os
import sys
import time

from contain.budget import policy
from contain.budget.arbiter import Hold
from contain.cli.desk import opened, options
from contain.cli.exec_options import time_ms
from contain.errors import NoReceipt, UsageError
from contain.job import new_id

LONGEST_HOLD_S = 24 * 3600


def main(args: list[str]) -> int:
    """Pauses new grants: ``contain hold --for 20m --reason TEXT [LANE...]``; ``contain hold --lift ID``."""
    chosen, words = options(args, ("--for", "--reason", "--lift"), ())
    if "--lift" in chosen:
        if words or len(chosen) > 1:
            raise UsageError("contain hold --lift takes one id.", advice="contain status lists the holds.")
        return _lift(chosen["--lift"])
    if "--for" not in chosen or not chosen.get("--reason"):
        raise UsageError(
            "A hold needs --for TIME and --reason TEXT: one without an end once blocked a machine for 50 minutes.",
            advice="contain hold --for 20m --reason 'measuring'",
        )
    seconds = _seconds(chosen["--for"])
    budget, _ = opened()
    one = Hold(
        id=new_id()[:8],
        owner=f"uid {os.getuid()}",
        reason=chosen["--reason"],
        until_s=time.time() + seconds,
        covers=tuple(_covered(word, budget.policy) for word in words),
    )
    budget.operator.hold(one)
    sys.stdout.write(f"{one.id}\n")
    return 0


def _seconds(text: str) -> float:
    try:
        seconds = time_ms(text, "--for") / 1000
    except UsageError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_HOLD_S:
        raise UsageError(
            "--for takes a time of at most a day, such as 90, 20m or 2h.",
            advice="A longer one is said again tomorrow.",
        )
    return seconds


def _covered(word: str, rules: policy.Policy) -> str:
    """The lane or pool that a word names. Raises UsageError: a hold on a misspelt one would hold nobody."""
    if word in policy.LANES:
        return f"lane:{word}"
    if rules.size(word):
        return word
    known = [name for name, _ in rules.pools if not name.startswith(policy.LANE)]
    raise UsageError(
        f"There is no lane and no pool {word[:40]!r}.",
        advice=f"Lanes: {', '.join(policy.LANES)}. Pools: {', '.join(known) or 'none'}.",
    )


def _lift(hold_id: str) -> int:
    budget, desk = opened()
    if not budget.operator.lift(hold_id):
        raise NoReceipt(f"There is no hold {hold_id}.", advice="contain status lists the holds.", state="")
    desk.tick()
    return 0
