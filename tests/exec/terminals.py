"""A person at a terminal: a shell in a pty, what is typed, and what is seen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from typing import TYPE_CHECKING, Self

from tests.session import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

CONTROL = {"C": b"\x03", "D": b"\x04", "Z": b"\x1a", "\\": b"\x1c"}


class Terminal:
    """``bash -i`` on a pty of its own; prompt ``OUT> ``."""

    def __init__(self, home: Path, rows: int = 40, columns: int = 100) -> None:
        """Starts the shell and waits for its prompt."""
        environ = {
            "PS1": "OUT> ",
            "TERM": "dumb",
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "INPUTRC": "/dev/null",
        }
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "-i"], environ)  # noqa: S606
        self.resize(rows, columns)
        self.seen = b""
        self.until(r"OUT> ")

    def resize(self, rows: int, columns: int) -> None:
        """As a window manager does it."""
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, text: str) -> Self:
        """A line, with Return."""
        os.write(self.fd, text.encode() + b"\n")
        return self

    def press(self, key: str) -> Self:
        """Control and a key."""
        os.write(self.fd, CONTROL[key])
        return self

    def until(self, pattern: str) -> str:
        """What is seen up to a pattern; fails after a while."""
        deadline_s = time.monotonic() + WAIT_S
        wanted = re.compile(pattern.encode())
        while (match := wanted.search(self.seen)) is None:
            ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline_s - time.monotonic()))
            assert ready, f"{pattern!r} was never seen; so far: {self.seen[-2000:]!r}"
            self.seen += os.read(self.fd, 65536)
        found, self.seen = self.seen[: match.end()], self.seen[match.end() :]
        return found.decode(errors="replace")

    def status(self) -> int:
        """The status of the last command, when the outer shell has its prompt."""
        self.type("echo status=$?.")
        found = self.until(r"status=\d+\.\r\n(.*\n)*?OUT> ")
        return int(re.findall(r"status=(\d+)\.\r", found)[-1])

    def foreground(self) -> int:
        """The process group that reads the keyboard."""
        return os.tcgetpgrp(self.fd)

    def close(self) -> None:
        """Hangs up, and reaps the shell."""
        os.close(self.fd)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def __enter__(self) -> Self:
        """For ``with``."""
        return self

    def __exit__(self, *_: object) -> None:
        """Hangs up."""
        self.close()
