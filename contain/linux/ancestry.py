"""Whether the process at the other end of a socket lives in a containment. See unix(7), ioctl_ns(2)."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from _socket import SO_PEERCRED, SOL_SOCKET

from contain.linux import birth

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

    from receipts import Proof

NS_GET_PARENT = 0xB702
SO_PEERPIDFD = 77
"""Linux 6.5. Before, the number is looked at twice: a pidfd by number, and whether it still stands for the peer."""

CREDENTIALS_BYTES = 12
"""struct ucred: pid, uid and gid, 32 bits each."""

DEEPEST = 33
"""PID namespaces nest 32 deep at most (MAX_PID_NS_LEVEL)."""


def is_inside(proof: Proof, connection: socket) -> bool | None:
    """Whether the peer that connected is in the proven namespace, or in one below it; None: it cannot be told.

    The peer is who called connect(2), whoever has its descriptor now.
    """
    try:
        credentials = connection.getsockopt(SOL_SOCKET, SO_PEERCRED, CREDENTIALS_BYTES)
        pid = int.from_bytes(credentials[:4], sys.byteorder)
        if pid == 0:
            return False  # no number here: it is in no namespace below ours
        pidfd = _peer(connection, pid)
    except OSError:
        return None
    try:
        proc_pid = birth.proc_pid(pidfd)
        namespace = os.open(f"/proc/{proc_pid}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        # Read before this look, so it was the peer's and not a later owner's of its number.
        return None if birth.ended(pidfd) else _descends(namespace, proof.namespace)
    except OSError:
        return None
    finally:
        os.close(pidfd)


def _peer(connection: socket, pid: int) -> int:
    try:
        return connection.getsockopt(SOL_SOCKET, SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
    return os.pidfd_open(pid)


def _descends(fd: int, namespace: int) -> bool:
    """Whether the namespace of ``fd``, which is closed, is this one or below it."""
    try:
        for _ in range(DEEPEST):
            if os.fstat(fd).st_ino == namespace:
                return True
            try:
                above = fcntl.ioctl(fd, NS_GET_PARENT)
            except PermissionError:
                return False  # the next one up is above ours
            os.close(fd)
            fd = above
        return False
    finally:
        os.close(fd)
