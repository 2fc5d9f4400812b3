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
    budget, desk = opened()
    if "--lift" in chosen:
        if not budget.operator.lift(chosen["--lift"]):
            raise NoReceipt("There is no such hold.", advice="contain status lists them.", state="")
        desk.tick()
        return 0
    if "--for" not in chosen or not chosen.get("--reason"):
        raise UsageError(
            "A hold needs --for TIME and --reason TEXT: one without an end once blocked a machine for 50 minutes.",
            advice="contain hold --for 20m --reason 'measuring'",
        )
    seconds = time_ms(chosen["--for"], "--for") / 1000
    if not 0 < seconds <= LONGEST_HOLD_S:
        raise UsageError("A hold lasts at most a day.", advice="Say it again tomorrow.")
    one = Hold(
        id=new_id()[:8],
        owner=f"uid {os.getuid()}",
        reason=chosen["--reason"],
        until_s=time.time() + seconds,
        covers=tuple(f"lane:{word}" if word in policy.LANES else word for word in words),
    )
    budget.operator.hold(one)
    sys.stdout.write(f"{one.id}\n")
    return 0
