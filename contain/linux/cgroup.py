"""How often the kernel has killed for memory: in the wrapper's own cgroup, or in a job's."""

from __future__ import annotations

from contain.linux import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINE = "/proc/vmstat"
"""Where no cgroup counts: the machine's count, which includes every cgroup's."""


def _candidates() -> Iterator[str]:
    """Files with an ``oom_kill`` counter for this process: v1's own group, v2's own group, the machine."""
    for line in (procfs.glance("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            yield f"/sys/fs/cgroup/memory{path}/memory.oom_control"
        elif not controllers:
            yield f"/sys/fs/cgroup{path}/memory.events"
            yield f"/sys/fs/cgroup/unified{path}/memory.events"
    yield MACHINE


def _count(path: str) -> int | None:
    for line in (procfs.glance(path) or "").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return None


class MemoryKills:
    """The counter of one cgroup. It is found once, so that a launch pays for one small read."""

    def __init__(self, path: str | None = None) -> None:
        """Of the file ``path``; without one, looks for the counter of this process's cgroup."""
        self._path = path or next((path for path in _candidates() if _count(path) is not None), None)

    def count(self) -> int:
        """Processes killed for memory so far; 0 where nothing counts them, so that none is ever blamed on memory."""
        return 0 if self._path is None else _count(self._path) or 0
