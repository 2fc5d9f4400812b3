"""Kills of wrappers, keepers, inits and jobs at random moments: nothing is lost, and nothing is granted twice.

By command there are as many as one likes: ``python -m tests.faults --kills 10000``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.blocked import needs_root
from tests.faults.census import Census
from tests.faults.stage import apart, compiled_marker
from tests.session import ROOT, WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

SEED = int(os.environ.get("CONTAIN_TEST_SEED", random.SystemRandom().randrange(1 << 32)))


def report(*options: str) -> dict[str, Any]:
    """Runs ``python -m tests.faults``; what it found, which has to be nothing."""
    done = subprocess.run(
        apart(["tests.faults", "--staged", *options]), capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, f"{options}: {done.stdout[-4000:]}{done.stderr[-4000:]}"
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_root
@pytest.mark.timeout(300)
@pytest.mark.parametrize("limit", [2])
def test_random_kills_and_stops(limit: int) -> None:
    """Whoever dies: the limit holds at every moment, and every unit can be had again."""
    found = report("--kills", "80", "--limit", str(limit), "--seed", str(SEED))
    assert found["killsTotal"] >= 80
    assert found["jobsStarted"] > limit
    assert found["census"]["looks"] > 0


@needs_root
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_thousands_of_random_kills(limit: int) -> None:
    """The same for longer."""
    report("--kills", "2000", "--limit", str(limit), "--seed", str(SEED))


@needs_root
@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", [1])
def test_a_wrapper_is_killed_at_some_of_its_calls(first: int) -> None:
    """From its first to its last call, in a line with one ahead and one behind: both go on, one after the other."""
    assert report("--calls", "--first", str(first), "--stride", "24")["deaths"] > 20


@needs_root
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_wrapper_is_killed_at_each_of_its_calls() -> None:
    """The same at every call there is."""
    assert report("--calls")["deaths"] > 500


def test_a_job_too_many_is_told(tmp_path: Path) -> None:
    """The control: two jobs without any permit, where one may run."""
    words = [str(compiled_marker(tmp_path)), str(tmp_path), "1"]
    with subprocess.Popen([*words, "first", "60000", "plain"]) as first:
        while not (tmp_path / "log").exists():
            os.sched_yield()
        second = subprocess.run([*words, "second", "0", "plain"], check=False)
        first.kill()
    assert second.returncode == 9
    assert "second no-slot-is-free" in (tmp_path / "violations").read_text()


def test_a_job_without_a_permit_is_told(tmp_path: Path) -> None:
    """The control: the census finds a job that runs, and no row for it."""
    census = Census(tmp_path, str(tmp_path), 1)
    words = [str(compiled_marker(tmp_path)), str(tmp_path), "1", "alone", "60000", "plain"]
    with subprocess.Popen(words) as job:
        while not (tmp_path / "log").exists():
            os.sched_yield()
        census.look()
        job.kill()
    assert census.report()["violations"] == ["job alone runs, and has no permit"]


def test_a_unit_too_few_is_told(tmp_path: Path) -> None:
    """The control: one of two jobs that have to meet does not come."""
    words = [str(compiled_marker(tmp_path)), str(tmp_path), "2", "alone", "0", "meet"]
    assert subprocess.run(words, check=False, timeout=2 * WAIT_S).returncode == 8
