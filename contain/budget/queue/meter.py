"""What the trees of the permits use, measured once for everybody: it lies beside the registry, as the sample does.

A permit that is young is charged with what it may still take (ADMISSION.md: units minus busy cores, memory minus
resident memory). What is not known counts as nothing taken, so it may be late, and never too little.
"""

from __future__ import annotations

import fcntl
import os
import time

from contain.budget import beside
from contain.budget.queue import reconcile
from receipts import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from contain.backend import Backend
    from contain.budget.registry import PermitRow

    Uses = Mapping[str, tuple[float, float]]
    """Permit id -> (busy cores, MiB)."""

FILE = "uses.json"
LOCK = "uses.lock"
FRESH_S = 2.0
OLDEST_S = 10.0
"""Older, a rate says nothing of the permit's present. The next look's window begins there all the same."""
MOST = 256
"""Processes that one measurement looks at, the youngest permits' first: 10 ms at most, once in ``FRESH_S``."""


class Meter:
    """Of one registry's folder. Never waits for another process, and never fails: what is not known is left out."""

    def __init__(self, folder: str, backend: Backend) -> None:
        """Nothing is read yet."""
        self._folder = folder
        self._backend = backend

    def uses(self) -> Uses:
        """What was measured last, if it is not too old."""
        kept = self._kept()
        if not 0 <= time.monotonic() - kept.get("at_s", float("-inf")) <= OLDEST_S:
            return {}
        return {name: (one[2], one[3]) for name, one in kept["trees"].items()}

    def measure(self, rows: Iterable[PermitRow]) -> None:
        """Looks at these permits' trees, unless somebody has just done so or is at it."""
        kept = self._kept()
        if 0 <= time.monotonic() - kept.get("at_s", float("-inf")) <= FRESH_S:
            return
        try:
            lock = os.open(os.path.join(self._folder, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            beside.replace(
                os.path.join(self._folder, FILE), jsontext.dumps(self._anew(rows, kept.get("trees", {})))
            )
        except OSError:
            pass  # somebody is at it, or the disk is full: unknown, and charged whole
        finally:
            os.close(lock)

    def _anew(self, rows: Iterable[PermitRow], before: Mapping[str, list[float]]) -> dict[str, object]:
        left, trees = MOST, {}
        for row in sorted(rows, key=lambda one: -one.permit.granted_at_s):
            proof = None if row.proof is None else reconcile.proof_of(row.proof)
            used = None if proof is None else self._backend.used(proof, left)
            if used is None:
                continue
            left -= used.processes
            at_s = time.monotonic()
            # The first window is its whole life, since the containment that it is bound to began with it.
            cpu_s, since_s, *_ = before.get(row.permit.id, (0.0, row.permit.granted_at_s))
            busy = max(0.0, used.cpu_s - cpu_s) / max(0.1, at_s - since_s)
            trees[row.permit.id] = [used.cpu_s, at_s, round(busy, 3), round(used.rss_mib, 1)]
        return {"at_s": time.monotonic(), "trees": trees}

    def _kept(self) -> dict[str, Any]:
        try:
            with open(os.path.join(self._folder, FILE), encoding="ascii") as file:
                found = jsontext.loads(file.read())
            for one in found["trees"].values():
                _, _, _, _ = map(float, one)
            return {"at_s": float(found["at_s"]), "trees": found["trees"]}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
