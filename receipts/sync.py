"""When are a file's bytes, or a directory's names, safe from power loss? The answer differs by system."""

from __future__ import annotations

import errno
import fcntl
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# Darwin's fsync(2) stops at the drive's cache. F_FULLFSYNC goes through it (tens of ms); F_BARRIERFSYNC only
# forbids reordering, which is what "old or new, never torn" needs. Python names
# only the first; 85 is what <sys/fcntl.h> has.
_FULL: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_BARRIER: Final[int | None] = getattr(fcntl, "F_BARRIERFSYNC", None if _FULL is None else 85)


def sync(fd: int, *, full: bool) -> None:
    """Make a file or a directory durable; the `OSError` is the caller's.

    `full` asks Darwin to go through the drive's cache, as fsync(2) does elsewhere: there it changes nothing.
    """
    command = _FULL if full else _BARRIER
    if command is not None:
        try:
            fcntl.fcntl(fd, command)
        except OSError as error:
            # Not every file system there has them (nor every descriptor): fsync is what is left.
            if error.errno not in (errno.ENOTSUP, errno.EINVAL, errno.ENOTTY):
                raise
        else:
            return
    os.fsync(fd)
