"""Whether the process at the other end of a socket is of a job: in its session or group, or known to descend from it.

Descent is followed up by parents, each looked at before and after, until one is a member or the anchor (inside), or is
older than the anchor (outside: nobody's parent is younger). An orphan's parent is launchd now, whoever it was: then the
unique id of its parent at birth counts, where an exec has not replaced it, or the version that the parent had at the
fork (macOS 15.4). What none of them tells is None.
"""

from __future__ import annotations

import os

from contain.darwin import birth, census

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from contain.darwin.census import Tree
    from contain.darwin.libproc import Identity, Libproc, Short

LAUNCHD = 1
MOST_LOOKS = 2
"""A parent may end as it is looked at: then somebody else is the parent."""
MOST_ANCESTORS = 256
"""A chain that is longer is no chain of commands."""


def is_inside(tree: Tree, socket: int) -> bool | None:
    """Whether who used the other end last is of the job; None where that cannot be told.

    A number is given again after some 99,000 forks, and the peer waits for our answer: it is looked at before and
    after all the same.
    """
    for _ in range(MOST_LOOKS):
        try:
            found = _look(tree, socket)
        except OSError:
            found = None
        if found is not None:
            return found
    return None


def _look(tree: Tree, socket: int) -> bool | None:
    """Once. Raises OSError."""
    pid = tree.libproc.peer_pid(socket)
    unique_id = tree.libproc.identity(pid).unique_id
    found = _descends(tree, pid)
    same = tree.libproc.peer_pid(socket) == pid and tree.libproc.identity(pid).unique_id == unique_id
    return found if same else None


def own_anchors(libproc: Libproc) -> Sequence[int]:
    """Numbers that the anchors of jobs around this process may have: its group, its session, and who is above it."""
    found = [os.getpgrp(), os.getsid(0)]
    pid = os.getppid()
    try:
        while pid > LAUNCHD and len(found) < MOST_ANCESTORS:
            found.append(pid)
            pid = libproc.short(pid).parent_pid
    except OSError:
        pass  # who is further up cannot be seen
    return tuple(dict.fromkeys(found))


def _descends(tree: Tree, pid: int) -> bool | None:
    """Raises OSError for what cannot be looked at."""
    libproc, oldest = tree.libproc, tree.proof.unique_id
    child = None
    for _ in range(MOST_ANCESTORS):
        before = libproc.identity(pid)
        if child is not None and before.unique_id >= child.unique_id:
            return None  # the parent's number has another process by now
        if before.unique_id == oldest:
            return True
        if before.unique_id < oldest:
            return False
        short = libproc.short(pid)
        member = _is_member(tree, pid, short)
        if libproc.identity(pid).unique_id != before.unique_id:
            return None  # the number changed hands as it was looked at
        if member:
            return True if _is_ours(tree, before) else None
        if short.parent_pid <= LAUNCHD:
            return by_first_parent(tree, before)
        pid, child = short.parent_pid, before
    return None


def _is_member(tree: Tree, pid: int, short: Short) -> bool:
    if short.group == tree.proof.pid:
        return True
    return tree.proof.scope == census.SESSION and tree.libproc.session(pid) == tree.proof.pid


def _is_ours(tree: Tree, member: Identity) -> bool:
    """While the anchor is unreaped the number is the job's; afterwards nearness tells, as in a census."""
    pinned = tree.anchor().state in (birth.LIVE, birth.EXITING, birth.ZOMBIE)
    return pinned or 0 < member.unique_id - tree.proof.unique_id < census.ROUND_FORKS


def by_first_parent(tree: Tree, orphan: Identity) -> bool | None:
    """Of a process that is launchd's child now, or always was, and is younger than the anchor."""
    launchd = tree.libproc.identity(LAUNCHD)
    if orphan.parent_version != 0 and orphan.parent_version == launchd.version:
        return False  # launchd has forked it
    if orphan.parent_unique_id == tree.proof.unique_id:
        return True
    if launchd.unique_id < orphan.parent_unique_id < tree.proof.unique_id:
        return False
    return None
