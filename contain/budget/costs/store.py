"""What is known of each key, in the account's file. Nothing depends on it."""

from __future__ import annotations

import time

from contain.budget.costs.estimate import LearnedCost, after, lesson
from contain.budget.costs.file import CostsFile
from contain.errors import CostsUnusable
from receipts import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from sqlite3 import Connection

    from contain.job import Outcome, Usage

MOST_ROWS = 2000
COLUMNS = fields(LearnedCost)
NOTHING = LearnedCost()
KEY_PARTS = 4


class Costs:
    """Learned costs of one account.

    ``recall`` and ``learn`` are a job's and never fail; ``rows`` and ``forget`` are a person's and raise CostsUnusable.
    """

    def __init__(self, root: str, say: Callable[[str], None]) -> None:
        """``root`` is the account's private directory; ``say`` is told what could not be read or written."""
        self._file = CostsFile(root)
        self._say = say

    # -- for a job ---------------------------------------------------------------------------------------------------

    def recall(self, key: str) -> LearnedCost | None:
        """What is known of this key."""
        try:
            with self._file.reading() as connection:
                return None if connection is None else _read(connection, key)
        except CostsUnusable as unusable:
            self._say(f"{unusable.message} The class's own numbers are used.")
            return None

    def learn(self, key: str, outcome: Outcome | None, usage: Usage | None, charged_mib: int) -> None:
        """Takes what a finished job says into account. ``charged_mib``: what its permit was charged with."""
        one = lesson(outcome, usage, charged_mib)
        if one is None:
            return
        try:
            with self._file.writing() as connection:
                before = _read(connection, key)
                cost = after(before, one, key.partition("/")[0], time.time())
                values = [getattr(cost, name) for name in COLUMNS]
                places = ", ".join("?" * (1 + len(COLUMNS)))
                connection.execute(
                    f"INSERT OR REPLACE INTO learned (key, {', '.join(COLUMNS)}) VALUES ({places})",  # noqa: S608 - names of ours
                    [key, *values],
                )
                if before is None:
                    _prune(connection)
        except CostsUnusable as unusable:
            self._say(f"{unusable.message} What this run took is not learned.")

    # -- for a person ------------------------------------------------------------------------------------------------

    def rows(self) -> list[tuple[str, LearnedCost]]:
        """All that is known, the last seen first."""
        with self._file.reading() as connection:
            if connection is None:
                return []
            found = connection.execute(
                f"SELECT key, {', '.join(COLUMNS)} FROM learned ORDER BY seen_at_s DESC, key"  # noqa: S608 - names of ours
            )
            return [(_key(row[0]), _cost(row[1:])) for row in found]

    def forget(self, key: str | None) -> int:
        """Forgets one key, or (None) all; returns how many there were."""
        with self._file.writing() as connection:
            if key is None:
                return connection.execute("DELETE FROM learned").rowcount
            return connection.execute("DELETE FROM learned WHERE key = ?", (key,)).rowcount

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def _read(connection: Connection, key: str) -> LearnedCost | None:
    row = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM learned WHERE key = ?",  # noqa: S608 - names of ours
        (key,),
    ).fetchone()
    return None if row is None else _cost(row)


def _key(text: str) -> str:
    if text.count("/") != KEY_PARTS - 1:
        raise ValueError(f"a key is {text!r}")
    return text


def _cost(values: tuple[object, ...]) -> LearnedCost:
    """Raises ValueError for what no version of ours writes."""
    found = dict(zip(COLUMNS, values, strict=True))
    for name, value in found.items():
        nothing_yet = getattr(NOTHING, name)
        fits = isinstance(value, float) if nothing_yet is None else type(value) is type(nothing_yet)
        if not (fits or value is nothing_yet) or (isinstance(value, (int, float)) and value < 0):
            raise ValueError(f"{name} is {value!r}")
    return NOTHING.replace(**found)


def _prune(connection: Connection) -> None:
    """The oldest go."""
    connection.execute(
        "DELETE FROM learned WHERE key IN"
        " (SELECT key FROM learned ORDER BY seen_at_s DESC, key LIMIT -1 OFFSET ?)",
        (MOST_ROWS,),
    )
