"""What was said is on the disk: case 10, a power loss at the moment of each answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.receipts.lives import STATES
from tests.receipts.tracing import environment

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="capability: root, to mount a file system in a loop file"
)


def lose_power(tmp_path: Path, kind: str) -> list[list[str]]:
    """Return pairs of what was said and what a boot after the power loss finds."""
    script = str(Path(__file__).with_name("powerloss.py"))
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", sys.executable, "-B", script, str(tmp_path), kind],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: list[list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("turn", range(3))
def test_inv_03_what_was_said_survives_power_loss(tmp_path: Path, turn: int) -> None:
    """A copy of the disk at the moment of each answer holds, after its recovery, the state that was said."""
    assert lose_power(tmp_path, "real") == [[state, state] for state in STATES[1:]], turn


@pytest.mark.parametrize("kind", ["no-name-sync", "no-file-sync"])
def test_inv_03_the_power_loss_is_felt(tmp_path: Path, kind: str) -> None:
    """Negative control: a store that leaves out a sync has something else on its disk than it said."""
    assert [said for said, there in lose_power(tmp_path, kind) if said != there]
