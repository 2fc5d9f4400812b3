"""One wrapper after the other is killed at one of its system calls, from the first to the last.

Each has one before it in line, whose unit it waits for, and one behind it, which must get that unit whatever becomes of
it. That one is the next one's one before. There is one unit, and every job proves that it is alone.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from tests.faults.crowd import Place, begin, import_all, launch, prepare, reap
from tests.faults.stepper import kill_at, seize
from tests.faults.verdict import Watching, leftovers
from tests.session import WAIT_S, descendants, wait_until

if TYPE_CHECKING:
    from pathlib import Path

LIFE_MS = 15
BEYOND = 60
"""The way to the end has a few calls more or less each time: so many calls are tried beyond one that did not come."""


class Sweep:
    """The line, and what went wrong in it."""

    def __init__(self, place: Place) -> None:
        """Somebody is the first."""
        self._place = place
        self._ended: dict[int, int] = {}
        self._ahead = launch(place, "ahead", LIFE_MS, "plain")
        self.deaths = 0
        self.wrong: list[str] = []

    def kill(self, ordinal: int) -> bool:
        """One more comes and dies at its call ``ordinal``; False when it had fewer."""
        victim, start = prepare(self._place, "victim", LIFE_MS, "daemon")
        behind, start_behind = prepare(self._place, "behind", LIFE_MS, "plain")
        waiting = [start_behind]

        def entering(number: int) -> None:
            if number >= ordinal // 2 and waiting:
                begin(waiting.pop())

        seize(victim)
        begin(start)
        status = kill_at(victim, ordinal, entering)
        while waiting:
            begin(waiting.pop())
        if status is not None and status != 0:
            self.wrong.append(f"call {ordinal}: it was not killed, and its status is {status}")
        self.deaths += status is None
        self._ends_well(self._ahead, ordinal)
        self._ahead = behind
        return status is None

    def _ends_well(self, pid: int, ordinal: int) -> None:
        def ended() -> bool:
            self._ended.update(reap())
            return pid in self._ended

        wait_until(ended, WAIT_S, f"who was ahead at call {ordinal} has ended")
        if self._ended[pid] != 0:
            self.wrong.append(f"call {ordinal}: who was ahead ended with {self._ended[pid]}")

    def finish(self) -> None:
        """The last one ends too, and every tree."""
        self._ends_well(self._ahead, -1)

    def settle(self) -> None:
        """Trees whose wrappers were killed end too."""
        wait_until(lambda: not (reap() or descendants(os.getpid())), what="no process is left")


def through(place: Place, root: Path, first: int, stride: int) -> dict[str, Any]:
    """Deaths at the calls ``first``, ``first + stride``, ... until there are no more."""
    import_all()
    begun_s = time.monotonic()
    watching = Watching(root, place)
    try:
        sweep = Sweep(place)
        ordinal = last = first
        while ordinal <= last + BEYOND:
            if sweep.kill(ordinal):
                last = ordinal
            ordinal += stride
        sweep.finish()
    finally:
        census = watching.report()
    sweep.settle()
    return {
        "seconds": round(time.monotonic() - begun_s, 1),
        "cpuSeconds": round(sum(os.times()[:4]), 1),
        "deaths": sweep.deaths,
        "lastCall": last,
        "wrong": sweep.wrong,
        "census": census,
        "left": leftovers(place, root),
    }
