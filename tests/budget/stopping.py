"""SIGSTOP for a process that uses the registry: outside of its lock, or everybody would wait for it."""

from __future__ import annotations

import fcntl
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.session import kill, wait_until

if TYPE_CHECKING:
    import subprocess


def stop_outside(process: subprocess.Popen[str], lock: Path) -> None:
    """Returns when it is stopped and another process could have ``lock``."""

    def stopped_outside() -> bool:
        kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: _state(process.pid) == "T", what="it is stopped")
        if _free(lock):
            return True
        kill(process.pid, signal.SIGCONT)  # it has the lock, or somebody else has it for a moment: again
        return False

    wait_until(stopped_outside, what="it is stopped outside of the lock")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]


def _free(lock: Path) -> bool:
    fd = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(fd)
    return True
