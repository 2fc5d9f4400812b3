"""Pipes that the engine reads and writes for a caller who waits: what a job prints, and what it is given to read.

A reader is done when the job is released, not at end of file: then nothing of the tree can write any more, and whoever
else holds a copy of the pipe (a forked child of this process) is not waited for.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.lifecycle.many import Lives

TURN_BYTES = 65536
LEFT_BYTES = 64 << 20
"""More than a pipe holds. A process outside, which was handed the pipe and writes on, is not listened to for ever."""


class Collecting:
    """Reads one pipe to its end. ``data`` is what came."""

    def __init__(self, lives: Lives, fd: int) -> None:
        """Owns ``fd``, the read end."""
        self._lives = lives
        self._fd = fd
        self.data = bytearray()
        os.set_blocking(fd, False)
        lives.watch(fd, self._read)

    def _read(self) -> None:
        self._more()

    def _more(self) -> bool:
        """One turn; False when there is nothing more now."""
        try:
            found = os.read(self._fd, TURN_BYTES)
        except BlockingIOError:
            return False
        self.data += found
        if not found:
            self.close()
        return bool(found)

    def finish(self) -> None:
        """The tree is gone: takes what is left in the pipe."""
        before = len(self.data)
        while self._fd >= 0 and len(self.data) - before < LEFT_BYTES and self._more():
            pass
        self.close()

    def close(self) -> None:
        """Lets go; a second call does nothing."""
        if self._fd >= 0:
            self._lives.unwatch(self._fd)
            self.abandon()

    def abandon(self) -> None:
        """In a forked child: closes its copy, and leaves the loop, which is the parent's, alone."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Feeding:
    """Writes one pipe to its end, as fast as it is read; a job that closes it is no fault."""

    def __init__(self, lives: Lives, fd: int, data: bytes) -> None:
        """Owns ``fd``, the write end."""
        self._lives = lives
        self._fd = fd
        self._left = memoryview(data)
        os.set_blocking(fd, False)
        lives.watch(fd, self._write, writing=True)

    def _write(self) -> None:
        try:
            self._left = self._left[os.write(self._fd, self._left[:TURN_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:
            self._left = self._left[:0]
        if not self._left:
            self.close()

    def finish(self) -> None:
        """Nobody reads it any more."""
        self.close()

    def close(self) -> None:
        """Lets go: the job reads the end of its input. A second call does nothing."""
        if self._fd >= 0:
            self._lives.unwatch(self._fd)
            self.abandon()

    def abandon(self) -> None:
        """In a forked child: closes its copy."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
