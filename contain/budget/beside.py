"""Small files beside the registry that spare the next command some work: replaced whole, and never synced."""

from __future__ import annotations

import fcntl
import os

NEW = ".new"
"""Behind a file's name: what will take its place. One name for everybody, so that nobody who is killed leaves more."""


def replace(path: str, text: str) -> None:
    """Whoever reads sees the old text or the new one. Raises OSError; then it is the old one still.

    Nothing is done where somebody else replaces it in this moment: what they write is as good.
    """
    temporary = path + NEW
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_ino != os.stat(temporary).st_ino:
            return  # it was renamed while we came: it is the file itself by now
        os.ftruncate(fd, 0)
        data = text.encode()
        while data:
            data = data[os.write(fd, data) :]
        os.rename(temporary, path)
    except (BlockingIOError, FileNotFoundError):
        return
    finally:
        os.close(fd)
