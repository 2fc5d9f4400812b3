"""The machine's load on Darwin, for the arbiter: each value a number, absent, or Unknown.

It grants nothing by itself: any short or failed answer is Unknown, and so a reason to wait. The kernel may answer with
an old copy of its memory counters and say success, so two equal readings are no sign of rest.
"""

from __future__ import annotations

import os
import time

from contain.machine import MIB, Disk, Machine, Sample, Unknown, disk_of
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from contain.darwin.mach import Mach

TICKS_PER_S = 100
"""host_processor_info counts in units of 10 ms, whatever the machine, in 32 bits."""
TICKS_ROUND = 2**32
SHORTEST_S, LONGEST_S = 0.2, 60.0
VM_EVERY_S = 1.0
"""The kernel answers a process some few times a second, and then with an old copy."""

SENSORS = ("available_mib", "busy", "load1", "swap_used_mib")


class Ticks(Record):
    """What the next reading counts from: of each core, user and system ticks."""

    at_s: float
    used: tuple[int, ...]


def judge(mach: Mach) -> Machine:
    """What this machine is. There are no cgroups and no affinities. Raises OSError where its memory is not told."""
    cores = os.cpu_count() or 1
    memory_mib = mach.number("hw.memsize") / MIB
    return Machine(
        cores=cores, online=cores, affinity=cores, quota=None, memory_mib=memory_mib, sensors=SENSORS
    )


class Sampler:
    """Satisfies contain.backend.Sampler."""

    def __init__(self, mach: Mach, machine: Machine) -> None:
        """Goes by ``machine``."""
        self._mach = mach
        self._machine = machine
        self._ticks: Ticks | None = None
        self._last: tuple[float, float] | None = None
        self._memory: tuple[float, float | Unknown] | None = None

    def counters(self) -> object:
        """See contain.backend.Sampler."""
        return None if self._ticks is None else [self._ticks.at_s, list(self._ticks.used)]

    def resume(self, counters: object) -> None:
        """See contain.backend.Sampler."""
        if counters is None:
            return
        if not isinstance(counters, list):
            raise TypeError("a list is due")
        at_s, used = counters
        self._ticks = Ticks(at_s=float(at_s), used=tuple(int(one) for one in used))

    @staticmethod
    def disks(volumes: Mapping[str, str]) -> tuple[tuple[str, Disk | Unknown], ...]:
        """By volume. On a dead network file system that hangs."""
        return tuple((name, disk_of(path)) for name, path in volumes.items())

    def sample(self, volumes: Mapping[str, str] | None = None) -> Sample:
        """Everything, once."""
        at_s = time.monotonic()
        busy = _try(lambda: self._busy(at_s))
        busy, interval_s = busy if isinstance(busy, tuple) else (busy, 0.0)
        return Sample(
            at_s=at_s,
            interval_s=interval_s,
            busy=busy,
            load1=_try(lambda: os.getloadavg()[0]),
            available_mib=self._available(at_s),
            swap_used_mib=_try(lambda: self._mach.swap_used_bytes() / MIB),
            disks=self.disks(volumes or {}),
        )

    def _busy(self, at_s: float) -> tuple[float, float]:
        """(busy cores, seconds that they are the average of)."""
        now = Ticks(at_s=at_s, used=self._mach.core_ticks())
        before = self._ticks
        span_s = at_s - before.at_s if before is not None else LONGEST_S + 1
        if before is not None and 0 <= span_s < SHORTEST_S and self._last is not None:
            return self._last
        self._ticks = now
        if before is None or not SHORTEST_S <= span_s <= LONGEST_S or len(before.used) != len(now.used):
            return min(float(self._machine.cores), os.getloadavg()[0]), 0.0  # no window yet
        spent = sum((there - then) % TICKS_ROUND for then, there in zip(before.used, now.used, strict=True))
        self._last = min(float(self._machine.cores), spent / TICKS_PER_S / span_s), span_s
        return self._last

    def _available(self, at_s: float) -> float | Unknown:
        if self._memory is None or at_s - self._memory[0] >= VM_EVERY_S:
            self._memory = at_s, _try(self._available_now)
        return self._memory[1]

    def _available_now(self) -> float:
        """The kernel's own level counts all anonymous pages as available, so the free and cached ones bound it."""
        level = self._mach.number("kern.memorystatus_level") / 100 * self._mach.number("hw.memsize")
        free_pages, external_pages, speculative_pages = self._mach.memory_pages()
        # Free has the speculative ones already, and they are external too.
        cached = (free_pages + external_pages - speculative_pages) * self._mach.page_bytes()
        return min(level, cached) / MIB


def _try(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except OSError as error:
        return Unknown(why=error.strerror or str(error))
    except (ValueError, IndexError, TypeError) as error:
        return Unknown(why=f"not as expected: {error}")
