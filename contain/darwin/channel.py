"""Lines of JSON between wrapper and supervisor, over a stream socket pair: Darwin has no SOCK_SEQPACKET for AF_UNIX.

Descriptors travel with the single byte that goes before the first line.
"""

from __future__ import annotations

import select
import time
from _socket import AF_UNIX, CMSG_SPACE, MSG_PEEK, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket, socketpair

from receipts import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FD_BYTES = 4
READ_BYTES = 65536
WITH_DESCRIPTORS = b"+"
MOST_FDS = 64


class Channel:
    """One end. A line is sent whole; an end that is gone reads as ``over``."""

    def __init__(self, end: socket) -> None:
        """Owns the socket."""
        self._socket = end
        self._pending = bytearray()
        self.over = False

    def fileno(self) -> int:
        """To poll for reading."""
        return self._socket.fileno()

    def send(self, message: Mapping[str, object]) -> None:
        """Waits while the other end does not read. Raises OSError."""
        self._socket.sendall(jsontext.dumps(message).encode("ascii") + b"\n")

    def send_with(self, fds: Sequence[int], message: Mapping[str, object], block: bytes) -> None:
        """Descriptors, a message, and the bytes that it announces. Raises OSError."""
        rights = b"".join(fd.to_bytes(FD_BYTES, "little") for fd in fds)
        self._socket.sendmsg([WITH_DESCRIPTORS], [(SOL_SOCKET, SCM_RIGHTS, rights)])
        self.send(message)
        self._socket.sendall(block)

    def send_bytes(self, data: bytes) -> None:
        """Raw bytes. Raises OSError."""
        self._socket.sendall(data)

    def receive_fds(self) -> list[int]:
        """The descriptors that lead. Waits; none: the other end is gone. Raises OSError."""
        data, ancillary, _, _ = self._socket.recvmsg(1, CMSG_SPACE(MOST_FDS * FD_BYTES))
        found: list[int] = []
        for level, kind, rights in ancillary:
            if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
                whole = len(rights) - len(rights) % FD_BYTES
                found += [int.from_bytes(rights[at : at + 4], "little") for at in range(0, whole, FD_BYTES)]
        self.over = not data
        return found

    def receive_bytes(self, count: int) -> bytes:
        """So many raw bytes. Waits; fewer: the other end is gone."""
        while len(self._pending) < count and not self.over:
            self._take(count - len(self._pending))
        data = bytes(self._pending[:count])
        del self._pending[:count]
        return data

    def receive(self, until_s: float | None = None) -> dict[str, object] | None:
        """The next message; None at the deadline (monotonic, None for ever), and when the other end is gone."""
        while (end := self._pending.find(b"\n")) < 0:
            if self.over or not self.readable(until_s):
                return None
            self._take_line()
        line = self._pending[:end].decode("ascii")
        del self._pending[: end + 1]
        found = jsontext.loads(line)
        assert isinstance(found, dict)  # both ends are ours
        return found

    def readable(self, until_s: float | None) -> bool:
        """Waits until something can be read, at most until then."""
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        wait_ms = None if until_s is None else max(0.0, until_s - time.monotonic()) * 1000
        return bool(poll.poll(wait_ms))

    def _take_line(self) -> None:
        """Up to the end of a line and no further: a message that is in our memory wakes no poll."""
        try:
            ahead = self._socket.recv(READ_BYTES, MSG_PEEK)
        except OSError:
            ahead = b""
        self._take(ahead.find(b"\n") + 1 or len(ahead) or 1)

    def _take(self, most: int) -> None:
        try:
            data = self._socket.recv(most)
        except OSError:
            data = b""
        self.over = not data
        self._pending += data

    def close(self) -> None:
        """Hangs up."""
        self._socket.close()


def pair() -> tuple[Channel, socket]:
    """Our end, and the other as it is given away; both closed by an exec."""
    ours, theirs = socketpair(AF_UNIX, SOCK_STREAM, 0)
    return Channel(ours), theirs


def of(fd: int) -> Channel:
    """The end that this process was given."""
    return Channel(socket(AF_UNIX, SOCK_STREAM, 0, fd))
