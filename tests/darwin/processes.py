"""Real processes in every state that the contract speaks of; all are ended with the test that made them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Self

from tests.darwin.abi import KINFO_STATUS, ZOMBIE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tests.darwin.abi import Darwin

WAIT_S = 20.0

PARENT = """
import subprocess, sys
for line in sys.stdin:
    word = line.strip()
    if word == "spawn":
        child = subprocess.Popen(["sleep", "600"])
        print(child.pid, flush=True)
    elif word == "reap":
        print(child.wait(), flush=True)
"""
"""A process whose child the test is not the parent of."""

DAEMON = """
import os, sys
go, ready = os.pipe()
if os.fork() == 0:
    os.setsid()
    pid = os.fork()
    if pid == 0:
        os.write(ready, b"%d" % os.getpid())
        os.closerange(3, 20)
        os.execlp("sleep", "sleep", "600")
    os._exit(0)
print(os.read(go, 20).decode(), flush=True)
os.wait()
sys.stdin.read()
"""
"""A setsid and a double fork: the middle one is gone at once, the daemon executes sleep."""


def until(fact: Callable[[], object], what: str, wait_s: float = WAIT_S) -> None:
    """Polls for a fact that no descriptor announces."""
    deadline_s = time.monotonic() + wait_s
    while not fact():
        assert time.monotonic() < deadline_s, f"not within {wait_s} s: {what}"
        select.select([], [], [], 0.005)


class Actors:
    """Makes them and ends them."""

    def __init__(self, darwin: Darwin) -> None:
        """``darwin`` tells when a state is reached."""
        self.darwin = darwin
        self._all: list[subprocess.Popen[str]] = []
        self._others: list[int] = []

    def run(
        self, command: list[str], group: int | None = 0, user: int | None = None
    ) -> subprocess.Popen[str]:
        """A child; ``group`` 0: it leads one of its own; ``user``: whose it is."""
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=group, user=user
        )
        self._all.append(process)
        return process

    def sleeper(self, group: int | None = 0, user: int | None = None) -> subprocess.Popen[str]:
        """A child that lives."""
        return self.run(["sleep", "600"], group, user)

    def script(self, text: str, group: int | None = 0) -> subprocess.Popen[str]:
        """A Python program."""
        return self.run([sys.executable, "-I", "-S", "-c", text], group)

    def says(self, process: subprocess.Popen[str], word: str = "") -> int:
        """The number it answers, to ``word`` if there is one."""
        assert process.stdin is not None
        assert process.stdout is not None
        if word:
            process.stdin.write(word + "\n")
            process.stdin.flush()
        return int(process.stdout.readline())

    def parent(self) -> subprocess.Popen[str]:
        """Answers "spawn" with the pid of a child of its own, and "reap" with that child's end."""
        return self.script(PARENT)

    def other(self, pid: int) -> int:
        """One that is not our child, to be ended with the test all the same."""
        self._others.append(pid)
        return pid

    def zombie(self, group: int | None = 0) -> subprocess.Popen[str]:
        """A child that has ended and is not reaped."""
        process = self.sleeper(group)
        self.end(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> None:
        """Kills a child and returns when it is a zombie."""
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: self.is_zombie(process.pid), f"{process.pid} is a zombie")

    def is_zombie(self, pid: int) -> bool:
        """As the sysctl says it: the route that was seen to work on a Mac."""
        record = self.darwin.kinfo(pid)
        return record is not None and record[KINFO_STATUS] == ZOMBIE

    def reap(self, process: subprocess.Popen[str]) -> int:
        """Its wait status, with its descriptors closed."""
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        return process.wait(WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pid in self._others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._all:
            process.kill()  # Popen knows whether it was reaped: no number is used twice
            self.reap(process)
