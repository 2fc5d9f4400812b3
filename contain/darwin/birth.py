"""Births on Darwin: taking one, and looking for it again later. A birth is boot session, pid and unique id.

``sight`` is the one observation of the backend: nothing else concludes from libproc whether a process lives. Fails
closed: what cannot be seen is ``unknown``, never ``gone``.
"""

from __future__ import annotations

import errno
import os

from contain.backend import Birth, Observation
from contain.darwin import layout
from contain.errors import SetupFailed
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.darwin.libproc import Entry, Libproc, Short

LIVE, EXITING, ZOMBIE, GONE, UNKNOWN = "live", "exiting", "zombie", "gone", "unknown"

RUNNING = (LIVE, EXITING)
"""It may still write. A zombie does not, but its numbers are taken until it is reaped."""

ANOTHER = "its number belongs to another process now (unique id)"


class Sight(Record):
    """What one look has shown: ``live``, ``exiting``, ``zombie``, ``gone`` or ``unknown``, and why."""

    state: str
    why: str
    short: Short | None = None
    """What the kernel says of it, where it is there."""


def take(libproc: Libproc, pid: int) -> Birth:
    """The birth of the process that has this number now. Raises OSError; ESRCH: nobody has it."""
    first = libproc.identity(pid)
    entry = libproc.entry(pid)
    if entry is None or libproc.identity(pid).unique_id != first.unique_id:
        raise OSError(errno.ESRCH, os.strerror(errno.ESRCH))
    return Birth(
        boot_id=libproc.boot_session(),
        observer_namespace=0,
        pid=pid,
        start_ticks=entry.start_us,
        unique_id=first.unique_id,
    )


def mine(libproc: Libproc) -> Birth:
    """The birth of this process. Raises SetupFailed."""
    try:
        return take(libproc, os.getpid())
    except OSError as error:
        raise SetupFailed(
            f"This process cannot tell its own birth ({error.strerror}).",
            advice="Run contain outside of a sandbox that hides processes.",
        ) from None


def sight(libproc: Libproc, birth: Birth) -> Sight:
    """One fresh look."""
    if birth.unique_id is None:
        return Sight(state=UNKNOWN, why="its record has no unique id: it is another system's")
    try:
        if libproc.boot_session() != birth.boot_id:
            return Sight(state=GONE, why="recorded in another boot")
    except OSError as error:
        return _unseen(error)
    for _ in range(2):
        found = _look(libproc, birth, birth.unique_id)
        if found is not None:
            return found
    return Sight(state=UNKNOWN, why="its number changed hands as it was looked at (race)")


def _unseen(error: OSError) -> Sight:
    name = errno.errorcode.get(error.errno or 0, "no errno")
    return Sight(state=UNKNOWN, why=f"it could not be looked at ({name}: {error.strerror})")


def _look(libproc: Libproc, birth: Birth, unique_id: int) -> Sight | None:
    """None: the number changed hands between two questions."""
    try:
        if libproc.identity(birth.pid).unique_id != unique_id:
            return Sight(state=GONE, why=ANOTHER)
        short = libproc.short(birth.pid)
        entry = libproc.entry(birth.pid)
        if libproc.identity(birth.pid).unique_id != unique_id:
            return None
    except OSError as error:
        if error.errno == errno.ESRCH:
            return _by_entry(libproc, birth)
        return _unseen(error)
    if entry is not None and entry.start_us != birth.start_ticks:
        return Sight(state=UNKNOWN, why="its unique id is the recorded one, but not its start time")
    if short.status == layout.ZOMBIE_STATUS:
        return Sight(state=ZOMBIE, why="it has ended, and waits to be reaped", short=short)
    if short.flags & layout.IN_EXIT:
        return Sight(state=EXITING, why="it is on its way out", short=short)
    return Sight(state=LIVE, why="unique id and start time", short=short)


def _by_entry(libproc: Libproc, birth: Birth) -> Sight | None:
    """proc_pidinfo says that nobody is there: is that so, or does it just not show the dead?"""
    try:
        entry: Entry | None = libproc.entry(birth.pid)
    except OSError as error:
        return _unseen(error)
    if entry is None:
        return Sight(state=GONE, why="no process has its number (ESRCH)")
    if entry.start_us != birth.start_ticks:
        return Sight(state=GONE, why="its number belongs to another process now (start time)")
    if entry.status == layout.ZOMBIE_STATUS:
        return Sight(state=ZOMBIE, why="it has ended, and waits to be reaped (KERN_PROC_PID)")
    return Sight(state=EXITING, why="it is on its way out (KERN_PROC_PID)")


def observation(seen: Sight) -> Observation:
    """For contain.backend. What is exiting may still hold a file or a port, so it is live; a zombie has ended."""
    state = {LIVE: LIVE, EXITING: LIVE, ZOMBIE: GONE, GONE: GONE}.get(seen.state, UNKNOWN)
    return Observation(state=state, why=seen.why)
