"""Jobs of the Darwin backend on a fake XNU, and an independent look at them through this machine's own /proc."""

from __future__ import annotations

import atexit
import functools
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from contain.darwin import anchor_build
from tests.darwin.living import until
from tests.session import Session, inspect, kill, stat_fields

if TYPE_CHECKING:
    from tests.darwin.world import World
    from tests.session import Reply


@functools.cache
def anchor_program() -> str:
    """contain-anchor, compiled once for this process."""
    folder = tempfile.mkdtemp(prefix="contain-anchor-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = str(Path(folder, "contain-anchor"))
    anchor_build.compile_program(path)
    return path


def program(library: str) -> tuple[str, ...]:
    """The words in the place of ``contain``."""
    return (sys.executable, "-m", "tests.darwin.on_fake", library, anchor_program())


def session(world: World, receipts: Path) -> Session:
    """One ``contain run``."""
    return Session(receipts, program=program(world.library))


def inspected(world: World, receipts: Path, *words: str) -> Reply:
    """What ``contain inspect`` says of the only job there."""
    _, found = inspect(receipts, *words, program=program(world.library))
    assert len(found) == 1, found
    return found[0]


def members(anchor: int) -> list[int]:
    """Who lives in the session or group of that number, the anchor included."""
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            fields = stat_fields(int(path.name))
            if fields is not None and fields[0] not in "ZX" and anchor in (int(fields[2]), int(fields[3])):
                found.append(int(path.name))
    return sorted(found)


def parent(pid: int) -> int:
    """Who has it as a child."""
    fields = stat_fields(pid)
    assert fields is not None, f"{pid} is gone"
    return int(fields[1])


def kill_all(*pids: int) -> None:
    """SIGKILL, one straight after the other."""
    for pid in pids:
        kill(pid)


def until_gone(anchor: int) -> None:
    """Waits until nobody lives there."""
    until(lambda: not members(anchor), f"{anchor} gone; {members(anchor)}")
