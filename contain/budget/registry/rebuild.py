"""A registry made anew beside one that cannot be read. Called in the registry's lock; may be killed at any point.

The new file is whole before the old one moves: built under another name, then the old one goes (the database first,
since without its log it might be read as an older truth), then the new one comes, by one rename. In between there is
none, and with the file of bindings beside it that is not taken for a new registry: repair is run again.
"""

from __future__ import annotations

import os
import time

from contain.budget.registry import bindings
from contain.budget.registry.book import Book, make_tables
from contain.budget.registry.store import FILE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from contain.budget.registry.rows import PermitRow

NEW = f"{FILE}.new"
PARTS = ("", "-wal", "-shm", "-journal")
"""SQLite's files of one database. A log left beside a new database would be applied to it."""


def rebuild(folder: str, rows: Iterable[PermitRow], base: int, awake_s: float) -> str | None:
    """Puts a registry of ``rows`` in the place of the present one; the name under which that is kept, if any.

    Raises OSError and sqlite3.Error; then the present one is as it was, or repair has to be run again.
    """
    import sqlite3

    bindings.begin(folder)
    new = os.path.join(folder, NEW)
    for part in PARTS:
        _remove(new + part)
    connection = sqlite3.connect(new, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = OFF")
        make_tables(connection)
        connection.execute("BEGIN IMMEDIATE")
        book = Book(connection, {}, (), {}, base)
        for row in rows:
            book.put(row)
            book.note("rebuilt", row, awake_s, time.time(), "by contain repair")
        connection.execute("COMMIT")
    finally:
        connection.close()
    os.chmod(new, 0o600)
    kept = _move_aside(os.path.join(folder, FILE))
    os.rename(new, os.path.join(folder, FILE))
    return kept


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _move_aside(path: str) -> str | None:
    """Keeps what is there, for whoever wants to know what happened."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f".{time.time_ns() % 10**9:09d}Z"
    kept = f"{path}.damaged-{stamp}"
    found = None
    for part in PARTS:
        try:
            os.rename(path + part, kept + part)
        except FileNotFoundError:
            continue
        found = os.path.basename(kept)
    return found
