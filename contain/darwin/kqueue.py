"""A kqueue through the handle: what is readable, who has ended or forked. One a process, made after any fork."""

from __future__ import annotations

import errno
import os

from contain.darwin import layout
from contain.darwin.handle import failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from contain.darwin.handle import Handle

MOST_EVENTS = 32


class Kqueue:
    """Closed by an exec, and by a fork."""

    def __init__(self, handle: Handle) -> None:
        """Raises OSError."""
        self._handle = handle
        self._ffi: Any = handle.ffi
        self.fd, number = handle.call("kqueue")
        if self.fd < 0:
            raise failed(number)
        self._events = self._ffi.new("struct kevent[]", MOST_EVENTS)

    def watch_readable(self, fd: int) -> None:
        """From now on ``wait`` tells of it. Raises OSError."""
        self._add(fd, layout.READ_FILTER, 0)

    def watch_process(self, pid: int, notes: int = layout.NOTE_EXIT) -> bool:
        """False for one that is ended or exiting. The caller looks again who has the number. Raises OSError."""
        try:
            self._add(pid, layout.PROC_FILTER, notes)
        except OSError as error:
            if error.errno == errno.ESRCH:
                return False
            raise
        return True

    def _add(self, ident: int, which: int, notes: int) -> None:
        change = self._ffi.new("struct kevent *")
        change.ident, change.filter, change.fflags = ident, which, notes
        change.flags = (
            layout.EV_ADD | layout.EV_RECEIPT | (layout.EV_CLEAR if which == layout.PROC_FILTER else 0)
        )
        got, number = self._handle.call("kevent", self.fd, change, 1, self._events, 1, self._ffi.NULL)
        if got < 0:
            raise failed(number)
        receipt = self._events[0]
        if got == 1 and receipt.flags & layout.EV_ERROR and receipt.data:
            raise failed(int(receipt.data))

    def wait(self, wait_s: float) -> list[tuple[int, int, int]]:
        """(filter, ident, notes) of what happened, within that time. Raises OSError."""
        limit = self._ffi.new("struct darwin_timespec *")
        limit.sec = int(wait_s)
        limit.nsec = int((wait_s - int(wait_s)) * 1e9)
        got, number = self._handle.call(
            "kevent", self.fd, self._ffi.NULL, 0, self._events, MOST_EVENTS, limit
        )
        if got < 0:
            raise failed(number)
        return [(event.filter, int(event.ident), event.fflags) for event in self._events[0:got]]

    def close(self) -> None:
        """Lets go of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
