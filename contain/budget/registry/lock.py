"""The registry's lock: everybody's turn to read, decide and write. Whoever holds it never sleeps."""

from __future__ import annotations

import errno
import fcntl
import os
import time

from contain.csignal import csignal as signal
from contain.errors import LockUnavailable, WaitInterrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

FIRST_PAUSE_S = 0.0002
LONGEST_PAUSE_S = 0.004
NAMED_AFTER_S = 5.0
"""A lock is held for a millisecond; somebody who holds it longer is stopped, and is named."""
GIVE_UP_S = 60.0
INTERRUPTIBLE_AFTER_S = 0.5
"""Until then a signal waits with us: what it would interrupt is over sooner than it could be undone."""


class RegistryLock:
    """flock and not fcntl locks: those drop when any descriptor of the file is closed, anywhere in the process."""

    def __init__(
        self,
        path: str,
        say: Callable[[str], None],
        give_up_s: float = GIVE_UP_S,
        asked: Callable[[], str | None] | None = None,
    ) -> None:
        """``say`` is told, once for each wait, who is in the way. ``asked``: the signal that ends the wait, or None."""
        self._path = path
        self._say = say
        self._give_up_s = give_up_s
        self._asked = asked
        self._fd = -1
        self._mask: set[signal.Signals] = set()

    def __enter__(self) -> Self:
        """Waits for the lock. Raises LockUnavailable: after a minute, or where the file cannot be had."""
        try:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise LockUnavailable(
                f"{self._path} cannot be opened ({error.strerror}).",
                advice="It is an empty file that the registry makes: move away what is there instead.",
            ) from None
        try:
            self._wait(fd)
        except BaseException:
            os.close(fd)
            raise
        # A signal that ended us half-way would be no harm to the file, but a stop in here would be everybody's.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # type: ignore[assignment]
        os.pwrite(fd, b"%-10d\n" % os.getpid(), 0)
        self._fd = fd
        return self

    def _wait(self, fd: int) -> None:
        begun_s, pause_s, named = time.monotonic(), FIRST_PAUSE_S, False
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
            waited_s = time.monotonic() - begun_s
            if waited_s >= self._give_up_s:
                raise LockUnavailable(
                    f"{self._holder(fd)} has held the registry's lock for more than {self._give_up_s:g} s.",
                    advice="Look whether it is stopped (state T), and continue or end it.",
                )
            if waited_s >= INTERRUPTIBLE_AFTER_S and self._asked is not None and (caught := self._asked()):
                raise WaitInterrupted(
                    f"{caught} came while waiting for the registry's lock, which {self._holder(fd)} holds.",
                    advice="",
                    state="Nothing was changed.",
                )
            if waited_s >= NAMED_AFTER_S and not named:
                named = True
                self._say(f"waiting for the registry's lock, which {self._holder(fd)} holds")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)

    @staticmethod
    def _holder(fd: int) -> str:
        try:
            return f"process {int(os.pread(fd, 32, 0))}"
        except (OSError, ValueError):
            return "another process"

    def __exit__(self, *_: object) -> None:
        """Lets go; signals that came meanwhile are delivered now."""
        fd, self._fd = self._fd, -1
        os.close(fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
