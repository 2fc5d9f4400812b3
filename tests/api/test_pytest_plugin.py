"""The fixture ``contained`` and its option, in a pytest of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.session import ROOT, WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
import os

def test_a_server(contained):
    job = contained(["sleep", "60"])
    assert not job.over

def test_two(contained):
    assert contained(["true"]).wait().returncode == 0
    assert contained(["false"]).wait().returncode == 1

def test_leaves(contained):
    assert contained(["sh", "-c", "sleep 60 & exit 0"], grace_s=3).wait().returncode == 0

def test_fails(contained):
    contained(["sleep", "60"])
    assert 0
"""


def outcome(directory: Path, *options: str) -> str:
    """What a pytest says that runs TESTS."""
    (directory / "test_it.py").write_text(TESTS)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(directory),
            *options,
            ".",
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WAIT_S * 4,
        check=False,
    )
    return done.stdout


FAIL = "--contained-leftovers=fail"


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "options",
    [(), pytest.param((FAIL,), marks=pytest.mark.slow), (FAIL, "-n", "2")],
)
def test_leftovers_fail_where_that_is_asked_for(options: tuple[str, ...], tmp_path: Path) -> None:
    """The test itself passes or fails by its own words; the fixture's end tells of the leftovers."""
    said = outcome(tmp_path, *options)
    assert ("1 failed, 3 passed, 1 error" if options else "1 failed, 3 passed in") in said, said
    assert ("sh left 1: sleep" in said) == bool(options), said
