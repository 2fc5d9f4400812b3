"""The file calls under the store: one directory, by descriptor: nobody can swap the path under our feet."""

from __future__ import annotations

import errno
import os
import stat

from receipts.codec import Unreadable
from receipts.sync import sync

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

LARGEST_BYTES: Final = 1 << 20
"""No receipt of ours comes near: more is somebody else's file, and is not read into memory."""


class Unwritable(Exception):
    """The file system refused a step; the older state stands, unless `step` is `sync-directory`.

    After a refused `sync-directory` the newer state is visible, and whether it would survive a power loss is
    unknown.
    """

    def __init__(self, number: int | None, strerror: str, step: str, name: str) -> None:
        """Take errno, its text, our step (`lock`, `create`, `write`, `sync`, `rename`, ...) and the file."""
        super().__init__(number, strerror, step, name)
        self.errno = number
        self.strerror = strerror
        self.step = step
        self.name = name

    @classmethod
    def of(cls, error: OSError, step: str, name: str) -> Unwritable:
        """Return the error of one refused step."""
        return cls(error.errno, error.strerror or type(error).__name__, step, name)

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.name}: {self.step}: {self.strerror}"


class Directory:
    """One receipts' directory. It borrows `fd`: whoever opened it closes it, after us."""

    def __init__(self, fd: int, path: str, *, full: bool = False) -> None:
        """`path` is for people only. `full`: on Darwin, sync through the drive's cache."""
        self.fd = fd
        self.path = path
        self.full = full

    def sync(self, fd: int | None = None) -> None:
        """Make a file durable, or without `fd` the names of the directory. An `OSError` is the caller's."""
        sync(self.fd if fd is None else fd, full=self.full)

    def sync_names(self) -> None:
        """Make renames durable, or raise `Unwritable`."""
        try:
            self.sync()
        except OSError as error:
            raise Unwritable.of(error, "sync-directory", self.path) from error

    def settle(self, replaced: list[str]) -> None:
        """Make the names durable, then drop what they replace: this needs no sync, a later state wins."""
        self.sync_names()
        for name in replaced:
            self.drop(name)

    def create(self, temporary: str) -> int:
        """Return a new, empty temporary file, for `put` to take over. Raises `Unwritable`."""
        try:
            return self._create(temporary)
        except OSError as error:
            raise Unwritable.of(error, "create", temporary) from error

    def put(self, name: str, temporary: str, data: bytes, created: int | None = None) -> None:
        """Make `data` appear as `name`, whole or not at all. Durable with the next `sync_names`.

        `created` is what `create` returned for this temporary; it is closed here. Raises
        `Unwritable`; then the older file of that name, if any, is untouched.
        """
        step = "create"
        try:
            fd = self._create(temporary) if created is None else created
            try:
                step = "write"
                _write_all(fd, data)
                step = "sync"
                # Before the rename: else the name may reach the disk ahead of the data (an empty receipt
                # after a crash).
                self.sync(fd)
            finally:
                os.close(fd)
            step = "rename"
            os.rename(temporary, name, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except OSError as error:
            # No second fsync: the kernel reports a lost write once, and the next call would say that all is
            # well.
            self.drop(temporary)
            raise Unwritable.of(error, step, name) from error

    def rename(self, old: str, new: str) -> None:
        """Give a durable file its next name, or raise `Unwritable`. Durable with the next `sync_names`."""
        try:
            os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)
        except OSError as error:
            raise Unwritable.of(error, "rename", new) from error

    def drop(self, name: str) -> bool:
        """Remove a name that no longer counts, and say whether it went.

        A refusal is no error: a later state wins over it.
        """
        try:
            os.unlink(name, dir_fd=self.fd)
        except OSError:
            return False
        return True

    def has(self, name: str) -> bool:
        """Say whether a name exists; where the file system does not answer, the `OSError` is the caller's."""
        try:
            os.stat(name, dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str) -> bytes | Unreadable | None:
        """Return a file's bytes, None where there is none, and what is in the way where it cannot be read."""
        try:
            # O_NONBLOCK: a FIFO of that name must not hang us.
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        except OSError as error:
            return Unreadable(f"cannot be opened: {error.strerror}", name)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                return Unreadable("not a regular file", name)
            if found.st_size > LARGEST_BYTES:
                return Unreadable(f"larger than {LARGEST_BYTES} bytes", name)
            return _read_all(fd)
        except OSError as error:
            return Unreadable(f"cannot be read: {error.strerror}", name)
        finally:
            _close_read(fd)

    def names(self) -> list[str]:
        """Return all names in one pass, or raise `Unreadable`."""
        try:
            # A descriptor of its own: the position of a listing belongs to the open file, which threads would
            # share.
            fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.fd)
            try:
                return os.listdir(fd)
            finally:
                _close_read(fd)
        except OSError as error:
            raise Unreadable(f"the directory cannot be listed: {error.strerror}", self.path) from error

    def _create(self, temporary: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(temporary, flags, 0o600, dir_fd=self.fd)
        except FileExistsError:
            # Left by a writer that died: we hold the lock of its job, so nobody is writing it now.
            os.unlink(temporary, dir_fd=self.fd)
            fd = os.open(temporary, flags, 0o600, dir_fd=self.fd)
        return fd


def _read_all(fd: int) -> bytes:
    data = b""
    while chunk := os.read(fd, LARGEST_BYTES):
        data += chunk
    return data


def _write_all(fd: int, data: bytes) -> None:
    # An inherited umask may have taken our own bits: the next reader would be locked out.
    os.fchmod(fd, 0o600)
    rest = memoryview(data)
    while rest:
        written = os.write(fd, rest)
        if not written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rest = rest[written:]


def _close_read(fd: int) -> None:
    try:  # not contextlib.suppress: the import is 3 ms of every start
        os.close(fd)
    except OSError:
        pass  # what was read is read
