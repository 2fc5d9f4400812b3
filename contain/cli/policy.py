"""``contain policy``: the numbers in force, a file checked before it counts, and one number changed."""

from __future__ import annotations

import os
import sys

from contain.budget import policy
from contain.budget.opening import POLICY, open_budget
from contain.errors import UsageError
from contain.platform import backend as find_backend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.opening import Budget


def main(args: list[str]) -> int:
    """``contain policy show``, ``check FILE`` and ``set NAME VALUE``."""
    match args:
        case ["show"]:
            budget = open_budget(find_backend())
            sys.stdout.write(f"# {_source(budget)}\n{policy.show(budget.policy)}")
        case ["check", name]:
            cores, memory_mib = _size(budget := open_budget(find_backend(), by_file=False))
            found = policy.check(_read(name), cores, memory_mib)
            sys.stdout.write(
                f"{name} can be {_path(budget)}: {found.name}, base {found.base}, ceiling {found.ceiling}\n"
            )
        case ["set", key, value]:
            _set(open_budget(find_backend(), by_file=False), key, value)
        case _:
            raise UsageError(
                "contain policy takes show, check FILE, or set NAME VALUE.",
                advice="contain policy show prints every name; docs/BUDGET.md tells what it means.",
            )
    return 0


def _set(budget: Budget, key: str, value: str) -> None:
    path = _path(budget)

    def change() -> None:
        before = _read(path) if os.path.exists(path) else ""
        budget.operator.write(POLICY, policy.set_value(before, key, value, *_size(budget)).encode())

    budget.operator.alone(change)


def _path(budget: Budget) -> str:
    return os.path.join(budget.root, POLICY)


def _size(budget: Budget) -> tuple[int, int]:
    return budget.machine.cores, int(budget.machine.memory_mib)


def _source(budget: Budget) -> str:
    path = _path(budget)
    if os.path.exists(path):
        return f"{path}, and what it leaves to its preset"
    return f"the preset's numbers for this machine: there is no {path}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{path} cannot be read ({why}).", advice="Name a policy file.") from None
