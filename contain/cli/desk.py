"""What the verbs of the budget share: the desk of this account, and the few options of each."""

from __future__ import annotations

import os

from contain.budget import nested
from contain.budget.opening import Budget, find_root, open_budget
from contain.errors import UsageError
from contain.platform import backend as find_backend

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from contain.budget.queue.desk import Desk

SHORTEST_ID = 4
"""So many characters of an id are taken for it, where they are the beginning of no other."""


def opened() -> tuple[Budget, Desk]:
    """The budget, and this process's desk. Raises what stands in the way, as a ContainError."""
    backend = find_backend()
    backend.check_host()
    root = find_root(backend)
    inside = nested.ask(root, os.environ, backend, ())
    budget = open_budget(backend, root, outer=None if inside is None else inside[0])
    return budget, budget.desk(say)


def say(text: str) -> None:
    """A line for a person."""
    os.write(2, f"contain: {text}\n".encode())


def options(
    args: list[str], valued: tuple[str, ...], flags: tuple[str, ...]
) -> tuple[dict[str, str], list[str]]:
    """(options, other words) of a verb's few options. Raises UsageError."""
    found: dict[str, str] = {}
    words: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if name in flags and not equals:
            found[name] = ""
        elif name in valued and (equals or rest):
            found[name] = value if equals else rest.pop(0)
        elif word.startswith("-"):
            raise UsageError(
                f"There is no option {word[:40]!r}, or it lacks its value.", advice="contain --help shows it."
            )
        else:
            words.append(word)
    return found, words


def whole_id(ids: Iterable[str], word: str) -> str:
    """The id that begins with ``word``, as a table shows it; ``word`` itself where there is none.

    Raises UsageError where several do.
    """
    found = [one for one in ids if one == word or (len(word) >= SHORTEST_ID and one.startswith(word.lower()))]
    if word in found or not found:
        return word
    if len(found) > 1:
        raise UsageError(f"{len(found)} ids begin with {word}.", advice="Give more of its digits.")
    return found[0]
