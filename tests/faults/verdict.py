"""What may not be: seen by the census while it goes on, and left at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from contain.budget.beside import NEW
from tests.session import CONTAIN, WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.crowd import Place


STAY = (
    "lock",
    "registry.db",
    "registry.db-shm",
    "registry.db-wal",
    "machine.json",
    "policy.json",
    "sample.json",
    "sample.lock",
    "uses.json",
    "uses.lock",
    "wake",
    "bindings",
)
"""What a registry's folder keeps when nobody uses it. Everything else is of one ticket or permit."""


class Watching:
    """The census as a process of its own."""

    def __init__(self, root: Path, place: Place) -> None:
        """Starts it."""
        words = [sys.executable, "-m", "tests.faults.census", str(root), str(place.folder), str(place.limit)]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        """Whom the crowd does not count."""
        return self._process.pid

    def report(self) -> dict[str, Any]:
        """Ends it, and takes its report."""
        out, _ = self._process.communicate(timeout=WAIT_S)
        found: dict[str, Any] = json.loads(out)
        return found


def leftovers(place: Place, root: Path) -> dict[str, Any]:
    """What is left; every value is empty or 0 when all is well."""
    for bell in root.glob("live/*/wake/*"):
        os.utime(bell, (0, 0))
    status = json.loads(
        subprocess.run([*CONTAIN, "status", "--json"], check=True, capture_output=True).stdout
    )
    inspected = subprocess.run([*CONTAIN, "inspect"], check=False, capture_output=True, text=True)
    receipts = [json.loads(text) for text in inspected.stdout.splitlines()]
    said = place.folder / "said"
    violations = place.folder / "violations"
    return {
        "permits": status["permits"],
        "tickets": status["waiting"],
        "violations": violations.read_text().splitlines() if violations.exists() else [],
        "files": [str(path) for path in root.glob("live/*/**/*") if path.name.removesuffix(NEW) not in STAY],
        "receipts": [one for one in receipts if (one["state"], one["empty"]) != ("released", True)],
        "inspect": inspected.returncode,
        "tracebacks": said.read_text().count("Traceback") if said.exists() else 0,
    }


def faults(report: dict[str, Any]) -> list[str]:
    """What is wrong, in words."""
    census = report["census"]
    found = [f"census: {one}" for one in census["violations"]]
    found += [f"never returned: {one}" for one in census["neverReclaimed"]]
    found += [f"left: {name}: {what}" for name, what in report["left"].items() if what]
    return [*found, *report.get("wrong", [])]
