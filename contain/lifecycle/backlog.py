"""Replies on their way to a host that may be slow: bounded in bytes and in time, and never waited for."""

from __future__ import annotations

import os
import select
import time

from contain.lifecycle.loop import WRITE_S
from contain.protocol import reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FULL_BYTES = 1 << 20
"""More than this waits: no further line of the host is read, since each may ask for more replies."""

TURN_BYTES = 1 << 18
"""At most so much is written before the jobs have their next turn."""


class Backlog:
    """What has been said and not yet been taken. ``gone``: the host takes nothing any more."""

    def __init__(self, fd: int) -> None:
        """Borrows ``fd``, and leaves its flags alone: others may share the open file."""
        self.fd = fd
        self.gone = False
        self._waiting = bytearray()
        self._progress_s = 0.0
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def say(self, message: Mapping[str, object], spelled_id: str | None) -> None:
        """One more reply; dropped where nobody will read it."""
        if self.gone:
            return
        if not self._waiting:
            self._progress_s = time.monotonic()
        self._waiting += reply(message, spelled_id)

    @property
    def waiting(self) -> bool:
        """Something is to be written."""
        return bool(self._waiting)

    @property
    def full(self) -> bool:
        """No more should be asked for."""
        return len(self._waiting) > FULL_BYTES

    @property
    def patience_until_s(self) -> float | None:
        """When (monotonic) a host that goes on taking nothing is taken for gone."""
        return self._progress_s + WRITE_S if self._waiting else None

    def write(self) -> None:
        """Writes what is taken at once. A host that closed its end, or took nothing for too long, is ``gone``."""
        sent = 0
        view = memoryview(bytes(self._waiting[:TURN_BYTES]))
        try:
            # A pipe that polls writable takes PIPE_BUF at once; more could block.
            while sent < len(view) and self._poll.poll(0):
                sent += os.write(self.fd, view[sent : sent + select.PIPE_BUF])
        except OSError:
            self.gone = True
        if sent:
            del self._waiting[:sent]
            self._progress_s = time.monotonic()
        elif self._waiting and time.monotonic() >= self._progress_s + WRITE_S:
            self.gone = True
        if self.gone:
            self._waiting.clear()
