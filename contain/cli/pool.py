"""``contain pool``: every lane and pool with who has it; an ill one takes no new work until it is well again."""

from __future__ import annotations

import os
import sys
import time

from contain.budget.arbiter import Health, has_pool, pool_states
from contain.cli.desk import opened, options
from contain.cli.exec_options import time_ms
from contain.errors import UsageError
from receipts import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from contain.budget.arbiter import PoolState
    from contain.budget.opening import Budget
    from contain.budget.policy import Policy

FORMS = (
    "contain pool [--json] | quarantine NAME --reason TEXT | cool NAME --for 20m --reason TEXT | clear NAME"
)


def main(args: list[str]) -> int:
    """The table; or one pool is said to be ill, for a time or for good, or well again."""
    chosen, words = options(args, ("--for", "--reason"), ("--json",))
    budget, desk = opened()
    match words:
        case [] if not chosen.keys() - {"--json"}:
            book = desk.tick()
            found = [described(one) for one in pool_states(book.snapshot, desk.policy, desk.now())]
            if "--json" in chosen or not sys.stdout.isatty():
                sys.stdout.write(jsontext.dumps({"version": 1, "pools": found}) + "\n")
            else:
                sys.stdout.write(table(found))
        case ["quarantine" | "cool" as how, name]:
            _known(desk.policy, name)
            budget.operator.mark(name, _health(how, chosen))
            desk.tick()
        case ["clear", name] if not chosen:
            _clear(budget, name)
            desk.tick()  # whoever waited for it may go on
        case _:
            raise UsageError(FORMS, advice="docs/BUDGET.md tells what each does.")
    return 0


def _known(policy: Policy, name: str) -> None:
    """Raises UsageError, with the list, for a pool that the policy does not have."""
    if not has_pool(policy, name):
        listed = ", ".join(pool for pool, _ in policy.pools)
        raise UsageError(
            f"The policy has no pool {name[:60]!r}; it has {listed}.",
            advice="Of a family such as port:* name one (port:6298); contain policy set pools.NAME N adds one.",
        )


def _health(how: str, chosen: Mapping[str, str]) -> Health:
    if not chosen.get("--reason") or ("--for" in chosen) != (how == "cool") or "--json" in chosen:
        raise UsageError(
            "A quarantine needs --reason TEXT and lasts until it is cleared; cool needs --for TIME too.",
            advice=FORMS,
        )
    reason = f"{chosen['--reason']} (uid {os.getuid()})"
    if how == "quarantine":
        return Health(reason=reason)
    seconds = time_ms(chosen["--for"], "--for") / 1000
    if seconds <= 0:
        raise UsageError("A pool cools for more than nothing.", advice=FORMS)
    return Health(reason=reason, until_s=time.time() + seconds)


def _clear(budget: Budget, name: str) -> None:
    """A pool that was marked and is not in the policy any more can still be cleared."""
    if name not in budget.operator.read().health:
        _known(budget.policy, name)
        raise UsageError(f"The pool {name} is not ill.", advice="contain pool lists them.")
    budget.operator.mark(name, None)


def described(one: PoolState) -> dict[str, Any]:
    """As it is published: amounts are tokens, or units where the pool is a lane of those."""
    health = one.health
    return {
        "name": one.name,
        "size": one.size,
        "used": one.used,
        "health": "well" if health is None else "quarantined" if health.until_s is None else "cooling",
        "reason": None if health is None else health.reason,
        "until": None if health is None else health.until_s,
        "holders": [
            {"id": held.id, "session": held.session, "holder": held.holder, "amount": held.amount}
            for held in one.holders
        ],
    }


def table(found: Sequence[Mapping[str, Any]]) -> str:
    """For a person's eyes."""
    lines = [f"{'pool':20} {'used':>5} {'size':>5}  {'health':11}  holders"]
    for one in found:
        holders = ", ".join(
            f"{held['holder'] or held['session']} ({held['amount']})" for held in one["holders"]
        )
        lines.append(
            f"{one['name']:20} {one['used']:>5} {one['size']:>5}  {one['health']:11}  {holders}".rstrip()
        )
        if one["reason"]:
            lines.append(f"{'':20} {one['reason']}")
    return "\n".join(lines) + "\n"
