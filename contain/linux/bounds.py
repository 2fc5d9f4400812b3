"""The cgroup limits around this process, v1 or v2, from the outermost that it can see to its own.

See "CPU Interface Files" and "Memory Interface Files" in Documentation/admin-guide/cgroup-v2.rst, and sched-bwc.rst and
cgroup-v1/memory.rst of the kernel.
"""

from __future__ import annotations

import os

from contain.linux import hierarchy, procfs
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

V1_NO_LIMIT_BYTES = 1 << 60
"""v1 says "none" as the largest number of pages; nobody has an exbibyte."""


class Quota(Record):
    """A cgroup that may use ``cores`` busy cores, and the file that counts what it used; "" where none is seen."""

    cores: float
    usage: str
    per_s: int
    """What ``usage`` counts in one busy second."""


class Memory(Record):
    """A cgroup that may use ``limit_bytes``."""

    limit_bytes: int
    usage: str
    stat: str
    reclaimable: str
    """The key in ``stat`` of what the kernel drops when memory is short."""


class Bounds(Record):
    """Every limit that holds for this process."""

    quotas: tuple[Quota, ...] = ()
    memories: tuple[Memory, ...] = ()


def find(proc: str = "/proc") -> Bounds:
    """Reads them. No cgroups in sight: no limits."""
    try:
        groups = list(hierarchy.every(proc))
    except OSError:
        return Bounds()
    cpu, cpuacct, memory = (_chain(groups, name) for name in ("cpu", "cpuacct", "memory"))
    return Bounds(quotas=tuple(_quotas(cpu, cpuacct)), memories=tuple(_memories(memory)))


def _chain(
    groups: Sequence[tuple[frozenset[str], hierarchy.Group]], controller: str
) -> list[hierarchy.Group]:
    """The groups from the hierarchy's visible root to ours, where this controller's limits are."""
    mine = [group for names, group in groups if group.version == hierarchy.V1 and controller in names]
    # In v2 a limit may be set further up than the controller reaches down to us.
    mine += [group for _, group in groups if group.version == hierarchy.V2]
    if not mine:
        return []
    found, path = [mine[0]], os.path.dirname(mine[0].path)
    while os.path.exists(f"{path}/cgroup.procs"):
        found.append(mine[0].replace(path=path))
        path = os.path.dirname(path)
    return found[::-1]


def _quotas(chain: Sequence[hierarchy.Group], accounts: Sequence[hierarchy.Group]) -> Iterator[Quota]:
    for depth, group in enumerate(chain):
        if group.version == hierarchy.V2:
            words = (procfs.glance(f"{group.path}/cpu.max") or "max").split()
            usage, per_s = f"{group.path}/cpu.stat", 1_000_000
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            words = [procfs.glance(f"{group.path}/{name}") or "-1" for name in names]
            # `cpu` and `cpuacct` are mounted together nearly everywhere, and else have the same groups.
            same = len(accounts) == len(chain) and accounts[depth].version == hierarchy.V1
            usage = f"{accounts[depth].path}/cpuacct.usage" if same else ""
            per_s = 1_000_000_000
        if len(words) > 1 and words[0].isdigit() and words[1].isdigit() and int(words[1]):
            yield Quota(cores=int(words[0]) / int(words[1]), usage=usage, per_s=per_s)


def _memories(chain: Sequence[hierarchy.Group]) -> Iterator[Memory]:
    for group in chain:
        version = group.version
        limit, usage, key = (
            ("memory.max", "memory.current", "inactive_file")
            if version == hierarchy.V2
            else ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        )
        text = procfs.glance(f"{group.path}/{limit}") or ""
        if text.isdigit() and int(text) < V1_NO_LIMIT_BYTES:
            yield Memory(
                limit_bytes=int(text),
                usage=f"{group.path}/{usage}",
                stat=f"{group.path}/memory.stat",
                reclaimable=key,
            )


def counted(quota: Quota) -> int | None:
    """What a quota's group has used so far, in its own unit; None where that cannot be seen. Raises OSError."""
    if not quota.usage:
        return None
    text = procfs.read(quota.usage)
    return int(text) if text[:1].isdigit() else value(text, "usage_usec")


def free_bytes(memory: Memory) -> int:
    """What the group may still take, with what the kernel would drop for it. Raises OSError."""
    used = int(procfs.read(memory.usage))
    return max(
        0, memory.limit_bytes - used + min(used, value(procfs.read(memory.stat), memory.reclaimable) or 0)
    )


def value(text: str, key: str) -> int | None:
    """The number behind a key of a flat file: ``key 12``, ``key: 12 kB``."""
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0].rstrip(":") == key and words[1].isdigit():
            return int(words[1])
    return None
