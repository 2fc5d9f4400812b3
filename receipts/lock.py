"""The lock of one job: flock(2) on `<id>.lock`, held as long as somebody is responsible for the receipt.

flock and never fcntl locks: those belong to the process, and any close of the same file anywhere in it drops
them. A flock belongs to the open file: SIGKILL frees it, and a copy of the descriptor in a forked child keeps
it.
"""

from __future__ import annotations

import errno
import fcntl
import os

from receipts.disk import Unwritable
from receipts.names import LOCK, check_id, name_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Final, Self

# Each retry means that somebody removed the file between our open and our flock: a pruner, once per job.
_TRIES: Final = 100


class Busy(Exception):
    """Somebody else holds the lock.

    `holder_pid` is what they wrote into it, a number of *their* PID namespace; None where it cannot be read.
    """

    def __init__(self, job_id: str, holder_pid: int | None) -> None:
        """Take the job and the number found in the file."""
        super().__init__(job_id, holder_pid)
        self.job_id = job_id
        self.holder_pid = holder_pid

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.job_id} is in use by " + (
            "another process" if self.holder_pid is None else f"pid {self.holder_pid}"
        )


class Lock:
    """A lock that is held. `fd` is closed by `release`, by `remove`, or by the end of the process."""

    def __init__(self, fd: int, dir_fd: int, job_id: str) -> None:
        """Own `fd`; borrow `dir_fd`, which must stay open for `remove`."""
        self.fd = fd
        self.job_id = job_id
        self._dir_fd = dir_fd

    def release(self) -> None:
        """Let go; a second call does nothing.

        It only closes: LOCK_UN in a forked child would free its parent's lock.
        """
        fd, self.fd = self.fd, -1
        if fd >= 0:
            try:  # not contextlib.suppress: the import is 3 ms of every start
                os.close(fd)
            except OSError:
                pass  # closed all the same (close(2)); there is nothing else to do about it

    def remove(self) -> None:
        """Unlink the file while it is locked, then let go; a waiter notices that its file lost its name."""
        name = name_of(self.job_id, LOCK)
        try:
            if self.fd >= 0 and _leads_to(self._dir_fd, name, self.fd):
                os.unlink(name, dir_fd=self._dir_fd)
        except OSError:
            pass  # a lock file without a job is litter, not a fault
        self.release()

    def __enter__(self) -> Self:
        """Return the lock itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let go."""
        self.release()


def take(dir_fd: int, job_id: str) -> Lock:
    """Return the lock of a job, or raise `Busy` at once; `Unwritable` where the file cannot be made.

    The file is created where it is missing: a receipt without one must be locked by its next reader all the
    same.
    """
    name = name_of(check_id(job_id), LOCK)
    for _ in range(_TRIES):
        try:
            fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)
        except OSError as error:
            raise Unwritable.of(error, "lock", name) from error
        lock = Lock(fd, dir_fd, job_id)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _leads_to(dir_fd, name, fd):
                _sign(fd)
                return lock
        except OSError as error:
            holder = _holder(fd)
            lock.release()
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise Busy(job_id, holder) from None
            raise Unwritable.of(error, "lock", name) from error
        # We hold a file that has lost its name: the next one to come would lock a new one, and both would be
        # "the" holder.
        lock.release()
    raise Busy(job_id, None)


def _leads_to(dir_fd: int, name: str, fd: int) -> bool:
    try:
        named = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    held = os.fstat(fd)
    return (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)


def _sign(fd: int) -> None:
    try:
        os.fchmod(fd, 0o600)
        os.pwrite(
            fd, b"%-10d\n" % os.getpid(), 0
        )  # of one width: no second call, and never a mix of two numbers
    except OSError:
        pass  # the number is for people; the lock holds without it


def _holder(fd: int) -> int | None:
    try:
        return int(os.pread(fd, 32, 0))
    except (OSError, ValueError):
        return None
