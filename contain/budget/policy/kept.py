"""The policy of a file, as it was once read: TOML costs more than the rest of a short command's start.

Beside the registry, so it ends with the boot. It counts for exactly the file, the machine and the program that it was
made of; anything else is read again.
"""

from __future__ import annotations

import os

from contain.budget import beside
from contain.budget.policy import presets
from contain.budget.policy.record import ClassCost, Marks, Policy
from receipts import fields, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

FILE = "policy.json"


def recall(folder: str, made_of: Sequence[object]) -> Policy | None:
    """The policy that was kept for this, or None. ``made_of``: plain values."""
    try:
        with open(os.path.join(folder, FILE), encoding="utf-8") as file:
            document = jsontext.loads(file.read())
        if document["madeOf"] != [*made_of, _program()]:
            return None
        found = document["policy"]
        marks = Marks(**found.pop("marks"))
        classes = tuple(ClassCost(**_tupled(one)) for one in found.pop("classes"))
        return Policy(marks=marks, classes=classes, **_tupled(found))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # none was kept, or it is torn


def keep(folder: str, made_of: Sequence[object], policy: Policy) -> None:
    """For the next command. A full disk costs them the reading."""
    plain = {name: getattr(policy, name) for name in fields(Policy)}
    plain["marks"] = _plain(policy.marks)
    plain["classes"] = [_plain(one) for one in policy.classes]
    document = {"madeOf": [*made_of, _program()], "policy": plain}
    try:
        beside.replace(os.path.join(folder, FILE), jsontext.dumps(document))
    except OSError:
        pass


def _program() -> int:
    """What changes with the program: the presets that a file builds on."""
    return os.stat(presets.__file__).st_mtime_ns


def _plain(record: Marks | ClassCost) -> dict[str, Any]:
    return {name: getattr(record, name) for name in fields(type(record))}


def _tupled(values: dict[str, Any]) -> dict[str, Any]:
    def one(value: object) -> object:
        return tuple(one(item) for item in value) if isinstance(value, list) else value

    return {name: one(value) for name, value in values.items()}
