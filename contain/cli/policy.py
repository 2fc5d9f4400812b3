"""``contain policy``: the numbers in force, a file checked before it counts, and one number changed."""

from __future__ import annotations

import os
import sys

from contain.budget import policy
from contain.budget.opening import POLICY, open_budget
from contain.errors import UsageError
from contain.platform import backend as find_backend


def main(args: list[str]) -> int:
    """``contain policy show``, ``check FILE`` and ``set NAME VALUE``."""
    budget = open_budget(find_backend())
    path = os.path.join(budget.root, POLICY)
    cores, memory_mib = budget.machine.cores, int(budget.machine.memory_mib)
    match args:
        case ["show"]:
            sys.stdout.write(policy.show(budget.policy))
        case ["check", name]:
            policy.check(_read(name), cores, memory_mib)
        case ["set", key, value]:
            before = _read(path) if os.path.exists(path) else ""
            after = policy.set_value(before, key, value, cores, memory_mib)
            with open(f"{path}.tmp", "w", encoding="utf-8") as file:
                file.write(after)
            os.rename(f"{path}.tmp", path)
        case _:
            raise UsageError(
                "contain policy show | check FILE | set NAME VALUE",
                advice="docs/BUDGET.md tells of each number.",
            )
    return 0


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}).", advice="Name a policy file.") from None
