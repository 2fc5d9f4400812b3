"""The file that a command inherits open, so that who has it open is a descendant.

A supervisor locks its own, by another descriptor than the one that is inherited, and removes it in the end. One that
was killed leaves it unlocked, and whoever inspects everything sweeps it away: by the lock, which no clock, no number
and no other kernel's count of forks can mistake.
"""

from __future__ import annotations

import fcntl
import os
import tempfile

PREFIX = "contain-mark-"
FOLDER = "/tmp"  # noqa: S108 - private files in it, by a name that nobody can foresee, and the same for every process


def make() -> tuple[str, int, int]:
    """(path, what is to be inherited, what holds the lock) of a private file. Raises OSError."""
    while True:
        fd, path = tempfile.mkstemp(dir=FOLDER, prefix=f"{PREFIX}{os.getpid()}-")
        try:
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:  # swept before it was locked
            os.close(fd)
            continue
        fcntl.flock(lock, fcntl.LOCK_SH)
        if os.fstat(lock).st_nlink:
            return path, fd, lock
        os.close(fd)
        os.close(lock)


def remove(path: str) -> None:
    """The end of one; a folder for temporary files may have been cleaned by somebody else."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def sweep() -> None:
    """Removes the marks of supervisors that are gone. What cannot be told stays."""
    for name in os.listdir(FOLDER):
        if name.startswith(PREFIX):
            try:
                _sweep(os.path.join(FOLDER, name))
            except OSError:
                continue  # another user's, somebody else's to sweep, or locked


def _sweep(path: str) -> None:
    """Raises OSError for one that is not to be removed."""
    if os.lstat(path).st_uid != os.geteuid():
        return
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    finally:
        os.close(fd)
