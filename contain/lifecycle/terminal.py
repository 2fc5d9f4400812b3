"""The terminal that a command is run on: whether there is one, and giving it back.

The job stays in the caller's session and, on Linux, process group, so Ctrl-C, Ctrl-Z, ``fg``, the window's size and
pipelines work as for any command: nothing is copied, and a wrapper that is killed leaves no terminal in a mode of its
own.
"""

from __future__ import annotations

import os

from contain.csignal import csignal as signal

STANDARD_FDS = (0, 1, 2)


def find() -> int | None:
    """The first standard descriptor that is this session's controlling terminal; None where there is none.

    A terminal of another session does not count: it sends us no signals and knows no process group of ours.
    """
    for fd in STANDARD_FDS:
        try:
            os.tcgetpgrp(fd)
        except OSError:
            continue
        return fd
    return None


def group(fd: int) -> int | None:
    """The process group that reads the keyboard."""
    try:
        return os.tcgetpgrp(fd)
    except OSError:
        return None


def in_foreground(fd: int) -> bool:
    """True while this process's group is the one that reads the keyboard."""
    return group(fd) == os.getpgrp()


def give(fd: int, to_group: int) -> None:
    """Lets a process group read the keyboard: ours again, after an interactive shell inside whose group had it.

    From a background group that would stop us (SIGTTOU), so the signal is blocked meanwhile.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
    try:
        os.tcsetpgrp(fd, to_group)
    except OSError:
        pass  # it hung up, or the group is gone
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
