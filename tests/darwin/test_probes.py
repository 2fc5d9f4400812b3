"""The programs of the macOS workflow do their work: on the fake, so that no run on a Mac is lost to a slip."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.darwin.probes import PROBES

if TYPE_CHECKING:
    from tests.darwin.processes import Actors
    from tests.darwin.world import World

ROOT = Path(__file__).parents[2]


def program(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs one as the workflow does."""
    return subprocess.run(
        [sys.executable, "-m", f"tests.darwin.{name}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_probe_finds_something(lineage: World) -> None:
    """P1 to P14, none failed; and what the facts say is what the fake says."""
    done = program("probes", lineage.library)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [probe.__name__ for probe in PROBES] == [name for name in found if name != "system"]
    assert [name for name, finding in found.items() if "failed" in finding] == [], found
    assert found["p1_zombies"]["flavour 13 arg 0"] == "ESRCH"
    assert found["p1_zombies"]["flavour 13 arg 1"] == "data"
    assert found["p4_launchd"]["gui"]["coalition"] != found["p4_launchd"]["own"]
    assert found["p4_launchd"]["gui"]["tasks"] == 1
    assert found["p5_exact"] == {"symbol": True, "token of before the exec": "ESRCH", "token of now": "0"}
    assert found["p6_killpg"] == {"live": "0", "pgid 1": "EPERM", "zombie": "EPERM", "reaped": "ESRCH"}


def test_a_survivor_is_named(lineage: World, actors: Actors, tmp_path: Path) -> None:
    """Only those born after the mark."""
    old = actors.sleeper().pid
    mark = str(tmp_path / "mark")
    assert program("survivors", "mark", mark, lineage.library).returncode == 0
    late = actors.sleeper().pid
    done = program("survivors", "check", mark, lineage.library)
    assert done.returncode == 1, done.stderr
    assert f"pid {late} " in done.stdout
    assert f"pid {old} " not in done.stdout
