"""Where the kernel starts no thread, the API refuses as for anything else that is missing."""

from __future__ import annotations

import subprocess
import sys

from tests.session import ROOT, WAIT_S

PROGRAM = """
import contain
try:
    contain.run(["true"])
except contain.ContainError as error:
    print(error.reason, error.step, bool(error.advice))
"""


def test_a_profile_under_which_no_thread_starts() -> None:
    """An old profile of Docker's answers clone3 with EPERM, and glibc takes that for the end."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.denied", "clone3=EPERM", "--", sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("setup-failed engine True\n", "")
