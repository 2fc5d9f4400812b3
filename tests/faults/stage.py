"""An account's root of one's own: a mount that only this process and its descendants see, and that ends with them."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.budget.calm import units_policy

if TYPE_CHECKING:
    from collections.abc import Sequence

MARKER = Path(__file__).parent / "marker.c"


def apart(words: Sequence[str]) -> list[str]:
    """The command line that runs a module of tests in a mount namespace of its own."""
    return ["unshare", "--mount", sys.executable, "-m", *words]


def new_root(limit: int) -> Path:
    """Mounts an empty root for this account, in memory: thousands of receipts are synced, and no disk is tried here."""
    root = Path(pwd.getpwuid(os.getuid()).pw_dir, ".contain")
    root.mkdir(mode=0o700, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=700", "tmpfs", str(root)], check=True)
    (root / "policy.toml").write_text(units_policy(limit))
    return root


def compiled_marker(folder: Path) -> Path:
    """The program of every job."""
    path = folder / "cmarker"
    subprocess.run(["cc", "-O1", "-Wall", "-Wextra", "-static", "-o", str(path), str(MARKER)], check=True)
    return path
