"""Random kills and stops of everybody who takes part in a budget, with a census beside it.

What must hold, whoever dies when: never more than the limit runs (each job takes one of as many locks), every job that
runs has its permit (the census), and at the end nothing is left: no unit, no ticket, no process, no torn receipt.
"""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.faults.crowd import Crowd, Place, Victim, import_all, launch, members, reap, send
from tests.faults.verdict import Watching, leftovers
from tests.session import WAIT_S, wait_until
from tests.survivors import describe

if TYPE_CHECKING:
    from pathlib import Path

CROWD = 7
PAUSE_S = 0.012
STOPS_PART = 0.15
LONGEST_STOP_S = 0.3
ROLES = ("wrapper", "wrapper", "holder", "holder", "keeper", "init", "job")
"""A holder is a wrapper whose init is there; each role is as likely as it stands here, however many there are."""


class Campaign:
    """One machine of ``place.limit`` units."""

    def __init__(self, place: Place, seed: int) -> None:
        """The seed makes the same choices again; when they meet whom is up to the machine."""
        self._place = place
        self._chance = random.Random(seed)  # noqa: S311 - to be the same again
        self._crowd = Crowd(place, self._chance)
        self._role = ""
        self._stopped: dict[Victim, float] = {}
        self.kills: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()

    def run(self, kills: int) -> None:
        """Until so many have been killed."""
        while self.kills.total() < kills:
            self._crowd.leave()
            self._crowd.fill(CROWD)
            select.select([], [], [], self._chance.random() * PAUSE_S)
            self._strike()
            self._go_on()
        self._go_on(everybody=True)

    def _strike(self) -> None:
        """Somebody is killed, or stopped for a while."""
        # A role that nobody has yet is waited for: else only those would be killed that are there from the start.
        role = self._role = self._role or self._chance.choice(ROLES)
        found = [one for wrapper in self._crowd.wrappers for one in members(wrapper) if one.role == role]
        if not found:
            return
        self._role = ""
        victim = self._chance.choice(found)
        if self._chance.random() < STOPS_PART:
            if victim not in self._stopped and send(victim, signal.SIGSTOP):
                self.stops[role] += 1
                self._stopped[victim] = time.monotonic() + self._chance.random() * LONGEST_STOP_S
        elif send(victim, signal.SIGKILL):
            self.kills[role] += 1

    def _go_on(self, *, everybody: bool = False) -> None:
        """Who was stopped long enough is continued, or killed as it is."""
        now_s = time.monotonic()
        for victim, until_s in list(self._stopped.items()):
            if everybody or now_s >= until_s:
                del self._stopped[victim]
                end = self._chance.random() < 0.5
                if send(victim, signal.SIGKILL if end else signal.SIGCONT) and end:
                    self.kills[f"stopped {victim.role}"] += 1

    def drain(self) -> None:
        """Nobody is killed any more: those who are left end by themselves."""

        def ended() -> bool:
            self._crowd.leave()
            return not self._crowd.wrappers

        try:
            wait_until(ended, WAIT_S / 2, "the last wrappers have ended")
        except AssertionError as error:
            stuck = [describe(one.pid) for wrapper in self._crowd.wrappers for one in members(wrapper)]
            raise AssertionError(f"{error}; they are {stuck}; strays {self._crowd.strays()}") from None

    def meet(self) -> None:
        """Every unit can be had at once: as many jobs as the limit end only when they have met."""
        for number in range(self._place.limit):
            self._crowd.wrappers.append(launch(self._place, f"m{number}", 0, "meet"))
        self.drain()

    def settle(self) -> None:
        """Trees whose wrappers were killed end too."""
        wait_until(lambda: not (reap() or self._crowd.strays()), what="no process is left")

    def figures(self) -> dict[str, Any]:
        """What was done."""
        log = (self._place.folder / "log").read_text().splitlines()
        return {
            "kills": dict(self.kills),
            "killsTotal": self.kills.total(),
            "stops": dict(self.stops),
            "launched": self._crowd.launched,
            "jobsStarted": len(log),
        }


def hold(place: Place, root: Path, seed: int, kills: int) -> dict[str, Any]:
    """A whole campaign; the report says under ``left`` and ``census`` what may not be."""
    import_all()
    begun_s = time.monotonic()
    watching = Watching(root, place)
    try:
        campaign = Campaign(place, seed)
        campaign.run(kills)
        campaign.drain()
        campaign.meet()
    finally:
        census = watching.report()
    campaign.settle()
    left = leftovers(place, root)
    seconds = round(time.monotonic() - begun_s, 1)
    cpu_s = sum(os.times()[:4])
    return {
        "seed": seed,
        "limit": place.limit,
        "seconds": seconds,
        "cpuSeconds": round(cpu_s, 1),
        **campaign.figures(),
        "census": census,
        "left": left,
    }
