"""``sqlite3`` as C has it: the same calls and errors, without the converters of dates around them.

``import sqlite3`` brings ``datetime``, ``functools`` and ``collections`` along: a third of a bare interpreter's own
start, before every command that asks for a permit (ADR 0007).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import sqlite3 as csqlite
else:
    try:
        import _sqlite3 as csqlite
    except ImportError:  # another Python
        import sqlite3 as csqlite

__all__ = ["csqlite"]
