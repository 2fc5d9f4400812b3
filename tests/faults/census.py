"""An independent census: ``python -m tests.faults.census ROOT FOLDER LIMIT``, until its input ends.

It imports nothing of contain and asks nothing of it. It looks at /proc for the jobs of this campaign (processes of
marker.c, with FOLDER and the job's id in their arguments), reads the registry below ROOT as the SQLite file that it is,
and says at the end, as JSON, what it saw that may not be. It is a process of its own, since SQLite's connections do not
survive the forks of the killer.
"""

from __future__ import annotations

import json
import os
import select
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

LOOK_S = 0.02
MARKER = b"cmarker"
FOLDER_ARGUMENT, ID_ARGUMENT = 1, 3
DEAD = (b"Z", b"X")

Job = tuple[int, bytes, str]
"""pid, start ticks, the job's id."""


def start_ticks(pid: int) -> bytes | None:
    """When a living process started; None for the dead."""
    try:
        found = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if found[0] in DEAD else found[19]


def jobs(folder: str) -> Iterator[Job]:
    """Every process of a job that is alive."""
    for text in os.listdir("/proc"):  # noqa: PTH208 - names, fifty times a second
        if not text.isdigit():
            continue
        try:
            if Path(f"/proc/{text}/comm").read_bytes().strip() != MARKER:
                continue
            words = Path(f"/proc/{text}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        ticks = start_ticks(int(text))
        mine = len(words) > ID_ARGUMENT and words[FOLDER_ARGUMENT] == folder.encode()
        if ticks is not None and mine:
            yield int(text), ticks, words[ID_ARGUMENT].decode()


class Census:
    """What was seen so far."""

    def __init__(self, root: Path, folder: str, limit: int) -> None:
        """The registry need not be there yet."""
        self._root = root
        self._folder = folder
        self._limit = limit
        self._registry: sqlite3.Connection | None = None
        self._over_since_s: dict[str, float] = {}
        self._reclaimed_s: list[float] = []
        self.looks = 0
        self.most_running = 0
        self.most_units = 0
        self.violations: list[str] = []

    def _rows(self) -> dict[str, dict[str, Any]]:
        """Permits by their own id."""
        if self._registry is None:
            found = next(self._root.glob("live/*/registry.db"), None)
            if found is None:
                return {}
            self._registry = sqlite3.connect(f"file:{found}?mode=ro", uri=True, timeout=5)
        try:
            rows = self._registry.execute("SELECT id, permit, owner, proof, job_id FROM permit").fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return {}
            raise
        return {
            row[0]: {
                "units": json.loads(row[1])["units"],
                "owner": json.loads(row[2]),
                "proof": None if row[3] is None else json.loads(row[3]),
                "job": row[4],
            }
            for row in rows
        }

    def look(self) -> None:
        """Who runs, and who may. Jobs that are alive before and after the registry was read were alive meanwhile."""
        before = list(jobs(self._folder))
        rows = self._rows()
        now_s = time.monotonic()
        alive = {job for pid, ticks, job in before if start_ticks(pid) == ticks}
        units = sum(row["units"] for row in rows.values())
        self.looks += 1
        self.most_running = max(self.most_running, len(alive))
        self.most_units = max(self.most_units, units)
        if units > self._limit:
            self.violations.append(f"{units} units are granted, of {self._limit}")
        if len(alive) > self._limit:
            self.violations.append(f"{len(alive)} jobs run, of {self._limit}")
        bound = {row["job"] for row in rows.values()}
        self.violations += [f"job {job} runs, and has no permit" for job in alive - bound]
        self._reclaims(rows, alive, now_s)

    def _reclaims(self, rows: dict[str, dict[str, Any]], alive: set[str], now_s: float) -> None:
        """How long a permit stays after its owner and its tree are gone."""
        over = {name for name, row in rows.items() if self._is_over(row) and row["job"] not in alive}
        for name in over:
            self._over_since_s.setdefault(name, now_s)
        for name in set(self._over_since_s) - over:
            self._reclaimed_s.append(now_s - self._over_since_s.pop(name))

    @staticmethod
    def _is_over(row: dict[str, Any]) -> bool:
        births = [(row["owner"]["pid"], row["owner"]["start_ticks"])]
        if row["proof"] is not None:
            births.append((row["proof"]["pid"], row["proof"]["startTicks"]))
        return all(start_ticks(pid) != str(ticks).encode() for pid, ticks in births)

    def report(self) -> dict[str, object]:
        """Everything, once."""
        times_ms = sorted(1000 * one for one in self._reclaimed_s)
        return {
            "looks": self.looks,
            "mostRunning": self.most_running,
            "mostUnits": self.most_units,
            "violations": self.violations,
            "reclaims": len(times_ms),
            "reclaimP50Ms": round(times_ms[len(times_ms) // 2], 1) if times_ms else None,
            "reclaimP99Ms": round(times_ms[len(times_ms) * 99 // 100], 1) if times_ms else None,
            "reclaimLongestMs": round(times_ms[-1], 1) if times_ms else None,
            "neverReclaimed": sorted(self._over_since_s),
        }


def main() -> int:
    """Looks until the input ends."""
    census = Census(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    while not select.select([0], [], [], LOOK_S)[0]:
        census.look()
    census.look()
    sys.stdout.write(json.dumps(census.report()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
