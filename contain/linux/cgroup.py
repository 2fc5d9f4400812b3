"""The wrapper's own memory cgroup: how often the kernel has killed for memory there."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def _candidates() -> Iterator[str]:
    """Files that hold an ``oom_kill`` counter for this process: v1's own group, v2's own group."""
    with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as source:
        for line in source:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            if "memory" in controllers.split(","):
                yield f"/sys/fs/cgroup/memory{path}/memory.oom_control"
            elif not controllers:
                yield f"/sys/fs/cgroup{path}/memory.events"
                yield f"/sys/fs/cgroup/unified{path}/memory.events"


def memory_kills() -> int | None:
    """Processes killed for memory in this process's memory cgroup so far; the whole machine's count where it has none.

    None where neither can be read. The machine's count is that of /proc/vmstat, which includes every cgroup.
    """
    try:
        for path in _candidates():
            found = _counter(path)
            if found is not None:
                return found
        return _counter("/proc/vmstat")
    except OSError:
        return None


def _counter(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as source:
            for line in source:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
    except OSError:
        pass
    return None
