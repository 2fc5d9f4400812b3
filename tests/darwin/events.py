"""A kqueue for tests: attach with a receipt, and wait for what happens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.darwin.abi import ADD, PROC, RECEIPT, Struct, ffi

if TYPE_CHECKING:
    from types import TracebackType

    from tests.darwin.abi import Darwin


class Event(NamedTuple):
    """A struct kevent without ``udata``."""

    ident: int
    filter: int
    flags: int
    fflags: int
    data: int


class Kqueue:
    """One queue; closed on exit."""

    def __init__(self, darwin: Darwin) -> None:
        """Opens it."""
        self._lib = darwin.lib
        self.fd = int(self._lib.kqueue())
        assert self.fd >= 0, ffi.errno

    def change(self, event: Event) -> int:
        """Registers with EV_RECEIPT; 0 or the errno of the receipt."""
        one: Struct = ffi.new("struct kevent[1]")
        answer: Struct = ffi.new("struct kevent[1]")
        one[0].ident, one[0].filter, one[0].data = event.ident, event.filter, event.data
        one[0].flags, one[0].fflags = event.flags | RECEIPT, event.fflags
        assert self._lib.kevent(self.fd, one, 1, answer, 1, ffi.NULL) == 1, ffi.errno
        return int(answer[0].data)

    def attach(self, pid: int, notes: int) -> int:
        """EVFILT_PROC; 0 or the errno."""
        return self.change(Event(pid, PROC, ADD, notes, 0))

    def wait(self, seconds: float = 20.0, most: int = 16) -> list[Event]:
        """What has happened, or happens within the time; an empty list otherwise."""
        room: Struct = ffi.new("struct kevent[]", most)
        limit: Struct = ffi.new("struct timespec *")
        limit.tv_sec, limit.tv_nsec = int(seconds), int(seconds % 1 * 1e9)
        count = self._lib.kevent(self.fd, ffi.NULL, 0, room, most, limit)
        assert count >= 0, ffi.errno
        return [Event(e.ident, e.filter, e.flags, e.fflags, e.data) for e in room[0:count]]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.fd)
