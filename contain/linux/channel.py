"""SOCK_SEQPACKET pairs between wrapper, keeper and init, and descriptors that travel over them.

From ``_socket``, the C class below ``socket``: the enums and selectors of ``socket`` cost more than a whole launch.
"""

from __future__ import annotations

import os
from _socket import (
    AF_UNIX,
    CMSG_LEN,
    MSG_CMSG_CLOEXEC,
    SCM_RIGHTS,
    SHUT_WR,
    SO_PASSCRED,
    SOCK_SEQPACKET,
    SOL_SOCKET,
    socket,
    socketpair,
)

Channel = socket
FD_BYTES = 4


def pair() -> tuple[Channel, Channel]:
    """Two connected ends, both closed by an execve."""
    return socketpair(AF_UNIX, SOCK_SEQPACKET, 0)


def want_sender(channel: Channel) -> None:
    """From now on the kernel stamps each message that arrives here with its sender's ids. See unix(7)."""
    channel.setsockopt(SOL_SOCKET, SO_PASSCRED, 1)


def hang_up(channel: Channel) -> None:
    """Our end says no more: the other end reads EOF, and can still be heard. Raises OSError."""
    channel.shutdown(SHUT_WR)


def send_fds(channel: Channel, data: bytes, fds: list[int]) -> None:
    """One message with descriptors. Raises OSError."""
    rights = b"".join(fd.to_bytes(FD_BYTES, "little") for fd in fds)
    channel.sendmsg([data], [(SOL_SOCKET, SCM_RIGHTS, rights)])


def receive_fd(channel: Channel, most_bytes: int) -> tuple[bytes, int]:
    """One message and the descriptor that came with it, -1 for none. Empty data is the other end's end."""
    data, ancillary, _, _ = channel.recvmsg(most_bytes, CMSG_LEN(FD_BYTES), MSG_CMSG_CLOEXEC)
    received = -1
    for level, kind, rights in ancillary:
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS) and len(rights) >= FD_BYTES:
            received = int.from_bytes(rights[:FD_BYTES], "little")
            os.set_inheritable(received, False)
    return data, received
