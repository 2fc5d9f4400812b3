"""What a tree has used: time of its cores, and memory. An estimate for the budget: nothing is enforced by it."""

from __future__ import annotations

import os

from contain.linux import procfs
from contain.linux.tree_memory import tree
from contain.machine import TreeUse

TICKS = os.sysconf("SC_CLK_TCK")
MIB_PAGES = (1 << 20) // os.sysconf("SC_PAGE_SIZE")
TIMES = slice(11, 15)
"""utime, stime, cutime, cstime behind the name in proc_pid_stat(5): what reaped children used is their parent's."""
RESIDENT = 21


def used(root: int, most: int) -> TreeUse | None:
    """Of ``root`` and its descendants; None where there are more than ``most`` processes, or the root is not seen.

    What was never waited for (a parent that ignores SIGCHLD) is lost with its process.
    """
    ticks, pages, count = 0, 0, 0
    for pid in tree(root):
        count += 1
        if count > most:
            return None
        fields = (procfs.glance(f"/proc/{pid}/stat") or "").rpartition(")")[2].split()
        if len(fields) <= RESIDENT:
            if pid == root:
                return None
            continue  # it has ended meanwhile
        ticks += sum(map(int, fields[TIMES]))
        pages += int(fields[RESIDENT])
    return TreeUse(cpu_s=ticks / TICKS, rss_mib=pages / MIB_PAGES, processes=count)
