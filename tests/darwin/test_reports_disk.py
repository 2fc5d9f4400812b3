"""Darwin's three ways to sync, and which refusals are answered by a weaker one (docs/DARWIN-REPORTS.md).

The receipts' own code in a process of its own, into which the fake's fcntl is preloaded: what is refused is refused by
a call, and what is left of the ladder is this machine's fsync.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.darwin.world import World

ROOT = Path(__file__).parents[2]

SYNC = """
import errno, fcntl, os, sys
fcntl.F_FULLFSYNC = 51
from receipts.disk import Directory, Unwritable
directory = Directory(os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECTORY), sys.argv[1], full=sys.argv[2] == "full")
try:
    directory.put("receipt", "receipt.tmp", b"{}")
    print("written")
except Unwritable as error:
    print(error.step, errno.errorcode[error.errno])
try:
    directory.sync(os.pipe()[0])
    print("no fsync")
except OSError as error:
    print(errno.errorcode[error.errno])
"""
"""A receipt, and then a pipe: fsync(2) refuses one with EINVAL, which shows that it was asked."""


def synced(world: World, folder: Path, strength: str) -> list[str]:
    """What the two came to."""
    variables = {"LD_PRELOAD": world.library, "PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    words = [sys.executable, "-S", "-B", "-c", SYNC, str(folder), strength]
    done = subprocess.run(words, env=variables, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(("strength", "call"), [("barrier", "fcntl85"), ("full", "fcntl51")])
@pytest.mark.parametrize("number", [errno.ENOTSUP, errno.ENOTTY, errno.EINVAL])
def test_a_file_system_without_the_call_gets_fsync(
    xnu: World, tmp_path: Path, strength: str, call: str, number: int
) -> None:
    """An SMB share, and what is no disk at all: the receipt is written, and fsync was asked."""
    xnu.control(f"fail call={call} errno={number}")
    assert synced(xnu, tmp_path, strength) == ["written", "EINVAL"]


@pytest.mark.parametrize(("strength", "call"), [("barrier", "fcntl85"), ("full", "fcntl51")])
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_a_lost_write_is_told(xnu: World, tmp_path: Path, strength: str, call: str, number: int) -> None:
    """No weaker call says that all is well: the receipt does not take its name, and the step and errno are told."""
    xnu.control(f"fail call={call} errno={number}")
    name = errno.errorcode[number]
    assert synced(xnu, tmp_path, strength) == [f"sync {name}", name]
    assert list(tmp_path.iterdir()) == []
