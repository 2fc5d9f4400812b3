"""Kills a child at one of its system calls, by ptrace(2)."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PTRACE_SYSCALL, PTRACE_SEIZE, PTRACE_INTERRUPT = 24, 0x4206, 0x4207
TRACESYSGOOD, EXITKILL = 0x1, 0x100000
AT_A_CALL = signal.SIGTRAP | 0x80

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    if _libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def seize(pid: int) -> None:
    """Follows a child from now on; what it starts is not followed, and it dies if we do."""
    _ptrace(PTRACE_SEIZE, pid, TRACESYSGOOD | EXITKILL)
    _ptrace(PTRACE_INTERRUPT, pid)


def kill_at(pid: int, ordinal: int, entering: Callable[[int], None]) -> int | None:
    """Kills a seized child at the entry of its call ``ordinal`` (from 1), which is not made any more.

    ``entering`` is told the number of each call. Returns the wait status of a child that ended by itself before that.
    """
    entered, inside = 0, False
    while True:
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            return status
        number, event = os.WSTOPSIG(status), status >> 16
        if number == AT_A_CALL:
            inside = not inside
            if inside:
                entered += 1
                entering(entered)
                if entered == ordinal:
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)
                    return None
        # A stop by a call or by an event is ours alone; everything else is a signal, and the child's.
        _ptrace(PTRACE_SYSCALL, pid, 0 if event or number == AT_A_CALL else number)
