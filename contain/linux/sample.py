"""How loaded this machine is now: a dozen small reads, below a millisecond, and no library between us and the kernel.

See proc_stat(5), proc_loadavg(5), proc_meminfo(5) and Documentation/accounting/psi.rst of the kernel.
"""

from __future__ import annotations

import errno
import math
import os
import time

from contain.linux import bounds, procfs
from contain.machine import MIB, Disk, Machine, Sample, Unknown, disk_of
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from contain.linux.bounds import Bounds

SHORTEST_S = 0.25
"""A shorter window is worn by the kernel's ticks of 10 ms; the last answer stands for it."""
LONGEST_S = 10.0
"""A longer one says what was, and not what is."""

MOST_CPUS = 8192
"""NR_CPUS of the largest kernels."""
KIB_PER_MIB = 1024
STAT_BYTES = 1 << 20
BUSY_FIELDS = (1, 2, 3, 6, 7, 8)
"""user, nice, system, irq, softirq and steal of a cpu line: a core that the hypervisor gave to others is not ours."""

ABSENT = (errno.ENOENT, errno.EOPNOTSUPP)
"""No such file, and PSI switched off on the kernel's command line: this machine has no such sensor."""


class Ticks(Record):
    """Counters at one moment, to be kept for the next sample, of another process too."""

    at_s: float
    """CLOCK_MONOTONIC."""
    busy: int
    """Ticks (USER_HZ) of the cores that we may use."""
    used: tuple[int, ...] = ()
    """What each cgroup with a quota has used, in that cgroup's unit."""


class _Stat(Record):
    """What is needed of /proc/stat."""

    busy: int
    runnable: int
    blocked: int
    online: int


def judge(proc: str = "/proc", limits: Bounds | None = None) -> Machine:
    """What this machine is. For once a boot: a sensor that is missing now is absent, and not unknown, from then on."""
    limits = bounds.find(proc) if limits is None else limits
    mine = os.sched_getaffinity(0)
    online = _stat(proc, frozenset(mine)).online
    quota = min((quota.cores for quota in limits.quotas), default=None)
    counts = [online, len(mine), *([] if quota is None else [math.ceil(quota)])]
    total_mib = (bounds.value(procfs.read(f"{proc}/meminfo"), "MemTotal") or 0) / KIB_PER_MIB
    return Machine(
        cores=max(1, min(counts)),
        online=online,
        affinity=len(mine),
        quota=quota,
        memory_mib=min([total_mib, *(memory.limit_bytes / MIB for memory in limits.memories)]),
        sensors=_sensors(proc),
    )


def _sensors(proc: str) -> tuple[str, ...]:
    pressure = {
        "psi_cpu": "cpu",
        "psi_io": "io",
        "psi_memory": "memory",
        "psi_io_some": "io",
        "psi_memory_some": "memory",
    }
    files = {"busy": "stat", "blocked": "stat", "load1": "loadavg"}
    files |= {name: f"pressure/{resource}" for name, resource in pressure.items()}
    found = [name for name, file in files.items() if _exists(f"{proc}/{file}")]
    memory = procfs.glance(f"{proc}/meminfo") or ""
    if bounds.value(memory, "MemAvailable") is not None:
        found.append("available_mib")
    if bounds.value(memory, "SwapTotal"):
        found.append("swap_used_mib")
    return tuple(sorted(found))


def _exists(path: str) -> bool:
    try:
        procfs.read(path)
    except OSError as error:
        return error.errno not in ABSENT
    return True


