"""Whatever a host sends: no crash, no hang, nothing executed without the exact token, nothing left.

``fuzz.py`` holds the sessions; a failure names seed and session, which repeat it.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.session import ROOT, inspect

if TYPE_CHECKING:
    from pathlib import Path

SESSIONS = 250
SEEDS = 8  # 2,000 sessions in all
SLOW_SESSIONS = 5000


def hold(receipts: Path, seed: int, sessions: int) -> None:
    """Runs the fuzzing host, and looks at what it left."""
    command = [
        sys.executable,
        "-W",
        "ignore::DeprecationWarning",
        "-m",
        "tests.e2e.fuzz",
        str(seed),
        str(sessions),
    ]
    done = subprocess.run([*command, str(receipts)], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, f"{sessions} sessions\n"), (
        done.stdout[-3000:] + done.stderr[-3000:]
    )
    code, found = inspect(receipts)
    assert (code, {reply["state"] for reply in found}) == (0, {"released"})
    assert {reply["empty"] for reply in found} == {True}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_mutated_sessions(receipts: Path, seed: int) -> None:
    """Each session is a valid one with something wrong in it, or nothing."""
    hold(receipts, seed, SESSIONS)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(100, 104))
def test_many_more_mutated_sessions(receipts: Path, seed: int) -> None:
    """The same, for longer."""
    hold(receipts, seed, SLOW_SESSIONS)
