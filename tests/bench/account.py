"""An account's root of our own: the benchmark's permits are nobody else's, and nobody else's are in its way."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.contestants import CONTAIN
from tests.budget.calm import units_policy

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".contain"
INSIDE = "CONTAIN_BENCH_ACCOUNT"
"""Set in the process that runs with a root of its own."""

WAIT_S = 300.0


def enter(words: list[str], folder: Path) -> int:
    """Runs ``python -m tests.bench`` with these words in a mount namespace of its own, where the root is ``folder``."""
    ROOT.mkdir(mode=0o700, exist_ok=True)
    mounted = f'mount --bind "{folder}" "{ROOT}" && exec "$@"'
    as_root = () if os.geteuid() == 0 else ("--map-root-user",)
    command = ["unshare", *as_root, "--mount", "sh", "-c", mounted, "sh"]
    command += [sys.executable, "-m", "tests.bench", *words]
    return subprocess.run(command, env={**os.environ, INSIDE: str(folder)}, check=False).returncode


def policy(units: int, order: str = "fair") -> None:
    """From now on the machine carries so many units, whatever it is."""
    (ROOT / "policy.toml").write_text(f'order = "{order}"\n' + units_policy(units))


def status() -> dict[str, Any]:
    """What ``contain status --json`` says."""
    done = subprocess.run([*CONTAIN, "status", "--json"], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def until(what: str, holds: Callable[[], bool], pause_s: float = 0.05) -> None:
    """Waits for a fact. Raises TimeoutError, which names it."""
    limit_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > limit_s:
            raise TimeoutError(what)
        time.sleep(pause_s)


def waiting(count: int) -> Callable[[], bool]:
    """Whether at least so many wait."""
    return lambda: len(status()["waiting"]) >= count


def exec_command(*command: str, session: str = "bench") -> list[str]:
    """The words of a ``contain exec`` that takes a permit."""
    return [*CONTAIN, "exec", "--session", session, "--", *command]
