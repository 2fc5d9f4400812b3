"""Reading small files of /proc and /sys by plain calls: Python's ``open`` costs more than the kernel's answer."""

from __future__ import annotations

import os

MOST_BYTES = 65536


def read(path: str) -> str:
    """The text of a file, at most ``MOST_BYTES`` of it. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, MOST_BYTES).decode("utf-8", "replace")
    finally:
        os.close(fd)


def glance(path: str) -> str | None:
    """The same without its last line end, or None where it cannot be read: for what is said to people."""
    try:
        return read(path).strip()
    except OSError:
        return None


def owner_and_parent(pid: int) -> tuple[int, int]:
    """(effective uid, parent's pid) of a process. Raises OSError."""
    owner = os.stat(f"/proc/{pid}").st_uid
    # The name in parentheses may hold anything, parentheses too.
    return owner, int(read(f"/proc/{pid}/stat").rpartition(")")[2].split()[1])


class Shortcut:
    """A directory by the number of a descriptor of ours: any path is that short here. See contain.backend.Shortcut."""

    def __init__(self, folder: str) -> None:
        """Raises OSError."""
        self._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.path = f"/proc/self/fd/{self._fd}"

    def close(self) -> None:
        """See contain.backend.Shortcut."""
        os.close(self._fd)
