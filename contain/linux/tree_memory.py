"""How much memory a tree has, by looking at its processes now and then: for jobs without a cgroup that counts it."""

from __future__ import annotations

import os

from contain.linux import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MOST = 4096
"""Processes that are looked at; a fork bomb must not keep the wrapper from its cancel."""


class TreeMemory:
    """The largest sum of resident sets that was seen. Whoever drives it calls ``look`` about once a second.

    Pages that processes share count for each of them, and what lives between two looks is not seen: an estimate, and
    called ``sampled``. See proc_pid_statm(5).
    """

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self.peak_bytes = 0
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def look(self, root: int) -> int:
        """The bytes of ``root`` and its descendants now, which are also kept if they are the most so far."""
        now_bytes = self._page_bytes * sum(_resident_pages(pid) for pid in tree(root))
        self.peak_bytes = max(self.peak_bytes, now_bytes)
        return now_bytes


def tree(root: int) -> Iterator[int]:
    """The root and what descends from it. Children are listed by the thread that has them: proc_tid_children(5)."""
    todo, seen = [root], 0
    while todo and seen < MOST:
        pid = todo.pop()
        seen += 1
        yield pid
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:
            continue
        for thread in threads:
            todo += [
                int(child) for child in (procfs.glance(f"/proc/{pid}/task/{thread}/children") or "").split()
            ]


def _resident_pages(pid: int) -> int:
    fields = (procfs.glance(f"/proc/{pid}/statm") or "").split()
    return int(fields[1]) if len(fields) > 1 else 0


def tasks(root: int) -> int:
    """How many processes and threads the tree has now, the root's among them."""
    found = 0
    for pid in tree(root):
        try:
            found += len(os.listdir(f"/proc/{pid}/task"))
        except OSError:
            continue  # it has ended
    return found
