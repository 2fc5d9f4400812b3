"""An account of its own for a test: its root of the budget is new and empty, by a mount that ends with the script."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.session import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

HOME = pwd.getpwuid(os.getuid()).pw_dir
CONTAIN = f"{sys.executable} -m contain"

CALM = """
printf '%s\\n' 'preset = "governor"' 'base = BASE' 'floor = BASE' 'ceiling = BASE' 'required = []' '[marks]' \\
  'charged_load = "none"' 'thrash_load = "none"' '[pools]' 'gpu = 1' '[classes.full]' 'min_units = 1' \\
  'want_units = 1' > ~/.contain/policy.toml
"""
"""A policy without sensors: who waits is decided by the test, and not by what else runs on the machine."""


def calm(base: int = 1) -> str:
    """The line that makes the calm policy of ``base`` units, with one gpu."""
    return CALM.replace("BASE", str(base))


def words(tmp_path: Path, script: str) -> list[str]:
    """The command that runs a bash script in an account of its own; ``$C`` is our command."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700, exist_ok=True)
    mounted = f"mkdir -p -m 700 {HOME}/.contain; mount --bind {root} {HOME}/.contain; C='{CONTAIN}'; {script}"
    return ["unshare", "--mount", "bash", "-c", mounted]


def in_an_account(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    return subprocess.run(
        words(tmp_path, script), capture_output=True, text=True, timeout=4 * WAIT_S, check=False
    )
