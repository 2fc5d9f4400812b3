"""Shell scripts in an account's root of their own, by a mount that ends with the test."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.session import WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

HOME = pwd.getpwuid(os.getuid()).pw_dir
CONTAIN = f"{sys.executable} -m contain"


def words(tmp_path: Path, script: str) -> list[str]:
    """What runs a bash script where the account's root is ``tmp_path/root``; ``$C`` is our command."""
    root = tmp_path / "root"
    root.mkdir(mode=0o700, exist_ok=True)
    mounted = f"mkdir -p -m 700 {HOME}/.contain; mount --bind {root} {HOME}/.contain; export C='{CONTAIN}'; {script}"
    return ["unshare", "--mount", "bash", "-c", mounted]


def in_an_account(tmp_path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Runs it to its end."""
    return subprocess.run(
        words(tmp_path, script), capture_output=True, text=True, timeout=4 * WAIT_S, check=False
    )


# A preset without sensors: who waits is decided by the test, and not by what else runs on the machine.
CALM = """
printf '%s\\n' 'preset = "governor"' 'base = 1' 'floor = 1' 'ceiling = 1' 'required = []' \\
  'disk_floor_mib = 0' '[marks]' 'charged_load = "none"' 'thrash_load = "none"' \\
  '[classes.full]' 'min_units = 1' 'want_units = 1' \\
  > ~/.contain/policy.toml
"""


def calm(base: int) -> str:
    """The same with so many units, and with one gpu."""
    sized = CALM
    for name in ("base", "floor", "ceiling"):
        sized = sized.replace(f"'{name} = 1'", f"'{name} = {base}'")
    return sized.replace("'[classes.full]'", "'[pools]' 'gpu = 1' '[classes.full]'")


def status(text: str) -> dict[str, Any]:
    """The last line that is a status."""
    found: dict[str, Any] = json.loads([line for line in text.splitlines() if line.startswith("{")][-1])
    return found
