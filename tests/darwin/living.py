"""Real processes for the Darwin tests: they descend from the test, which is all that a world lets anybody signal."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 30.0


def until(fact: Callable[[], object], what: str) -> None:
    """Waits for a fact."""
    deadline_s = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < deadline_s, f"never: {what}"
        time.sleep(0.01)


def sleeper() -> subprocess.Popen[bytes]:
    """A process that does nothing."""
    return subprocess.Popen(["sleep", "600"])


def is_zombie(pid: int) -> bool:
    """As this machine's own kernel says."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return False


def runs(pid: int) -> bool:
    """There, and no zombie."""
    return Path(f"/proc/{pid}").exists() and not is_zombie(pid)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills and reaps a child of the test."""
    process.kill()
    process.wait()