class Sampler:
    """Reads one machine again and again. ``ticks`` is what the next reading, here or elsewhere, starts from."""

    def __init__(
        self, machine: Machine, ticks: Ticks | None = None, proc: str = "/proc", limits: Bounds | None = None
    ) -> None:
        """``ticks``: of an earlier sample, if somebody kept them. ``limits``: those of ``judge``, else found again.

        It goes by ``machine`` and not by this process: one that may use three cores of eighteen, or that sits in a
        cgroup of its own, sees what everybody sees.
        """
        self.ticks: Ticks | None = ticks
        self._machine = machine
        self._proc = proc
        self._given = limits
        self._limits = self._bounds()
        self._hertz = os.sysconf("SC_CLK_TCK")
        whole = machine.affinity >= machine.online
        self._cpus = frozenset(range(MOST_CPUS)) if whole else frozenset(os.sched_getaffinity(0))
        self._last: tuple[float, float] | None = None

    def _bounds(self) -> Bounds:
        found = bounds.find(self._proc) if self._given is None else self._given
        machine = self._machine
        whole_mib = (
            bounds.value(procfs.glance(f"{self._proc}/meminfo") or "", "MemTotal") or 0
        ) / KIB_PER_MIB
        return found.replace(
            quotas=found.quotas if machine.quota is not None else (),
            memories=found.memories if machine.memory_mib < whole_mib else (),
        )

    def counters(self) -> object:
        """What the next sample, of another process too, counts from; plain values."""
        ticks = self.ticks
        return None if ticks is None else [ticks.at_s, ticks.busy, list(ticks.used)]

    def resume(self, counters: object) -> None:
        """Counts from there. Raises ValueError or TypeError for what ``counters`` did not give."""
        if counters is None:
            return
        if not isinstance(counters, list):
            raise TypeError("a list is due")
        kept_at_s, busy, used = counters
        self.ticks = Ticks(at_s=float(kept_at_s), busy=int(busy), used=tuple(int(one) for one in used))

    @staticmethod
    def disks(volumes: Mapping[str, str]) -> tuple[tuple[str, Disk | Unknown], ...]:
        """By volume. On a dead network file system that hangs."""
        return tuple((name, disk_of(path)) for name, path in volumes.items())

    def sample(self, volumes: Mapping[str, str] | None = None) -> Sample:
        """Reads everything once. ``volumes``: name -> a directory on it; on a dead network file system that hangs."""
        at_s = time.monotonic()
        values: dict[str, Any] = {}
        stat = self._try(lambda: _stat(self._proc, self._cpus))
        if isinstance(stat, _Stat):
            values["blocked"] = float(stat.blocked)
            busy = self._try(lambda: self._busy(stat, at_s))
            values["busy"], values["interval_s"] = (busy, 0.0) if isinstance(busy, Unknown) else busy
        else:
            values |= {"busy": stat, "blocked": stat}
        values["load1"] = self._try(self._load1)
        for resource in ("cpu", "io", "memory"):
            values |= self._pressure(resource)
        values |= self._memory()
        interval_s = values.pop("interval_s", 0.0)
        present = {name: values[name] for name in values if name in self._machine.sensors}
        return Sample(at_s=at_s, interval_s=interval_s, disks=self.disks(volumes or {}), **present)

    def _try(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except OSError as error:
            return Unknown(why=error.strerror or str(error))
        except (ValueError, IndexError, TypeError) as error:
            return Unknown(why=f"not as expected: {error}")

    def _busy(self, stat: _Stat, at_s: float) -> tuple[float, float]:
        """(busy cores, seconds that they are the average of)."""
        now = Ticks(at_s=at_s, busy=stat.busy, used=self._used())
        before, cores = self.ticks, self._machine.cores
        span_s = at_s - before.at_s if before is not None else math.inf
        if before is not None and 0 <= span_s < SHORTEST_S and self._last is not None:
            return self._last
        if before is None or not SHORTEST_S <= span_s <= LONGEST_S or len(before.used) != len(now.used):
            if before is None or not 0 <= span_s < SHORTEST_S:
                self.ticks = now
            # No window yet. We ourselves are one of those that run.
            return min(float(cores), max(0, stat.runnable - 1) * cores / stat.online), 0.0
        free = [min(self._machine.affinity, stat.online) - (now.busy - before.busy) / self._hertz / span_s]
        for quota, then, there in zip(self._limits.quotas, before.used, now.used, strict=True):
            if quota.usage:
                free.append(quota.cores - (there - then) / quota.per_s / span_s)
        # What a quota or an affinity does not give is busy too: somebody else's.
        self._last = max(0.0, cores - max(0.0, min(free))), span_s
        self.ticks = now
        return self._last

    def _used(self) -> tuple[int, ...]:
        try:
            return tuple(bounds.counted(quota) or 0 for quota in self._limits.quotas)
        except FileNotFoundError:
            # We were moved into another group, and ours is gone.
            self._limits = self._bounds()
            return tuple(bounds.counted(quota) or 0 for quota in self._limits.quotas)

    def _load1(self) -> float:
        """Of our part of the machine: the kernel counts the whole."""
        whole: float = float(procfs.read(f"{self._proc}/loadavg").split()[0])
        return whole * self._machine.cores / self._machine.online

    def _pressure(self, resource: str) -> dict[str, Any]:
        found = self._try(lambda: _averages(procfs.read(f"{self._proc}/pressure/{resource}")))
        some, full = (found, found) if isinstance(found, Unknown) else found
        if resource == "cpu":
            return {"psi_cpu": some}
        return {f"psi_{resource}": full, f"psi_{resource}_some": some}

    def _memory(self) -> dict[str, Any]:
        text = self._try(lambda: procfs.read(f"{self._proc}/meminfo"))
        if isinstance(text, Unknown):
            return {"available_mib": text, "swap_used_mib": text}
        return {
            "available_mib": self._try(lambda: self._available(text)),
            "swap_used_mib": self._try(
                lambda: (_kib(text, "SwapTotal") - _kib(text, "SwapFree")) / KIB_PER_MIB
            ),
        }

    def _available(self, text: str) -> float:
        whole_mib = _kib(text, "MemAvailable") / KIB_PER_MIB
        try:
            return min([whole_mib, *(bounds.free_bytes(one) / MIB for one in self._limits.memories)])
        except FileNotFoundError:
            self._limits = self._bounds()
            return min([whole_mib, *(bounds.free_bytes(one) / MIB for one in self._limits.memories)])


def _kib(text: str, key: str) -> int:
    found = bounds.value(text, key)
    if found is None:
        raise ValueError(f"{key} is missing")
    return found


def _stat(proc: str, cpus: frozenset[int]) -> _Stat:
    """Raises OSError, and ValueError or IndexError for what is no /proc/stat."""
    fd = os.open(f"{proc}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(fd, STAT_BYTES)
    finally:
        os.close(fd)
    busy = online = 0
    for line in text.splitlines():
        if not line.startswith(b"cpu"):
            break  # interrupts: thousands of numbers on a large machine
        name, *_ = fields = line.split()
        if name != b"cpu":
            online += 1
            if int(name[3:]) in cpus:
                busy += sum(int(fields[at]) for at in BUSY_FIELDS)
    if not online:
        raise ValueError("no cpu line")
    return _Stat(
        busy=busy,
        online=online,
        runnable=_named(text, b"procs_running"),
        blocked=_named(text, b"procs_blocked"),
    )


def _named(text: bytes, name: bytes) -> int:
    at = text.index(b"\n" + name + b" ")
    return int(text[at + len(name) + 2 :].split(None, 1)[0])


def _averages(text: str) -> tuple[float, float]:
    """(some, full) of the last ten seconds, in percent. Kernels before 5.13 have no ``full`` for the cpu."""
    found = {"some": 0.0, "full": 0.0}
    lines = text.splitlines()
    for line in lines:
        kind, average, *_ = line.split()
        found[kind] = float(average.removeprefix("avg10="))
    if not lines:
        raise ValueError("no line")
    return found["some"], found["full"]
