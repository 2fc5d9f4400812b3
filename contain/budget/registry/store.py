"""The SQLite file of the registry. One connection a process, opened again after a fork, never by hand beside it."""

from __future__ import annotations

import _thread
import os
from contextlib import contextmanager

from contain.budget.registry import bindings
from contain.budget.registry.book import VERSION, Book, make_tables, permit_in
from contain.budget.registry.lock import GIVE_UP_S, RegistryLock
from contain.csqlite import csqlite
from contain.errors import RegistryDamaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from sqlite3 import Connection
    from typing import Any

    from contain.budget.arbiter import Health, Hold
    from contain.budget.registry.rows import PermitRow, TicketRow

FILE = "registry.db"
LOCK = "lock"
NO_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE", "SQLITE_IOERR_SHMSIZE")
DAMAGE = frozenset({1, 11, 24, 26})
"""SQLite's codes that tell of the file: ERROR (no such table), CORRUPT, FORMAT and NOTADB."""
BUSY_S = 5.0
"""Our own lock orders the writers; SQLite's is met only for the moment in which another process opens or closes."""


class Registry:
    """Tickets and permits of one place. Safe from any thread; after a fork the child has a connection of its own."""

    def __init__(self, folder: str, base: int, say: Callable[[str], None]) -> None:
        """``folder`` is private and on a file system that keeps locks (receipts.place judged it)."""
        self.folder = folder
        self._base = base
        self.say = say
        self.give_up_s = GIVE_UP_S
        """For the lock of others."""
        self.asked: Callable[[], str | None] | None = None
        """The signal that ends a wait for the lock; None: nothing does, as while a permit is bound or returned."""
        self._threads = _thread.allocate_lock()
        self._connection: Connection | None = None
        self._pid = 0
        self._identity: tuple[int, int] | None = None
        self._known: dict[tuple[Any, ...], TicketRow] = {}

    def _stands(self) -> bool:
        """The connection is this process's, and to the file that has the name now: a repair puts another there."""
        if self._connection is None or self._pid != os.getpid():
            return False
        return self._identity == _identity(os.path.join(self.folder, FILE))

    def _lock(self) -> RegistryLock:
        return RegistryLock(os.path.join(self.folder, LOCK), self.say, self.give_up_s, self.asked)

    def _open(self, *, make: bool = True) -> Connection:
        """Inside the lock: nobody replaces the file meanwhile, and no two make it. Else without ``make``."""
        if self._connection is not None and self._stands():
            return self._connection
        self.close()
        path = os.path.join(self.folder, FILE)
        if os.path.lexists(path) and not _is_file(path):
            raise self._damaged("it is no file")
        if not os.path.exists(path) and bindings.exist(self.folder):
            raise self._damaged("it is missing, and permits were bound in it", "missing")
        try:
            connection = csqlite.connect(path, isolation_level=None, check_same_thread=False, timeout=BUSY_S)
            try:
                self._prepare(connection, make=make)
                os.chmod(path, 0o600)
            except BaseException:
                connection.close()
                raise
        except csqlite.Error as error:
            raise self._damaged(error) from None
        self._connection, self._pid, self._identity = connection, os.getpid(), _identity(path)
        return connection

    def _prepare(self, connection: Connection, *, make: bool) -> None:
        # Another boot voids every row, and SIGKILL loses nothing that was written: a sync would buy nothing, and
        # would be waited for by everybody, inside the lock.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        [version] = connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise RegistryDamaged(
                f"The registry in {self.folder} is of another version ({version}).",
                detail="version",
                advice="Use one version of contain for one account; contain repair makes a registry of this one.",
            )
        if version == 0 and not make:
            raise csqlite.OperationalError("nobody has made it yet")
        if version == 0:
            if bindings.exist(self.folder):
                raise self._damaged("it is empty, and permits were bound in it", "missing")
            make_tables(connection)

    def _damaged(self, error: Exception | str, detail: str = "unreadable") -> RegistryDamaged:
        """``detail`` is ``unusable`` where the file may be well, and the system refuses (no space, say)."""
        if getattr(error, "sqlite_errorname", "") in NO_ROOM:
            return RegistryDamaged(
                f"The registry in {self.folder} cannot be written ({error}).",
                detail="unusable",
                advice="Make room there; what it holds is whole. contain exec --no-budget runs without it.",
            )
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF not in DAMAGE:
            return RegistryDamaged(
                f"The registry in {self.folder} cannot be used now ({error}).",
                detail="unusable",
                advice="Look at the disk and its free space; contain exec --no-budget runs without the budget.",
            )
        return RegistryDamaged(
            f"The registry in {self.folder} cannot be used ({error}).",
            detail=detail,
            advice="contain repair rebuilds it from the receipts; contain exec --no-budget runs without it.",
        )

    @contextmanager
    def repairing(self) -> Iterator[RegistryDamaged | None]:
        """The lock, and what is wrong with the file, looked at from its first page to its last; None: nothing.

        Raises LockUnavailable, and RegistryDamaged where it is not the file that is in the way.
        """
        with self._threads, self._lock():
            self.close()
            try:
                self._look_through()
            except RegistryDamaged as error:
                self.close()
                if error.detail == "unusable":
                    raise
                yield error
            else:
                yield None

    def _look_through(self) -> None:
        if not os.path.exists(os.path.join(self.folder, FILE)):
            raise self._damaged(
                "it is missing", "missing"
            )  # new perhaps; whoever repairs wants to know by receipts
        connection = self._open()
        try:
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check")]
            Book(connection, {}, (), {}, self._base)
        except (csqlite.Error, ValueError, TypeError) as error:
            raise self._damaged(error) from None
        if found != ["ok"]:
            raise self._damaged(found[0])

    @contextmanager
    def transaction(self, holds: tuple[Hold, ...], health: Mapping[str, Health]) -> Iterator[Book]:
        """A view that nobody else changes meanwhile; committed at the end, forgotten on an error or where it says so.

        Raises LockUnavailable and RegistryDamaged.
        """
        with self._threads, self._lock():
            connection = self._open()
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    book = Book(connection, self._known, holds, health, self._base)
                    yield book
                    connection.execute("ROLLBACK" if book.forgotten else "COMMIT")
                except BaseException:
                    _forget(connection)
                    raise
            except (csqlite.Error, ValueError, TypeError) as error:
                raise self._damaged(error) from error

    def look(self, holds: tuple[Hold, ...], health: Mapping[str, Health]) -> Book:
        """All rows as they were last committed, without the lock: to be shown, or to know whom to look at."""
        with self._threads:
            connection = self._to_look()
            try:
                connection.execute("BEGIN")
                try:
                    return Book(connection, self._known, holds, health, self._base)
                finally:
                    _forget(connection)
            except (csqlite.Error, ValueError, TypeError) as error:
                raise self._damaged(error) from error

    def permit(self, permit_id: str) -> PermitRow | None:
        """One permit as it was last committed, without the lock: what a waiter looks for whenever it is rung."""
        with self._threads:
            try:
                return permit_in(self._to_look(), permit_id)
            except (csqlite.Error, ValueError, TypeError) as error:
                raise self._damaged(error) from error

    def close(self) -> None:
        """Closes the connection of this process."""
        if self._connection is None:
            return
        if self._pid == os.getpid():
            self._connection.close()
        else:
            _inherited.append(self._connection)
        self._connection = None

    def _to_look(self) -> Connection:
        if not self._stands():
            self._open_to_look()
        assert self._connection is not None  # opened, or it stands
        return self._connection

    def _open_to_look(self) -> None:
        """With the lock where the file or its tables are still to be made; else without.

        Who looks must not wait for a stopped process: it is what he wants to see, and who changes something waits for
        it in any case, and should do so once.
        """
        if os.path.exists(os.path.join(self.folder, FILE)):
            try:
                self._open(make=False)
                return
            except RegistryDamaged:
                pass  # half made by whoever has the lock now, or truly damaged: then it is found so again
        with self._lock():
            self._open()


def _forget(connection: Connection) -> None:
    """Rolls back, unless SQLite has done so: after a full disk it has, and its error is the one to tell."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


_inherited: list[Connection] = []
"""Of a forked child: its parent's connections, kept, since closing them would touch the parent's locks."""


def _is_file(path: str) -> bool:
    return os.path.isfile(path) and not os.path.islink(path)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    return found.st_dev, found.st_ino
