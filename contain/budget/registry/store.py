"""The SQLite file of the registry. One connection a process, opened again after a fork, never by hand beside it."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager

from contain.budget.registry.book import SCHEMA, VERSION, Book
from contain.budget.registry.lock import GIVE_UP_S, RegistryLock
from contain.errors import LockUnavailable, RegistryDamaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from sqlite3 import Connection

    from contain.budget.arbiter import Health, Hold

FILE = "registry.db"
LOCK = "lock"
NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE")
BUSY_S = 5.0
"""Our own lock orders the writers; SQLite's is met only for the moment in which another process opens or closes."""


class Registry:
    """Tickets and permits of one place. Safe from any thread; after a fork the child has a connection of its own."""

    def __init__(self, folder: str, base: int, say: Callable[[str], None]) -> None:
        """``folder`` is private and on a file system that keeps locks (receipts.place judged it)."""
        self.folder = folder
        self._base = base
        self._say = say
        self.give_up_s = GIVE_UP_S
        """For the lock of others."""
        self.asked: Callable[[], str | None] | None = None
        """The signal that ends a wait for the lock; None: nothing does, as while a permit is bound or returned."""
        self._threads = threading.Lock()
        self._connection: Connection | None = None
        self._pid = 0

    def _lock(self) -> RegistryLock:
        return RegistryLock(os.path.join(self.folder, LOCK), self._say, self.give_up_s, self.asked)

    def _open(self, *, make: bool = True) -> Connection:
        import sqlite3

        if self._connection is not None and self._pid == os.getpid():
            return self._connection
        path = os.path.join(self.folder, FILE)
        try:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
            # Another boot voids every row, and SIGKILL loses nothing that was written: a sync would buy nothing, and
            # would be waited for by everybody, inside the lock.
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = OFF")
            [version] = connection.execute("PRAGMA user_version").fetchone()
            if version not in (0, VERSION):
                raise RegistryDamaged(
                    f"The registry in {self.folder} is of another version ({version}).",
                    advice="Use one version of contain for one account, or wait until the other's jobs have ended.",
                )
            if version == 0 and not make:
                raise sqlite3.OperationalError("nobody has made it yet")
            if version == 0:
                connection.executescript(SCHEMA)
                connection.execute(f"PRAGMA user_version = {VERSION}")
            os.chmod(path, 0o600)
        except sqlite3.Error as error:
            raise self._damaged(error) from None
        # The old connection of a forked child is its parent's: closing it would touch the parent's locks.
        self._connection, self._pid = connection, os.getpid()
        return connection

    def _damaged(self, error: Exception) -> RegistryDamaged:
        if getattr(error, "sqlite_errorname", "") in NO_ROOM:
            return RegistryDamaged(
                f"The registry in {self.folder} cannot be written ({error}).",
                advice="Make room there; what it holds is whole. contain exec --no-budget runs without it.",
            )
        return RegistryDamaged(
            f"The registry in {self.folder} cannot be used ({error}).",
            advice="contain repair rebuilds it from the receipts; contain exec --no-budget runs without it.",
        )

    @contextmanager
    def transaction(self, holds: tuple[Hold, ...], health: Mapping[str, Health]) -> Iterator[Book]:
        """A view that nobody else changes meanwhile; committed at the end, forgotten on an error.

        Raises LockUnavailable and RegistryDamaged.
        """
        import sqlite3

        with self._threads, self._lock():
            connection = self._open()
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield Book(connection, holds, health, self._base)
                    connection.execute("COMMIT")
                except BaseException:
                    _forget(connection)
                    raise
            except (sqlite3.Error, ValueError, TypeError) as error:
                raise self._damaged(error) from error

    def look(self, holds: tuple[Hold, ...], health: Mapping[str, Health]) -> Book:
        """All rows as they were last committed, without the lock: to be shown, or to know whom to look at."""
        import sqlite3

        with self._threads:
            if self._connection is None or self._pid != os.getpid():
                self._open_to_look()
            connection = self._open()
            try:
                connection.execute("BEGIN")
                try:
                    return Book(connection, holds, health, self._base)
                finally:
                    _forget(connection)
            except (sqlite3.Error, ValueError, TypeError) as error:
                raise self._damaged(error) from error

    def close(self) -> None:
        """Closes the connection of this process."""
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
        self._connection = None

    def _open_to_look(self) -> None:
        """With the lock, since it may make the file and its tables; without, if there is one and the lock is not had.

        Who looks must not wait for a stopped process: it is what he wants to see.
        """
        try:
            with self._lock():
                self._open()
        except LockUnavailable:
            if not os.path.exists(os.path.join(self.folder, FILE)):
                raise
            self._open(make=False)


def _forget(connection: Connection) -> None:
    """Rolls back, unless SQLite has done so: after a full disk it has, and its error is the one to tell."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")
