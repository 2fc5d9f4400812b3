"""The cgroups of this machine, asked of the kernel by mere file calls: what may a test expect to be enforced?"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.session import new_id

if TYPE_CHECKING:
    from collections.abc import Iterator

KNOBS = {"memory": "memory.limit_in_bytes", "cpu": "cpu.cfs_quota_us", "pids": "pids.max"}
WHERE = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")


class Group(NamedTuple):
    """This process's own cgroup for one controller."""

    word: str
    """What a reply calls it."""
    path: Path


def own(controller: str) -> Group | None:
    """The group of this process, where its directory shows it; None where there is no such controller."""
    for text in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = text.split(":", 2)
        if controller in names.split(","):
            # v1 is mounted under the names that it has, in the order that /proc/self/cgroup gives them.
            found = Path(f"/sys/fs/cgroup/{names}{path}")
            return Group("cgroup-v1", found) if found.is_dir() else None
    for text in Path("/proc/self/cgroup").read_text().splitlines():
        if text.startswith("0::"):
            for root in WHERE:
                found = Path(root + text[3:].rstrip("/"))
                controllers = found / "cgroup.controllers"
                if controllers.exists() and controller in controllers.read_text().split():
                    return Group("cgroup-v2", found)
    return None


def divisible(controller: str) -> Group:
    """The own group, in which this very process can make another with a limit; skips where it cannot."""
    found = own(controller)
    if found is None:
        pytest.skip(f"capability: a cgroup with the controller {controller}")
    trial = found.path / f"contain-test-{new_id()}"
    try:
        trial.mkdir()
    except OSError as error:
        pytest.skip(f"capability: to make a cgroup in {found.path} ({error.strerror})")
    try:
        if found.word == "cgroup-v2" and not (trial / f"{controller}.max").exists():
            with contextlib.suppress(OSError):
                (found.path / "cgroup.subtree_control").write_text(f"+{controller}")
            if not (trial / f"{controller}.max").exists():
                pytest.skip(f"capability: {found.path} gives no {controller} on")
    finally:
        trial.rmdir()
    return found


def leaves() -> set[Path]:
    """Every leaf of a job that there is on this machine."""
    found = set()
    for root, names, _ in os.walk("/sys/fs/cgroup"):
        found |= {Path(root) / name for name in names if name.startswith("contain-") and "-test-" not in name}
    return found


def leaves_of(job_id: str) -> set[Path]:
    """The leaves of one job."""
    return {path for path in leaves() if path.name == f"contain-{job_id}"}


@contextlib.contextmanager
def unified_group() -> Iterator[Path]:
    """A v2 group of a test's own, with what is below it; gone afterwards. It has whatever controllers v2 has here."""
    mounts = [
        Path(text.split()[4])
        for text in Path("/proc/self/mountinfo").read_text().splitlines()
        if text.partition(" - ")[2].startswith("cgroup2 ")
    ]
    if os.geteuid() != 0 or not mounts:
        pytest.skip("capability: root and a mounted cgroup v2")
    path = mounts[0] / f"contain-test-{new_id()}"
    path.mkdir()
    try:
        yield path
    finally:
        for root, _, _ in os.walk(path, topdown=False):
            Path(root).rmdir()
