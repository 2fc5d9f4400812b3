"""The SQLite file of learned costs: opened, made, and moved aside when it is damaged. It outlives a boot."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager

from contain.csqlite import csqlite
from contain.errors import CostsUnusable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from sqlite3 import Connection

FILE = "costs.db"
DAMAGED = "costs.db.damaged"
LOCK = "costs.lock"
VERSION = 1
BUSY_S = 1.0
"""A transaction takes a millisecond. Who waits longer does without: a cost is not worth a job's time."""
PAUSE_S = 0.005

SCHEMA = """
CREATE TABLE IF NOT EXISTS learned (
    key TEXT PRIMARY KEY,
    memory_mib INTEGER NOT NULL CHECK (typeof(memory_mib) = 'integer' AND memory_mib >= 0),
    memory_source TEXT NOT NULL,
    memory_runs INTEGER NOT NULL,
    wall_s REAL NOT NULL CHECK (wall_s >= 0),
    busy REAL,
    runs INTEGER NOT NULL,
    seen_at_s REAL NOT NULL) WITHOUT ROWID;
"""


class CostsFile:
    """One connection a process. For one thread; after a fork the child has a connection of its own."""

    def __init__(self, root: str) -> None:
        """``root`` is the account's private directory."""
        self._path = os.path.join(root, FILE)
        self._root = root
        self._connection: Connection | None = None
        self._inode = 0
        self._pid = 0

    def close(self) -> None:
        """Closes the connection of this process."""
        connection, self._connection = self._connection, None
        if connection is not None and self._pid == os.getpid():
            connection.close()

    @contextmanager
    def reading(self) -> Iterator[Connection | None]:
        """None where nothing was ever learned: to look makes no file."""
        with self._errors_named():
            yield self._open() if self._inode_now() else None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction; forgotten on an error."""
        with self._errors_named():
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # a full disk has ended it already
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        """Raises CostsUnusable instead of what SQLite and the kernel raise. A damaged file is moved aside."""
        try:
            yield
        except (csqlite.Error, OSError, ValueError) as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            # SQLITE_ERROR: our few statements are right, so the tables are not ours. ValueError: a row makes no sense.
            damaged = code in (csqlite.SQLITE_CORRUPT, csqlite.SQLITE_NOTADB, csqlite.SQLITE_ERROR)
            told = f"Learned costs cannot be used ({error})."
            if damaged or isinstance(error, ValueError):
                told = self._move_aside(error)
            raise CostsUnusable(
                told, advice=f"See what is wrong with {self._path}, or move it away: costs are learned anew."
            ) from error

    def _open(self) -> Connection:
        """The connection of this process to the file that is there now. Made with its table where there is none."""
        inode = self._inode_now()
        if self._connection is not None and (self._pid, self._inode) == (os.getpid(), inode):
            return self._connection
        self.close()
        self._inode = inode  # of the file that is moved aside, should it turn out to be damaged
        connection = csqlite.connect(self._path, isolation_level=None, timeout=BUSY_S)
        connection.text_factory = _text
        try:
            if not _version(connection):
                with self._alone():
                    self._make(connection)
            self._check_version(connection)
            # In a WAL this syncs once in a thousand pages; what a power loss takes is the last few lessons.
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        self._connection, self._pid, self._inode = connection, os.getpid(), self._inode_now()
        return connection

    def _make(self, connection: Connection) -> None:
        if not _version(connection):
            os.chmod(self._path, 0o600)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")

    def _check_version(self, connection: Connection) -> None:
        if (version := _version(connection)) != VERSION:
            raise CostsUnusable(
                f"Learned costs are of another version of contain ({version}).",
                advice=f"Use one version for one account, or move {self._path} away.",
            )

    def _inode_now(self) -> int:
        """Of the file under our name; 0 where there is none."""
        try:
            return os.stat(self._path).st_ino
        except FileNotFoundError:
            return 0

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """While the file is made or moved aside: two would meet half-way. Raises OSError after ``BUSY_S``."""
        fd = os.open(
            os.path.join(self._root, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            until_s = time.monotonic() + BUSY_S
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= until_s:
                        raise
                    time.sleep(PAUSE_S)
            yield
        finally:
            os.close(fd)

    def _move_aside(self, error: Exception) -> str:
        """A damaged file makes room for a new one; the one damaged before it goes. Says what was done."""
        told = f"The file of learned costs was damaged ({error})"
        try:
            self.close()
            with self._alone():
                if self._inode_now() != self._inode:
                    return f"{told}; another process has made a new one."
                # First what belongs to it: it must not be played into the new file.
                for ending in ("-wal", "-shm"):
                    if os.path.exists(self._path + ending):
                        os.unlink(self._path + ending)
                os.rename(self._path, os.path.join(self._root, DAMAGED))
        except OSError as problem:
            return f"{told}, and cannot be moved aside ({problem})."
        return f"{told}; it is {DAMAGED} now, and costs are learned anew."


def _version(connection: Connection) -> int:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _text(data: bytes) -> str:
    """A damaged text is a row that makes no sense, and no error of a kind of its own."""
    return data.decode("utf-8", "replace")
