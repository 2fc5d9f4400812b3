"""The terminal of a job that is in our session, and in a process group of its own: as a shell has its jobs."""

from __future__ import annotations

import os

from contain.csignal import csignal as signal
from contain.darwin import layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.darwin.libproc import Libproc

STANDARD_FDS = (0, 1, 2)

FOR_GROUPS = frozenset(
    {signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH}
)
"""What terminals and shells send to whole groups. Who sent one is not known here, so each is taken for theirs."""


def is_ours_alone(libproc: Libproc) -> bool:
    """Whether we read the keyboard, and nobody else in our group might: no pager behind us, no script around us."""
    group = os.getpgrp()
    if group not in map(_reader, STANDARD_FDS):
        return False
    try:
        return libproc.listed(layout.PGRP_ONLY, group) == [os.getpid()]
    except OSError:
        return False


def _reader(fd: int) -> int | None:
    try:
        return os.tcgetpgrp(fd)
    except OSError:
        return None  # not the terminal of our session
