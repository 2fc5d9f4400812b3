"""What launchd starts for a job: a supervisor (contain.darwin.supervise) that comes to its wrapper at a socket.

Its parent is launchd and its wrapper is nobody's to reap, so it looks for the wrapper's birth. Whenever it does not end
because the job is over and a living wrapper was told so, nobody else may be there to remove the job from launchd: it
asks for that itself, as its last act.
"""

from __future__ import annotations

import os

from contain.backend import Birth
from contain.darwin import birth, launchd, meeting, supervise
from contain.darwin.handle import opened
from contain.darwin.libproc import Libproc

FIRST_FREE = 3


class Elsewhere:
    """A wrapper that is no relative: known by its birth."""

    def __init__(self, libproc: Libproc, born: Birth) -> None:
        """``born``: as the wrapper has told it to launchd."""
        self._libproc = libproc
        self._born = born
        self.pid = born.pid

    def gone(self) -> bool:
        """Only on proof; its end of the socket tells sooner."""
        return birth.sight(self._libproc, self._born).state in (birth.ZOMBIE, birth.GONE)


def main(
    library: str, program: str, launchctl: str, path: str, pid: str, unique_id: str, service: str
) -> None:
    """The whole process."""
    supervise.settle(FIRST_FREE)
    libproc = Libproc(opened(library or None))
    told = False
    try:
        meeting.hold(os.path.dirname(path))
        told = _serve(libproc, program, path, int(pid), int(unique_id))
    finally:
        if not told:
            meeting.remove(os.path.dirname(path))
            # Not waited for: launchctl waits for this process's own end.
            launchd.Call(launchctl, ("bootout", service))


def _serve(libproc: Libproc, program: str, path: str, pid: int, unique_id: int) -> bool:
    """True: the job is over, and a wrapper that lives was told so."""
    try:
        born = birth.take(libproc, pid)
    except OSError:
        return False
    if born.unique_id != unique_id:
        return False
    wrapper = meeting.come(libproc, path, born)
    if wrapper is None:
        return False
    over = supervise.serve(wrapper, libproc, program, Elsewhere(libproc, born))
    return over and not wrapper.over
