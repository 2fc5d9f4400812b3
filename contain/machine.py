"""What a machine is and how it is now: its sensors, each a number, absent or unknown."""

from __future__ import annotations

import os

from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Protocol
else:
    Protocol = object


MIB = 1 << 20


class Unknown(Record):
    """A sensor that exists and failed now. One that this machine never had reads None."""

    why: str


class Disk(Record):
    """One volume."""

    free_mib: float
    total_mib: float


def disk_of(path: str) -> Disk | Unknown:
    """The volume on which ``path`` is; see statvfs(3)."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return Unknown(why=error.strerror or str(error))
    return Disk(
        free_mib=found.f_bavail * found.f_frsize / MIB, total_mib=found.f_blocks * found.f_frsize / MIB
    )


class Machine(Record):
    """What this machine is for as long as it is up, judged once, with the sources of the judgement.

    ``cores`` is the smallest of ``online``, ``affinity`` and ``quota`` (rounded up), and at least 1.
    """

    cores: int
    online: int
    affinity: int
    quota: float | None
    """Busy cores that the tightest cgroup around us allows; None without one."""
    memory_mib: float
    """The RAM, or the tightest cgroup's limit."""
    sensors: tuple[str, ...]
    """The fields of Sample that this machine has."""


class Sample(Record):
    """One reading of the machine: each value a number, None (this machine has no such sensor) or Unknown (it failed).

    cpu and memory are of the part that we may use: a cgroup's limit or an affinity counts as the machine's end.
    """

    id: str = ""
    at_s: float = 0.0
    """CLOCK_MONOTONIC."""
    interval_s: float = 0.0
    """What ``busy`` is the average of; 0: it is the number of runnable tasks at this moment, and no average."""
    busy: float | Unknown | None = None
    """Busy cores."""
    load1: float | Unknown | None = None
    psi_cpu: float | Unknown | None = None
    """Percent of the last ten seconds: some for cpu, full for io and memory."""
    psi_io: float | Unknown | None = None
    psi_memory: float | Unknown | None = None
    psi_io_some: float | Unknown | None = None
    psi_memory_some: float | Unknown | None = None
    blocked: float | Unknown | None = None
    """Tasks that wait for a disk, uninterruptibly."""
    available_mib: float | Unknown | None = None
    swap_used_mib: float | Unknown | None = None
    disks: tuple[tuple[str, Disk | Unknown], ...] = ()
    """By volume: ``home``, ``work``."""


class TreeUse(Record):
    """What a containment's tree has used since it began, and has now."""

    cpu_s: float
    rss_mib: float
    processes: int


class Sampler(Protocol):
    """Reads the machine again and again."""

    def sample(self, volumes: Mapping[str, str] | None = None) -> Sample:
        """Everything, once. ``volumes``: name -> a directory on it."""

    def disks(self, volumes: Mapping[str, str]) -> tuple[tuple[str, Disk | Unknown], ...]:
        """Those volumes alone."""

    def counters(self) -> object:
        """What the next sample counts from, as plain values, to be kept; None for none."""

    def resume(self, counters: object) -> None:
        """Counts from there. Raises ValueError or TypeError for what ``counters`` did not give."""
