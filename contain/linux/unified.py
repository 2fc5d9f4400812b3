"""Where in a v2 hierarchy a leaf may be made.

See Documentation/admin-guide/cgroup-v2.rst of the kernel, and docs/CGROUP_DELEGATION.md of systemd.

A group that has processes cannot give controllers to groups below it ("no internal processes"), so our own one rarely
can. Three ways, in this order: our own group; our own again, after stepping aside into a group below it, where
somebody has delegated it to us; a group beside our own, where that escapes no limit of ours.
"""

from __future__ import annotations

import errno
import os

from contain.linux import procfs
from contain.linux.leaf import ASIDE, PREFIX, Leaf, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

DELEGATED = ("user.delegate", "trusted.delegate")
"""Extended attributes that systemd sets on a group with Delegate=yes; the first from version 251 on."""

KNOBS = (".max", ".high")
NO_KNOBS = ("cgroup.max", "rdma.max", "misc.max")
"""Of the tree of groups itself, and of devices whose lines name themselves."""
NO_LIMIT = 2**60
"""hugetlb says its default so; the others say max, and cpu.max `max 100000`."""
LISTS = ("cpuset.cpus", "cpuset.mems")

_aside: list[Leaf] = []
"""The group that this process stepped into, if it did: held for as long as it lives."""


class NoPlace(Exception):
    """There is none; the text says why, for a person."""


def place(own: str, wanted: frozenset[str], followers: Sequence[int]) -> str:
    """The directory in which a leaf has the controllers ``wanted``. Raises NoPlace.

    ``followers``: pids of unreaped children of ours, which step aside with us.
    """
    try:
        return _enabled(own, wanted)
    except OSError as error:
        refusal = error
    if refusal.errno == errno.EBUSY and _delegated(own):
        return _step_aside(own, wanted, followers)
    parent = os.path.dirname(own)
    if os.path.exists(f"{parent}/cgroup.subtree_control") and not limited(own):
        # Root could enable more there. But that changes how strangers are scheduled, and is not ours to do.
        may = os.geteuid() == 0 and wanted <= _words(f"{parent}/cgroup.subtree_control")
        if may or _delegated(parent):
            try:
                return _enabled(parent, wanted)
            except OSError:
                pass
    raise NoPlace(_why(own, refusal))


def _why(own: str, refusal: OSError) -> str:
    if refusal.errno == errno.EBUSY:
        return f"the cgroup {own} has processes and is not delegated"
    return f"the cgroup {own} may not be divided ({refusal.strerror})"


def _words(path: str) -> frozenset[str]:
    return frozenset((procfs.glance(path) or "").split())


def _enabled(group: str, wanted: frozenset[str]) -> str:
    """``group``, with these controllers for what is below it. Raises OSError.

    The kernel itself refuses memory below a group that has processes, but not cpu and pids: they are threaded
    controllers, and what is below then takes no process (`domain invalid`). So it is asked before.
    """
    kind = procfs.glance(f"{group}/cgroup.type")  # the root of a hierarchy has none, and may have processes
    if kind not in (None, "domain"):
        raise OSError(errno.EOPNOTSUPP, f"it is {kind}")
    if kind is not None and procfs.glance(f"{group}/cgroup.procs"):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
    missing = wanted - _words(f"{group}/cgroup.subtree_control")
    if missing:
        write(f"{group}/cgroup.subtree_control", " ".join(f"+{name}" for name in sorted(missing)))
    return group


def _delegated(group: str) -> bool:
    """Somebody has said that what is below this group is ours to arrange."""
    for name in DELEGATED:
        try:
            if os.getxattr(group, name) == b"1":
                return True
        except OSError:
            continue
    return False


def limited(group: str) -> bool:
    """A limit of its own holds for this group: a leaf beside it would escape that."""
    for name in os.listdir(group):
        if name.endswith(KNOBS) and not name.startswith(NO_KNOBS):
            text = procfs.glance(f"{group}/{name}") or "max"  # io.max is empty
            if not text.startswith("max") and not (text.isdigit() and int(text) >= NO_LIMIT):
                return True
    return any(procfs.glance(f"{group}/{name}") for name in LISTS)


def _step_aside(own: str, wanted: frozenset[str], followers: Sequence[int]) -> str:
    aside = Leaf(f"{PREFIX}{ASIDE}{os.getpid()}")
    moved: list[str] = []
    try:
        path = aside.make(own)
        for pid in ("0", *map(str, followers)):
            write(f"{path}/cgroup.procs", pid)
            moved.append(pid)
        found = _enabled(own, wanted)
    except OSError as error:
        for pid in moved:
            try:
                write(f"{own}/cgroup.procs", pid)
            except OSError:
                pass  # it stays below its group, and under every limit of it
        aside.remove()
        aside.close()
        why = "it has processes that are not ours to move" if error.errno == errno.EBUSY else error.strerror
        raise NoPlace(f"the cgroup {own} is delegated, but cannot be divided: {why}") from None
    _aside.append(aside)
    return found
