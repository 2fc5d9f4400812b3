"""Who is in a containment, and what keeps each from ending. For people: nothing is ever released on a census."""

from __future__ import annotations

import os

from contain.linux import procfs
from receipts import Blocker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST = 64
"""Members named at most; one reason is enough to act on."""

ENDED_STATES = ("Z", "X")

LAST_WAITS = ("do_wait", "zap_pid_ns_processes")
"""Where an init sleeps that has been killed and has others to outlive; a living one only ever polls."""


class _Process:
    """One process, as /proc shows it now. Raises OSError when it is gone."""

    def __init__(self, pid: int) -> None:
        """Reads /proc/PID/status."""
        self.pid = pid
        lines = procfs.read(f"/proc/{pid}/status").splitlines()
        found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        self.name = found.get("Name", "?")
        self.state = found.get("State", "?")[:1]
        self.parent = int(found.get("PPid", "0"))
        self.tracer = int(found.get("TracerPid", "0")) or None


def _all() -> Mapping[int, _Process]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found[int(name)] = _Process(int(name))
            except (OSError, ValueError):
                continue  # gone meanwhile, or hidden: it cannot be named
    return found


def _namespace(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def _freezer(pid: int) -> str | None:
    """The cgroup that has frozen a process, v1 or v2; None when none has."""
    for line in (procfs.glance(f"/proc/{pid}/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "freezer":
            state = procfs.glance(f"/sys/fs/cgroup/freezer{path}/freezer.state")
            if state is not None and state != "THAWED":
                return f"freezer:{path}"
        elif not controllers:
            for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                if "frozen 1" in (procfs.glance(f"{mount}{path}/cgroup.events") or ""):
                    return f"cgroup2:{path}"
    return None


def _descendants(everyone: Mapping[int, _Process], root: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for process in everyone.values():
        children.setdefault(process.parent, []).append(process.pid)
    todo = [root]
    while todo:
        pid = todo.pop()
        yield pid
        todo += children.get(pid, [])


def _why(
    process: _Process,
    everyone: Mapping[int, _Process],
    inside: set[int],
    wchan: str | None,
    freezer: str | None,
    *,
    is_init: bool,
) -> str:
    if process.tracer is not None and process.tracer not in inside:
        tracer = everyone.get(process.tracer)
        return f"traced from outside by pid {process.tracer} ({tracer.name if tracer else 'unseen'})"
    if freezer is not None:
        return f"frozen by {freezer}"
    if process.state in ENDED_STATES and process.parent not in inside:
        parent = everyone.get(process.parent)
        name = parent.name if parent else "unseen"
        return f"ended, but its parent outside, pid {process.parent} ({name}), has not reaped it"
    if process.state == "D":
        return f"in an uninterruptible wait ({wchan or 'unseen'}): a disk or a network file system does not answer"
    if process.state in ("T", "t"):
        return "stopped"
    if process.state in ENDED_STATES:
        return "ended, and waits to be reaped"
    if is_init and wchan in LAST_WAITS:
        return "killed, and waits for the others to end"
    return "alive"


def members(init_pid: int, namespace: int) -> tuple[Blocker, ...]:
    """The processes of the containment, the init first, at most ``MOST``. Pids as this /proc numbers them.

    Found by descent from the init and by namespace: a stranger that entered from outside has a parent outside.
    """
    everyone = _all()
    inside = set(_descendants(everyone, init_pid)) if init_pid in everyone else set()
    inside |= {pid for pid in everyone if _namespace(pid) == namespace}
    order = sorted(inside, key=lambda pid: (pid != init_pid, pid))
    found = []
    for pid in order[:MOST]:
        process = everyone[pid]
        wchan, freezer = procfs.glance(f"/proc/{pid}/wchan"), _freezer(pid)
        wchan = None if wchan in (None, "0", "") else wchan
        found.append(
            Blocker(
                pid=pid,
                name=process.name,
                state=process.state,
                wchan=wchan,
                tracer=process.tracer,
                freezer=freezer,
                why=_why(process, everyone, inside, wchan, freezer, is_init=pid == init_pid),
            )
        )
    return tuple(found)
