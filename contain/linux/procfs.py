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
