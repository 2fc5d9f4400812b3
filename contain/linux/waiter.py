"""A wrapper that waits for long becomes the native waiter, and Python again when something has happened.

The process stays the same: its number, its start and its pidfs id, by which the registry knows it. So does every
descriptor that its caller gave it; Python's own close at the execve. Signals that are blocked stay blocked, and one
that comes meanwhile stays pending until Python reads it.
"""

from __future__ import annotations

import os
import sys

from contain.linux import command, native
from contain.linux.keeper import program

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TITLE = "contain: waiting"
"""All that ps shows of it besides some numbers: no argument of the command."""


def become(words: Sequence[str], wake: Sequence[int], keep: Sequence[int], until_s: float | None) -> None:
    """Returns only where it cannot be; then nothing has changed. See contain.backend.Backend.become_waiter."""
    if not sys.executable or len(wake) > native.MOST_WATCHED:
        return
    block = command.sealed(native.command_block([os.fsencode(sys.executable)], _encoded(words), []))
    given = (block, *wake, *keep)
    until_ms = 0 if until_s is None else int(until_s * 1000) + 1
    try:
        for fd in given:
            os.set_inheritable(fd, True)
        os.execve(  # noqa: S606 - a program of ours, and no shell
            program(),
            [TITLE, "wait", str(until_ms), *(str(fd) for fd in (block, *wake))],
            dict(variable.split(b"=", 1) for variable in command.inherited()),
        )
    except OSError:
        pass  # too many variables for one more execve, no memory: this process waits on as it is
    for fd in given:
        os.set_inheritable(fd, False)
    os.close(block)


def _encoded(words: Sequence[str]) -> list[bytes]:
    return [os.fsencode(word) for word in words]
