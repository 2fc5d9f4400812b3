"""Jobs of launchd's on a fake XNU: daemons that leave no trace, and what the stand-in for launchd has loaded."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from contain.darwin.meeting import PREFIX
from tests.darwin.living import until

if TYPE_CHECKING:
    from tests.darwin.world import World

DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    os.closerange(0, 256)
    if os.fork() == 0:
        with open(sys.argv[1] + '.part', 'w') as told:
            told.write(str(os.getpid()))
        os.rename(sys.argv[1] + '.part', sys.argv[1])
        time.sleep(600)
    os._exit(0)
"""
"""The parent is not waited for, and the middle one is gone at once: no descriptor, no session, no living parent."""


def daemon(folder: Path) -> str:
    """A shell's text that starts one; its pid is then in ``folder``."""
    script = folder / "daemon.py"
    script.write_text(DAEMON)
    return f"{sys.executable} -I -S {script} {folder}/daemon"


def loaded(world: World) -> list[str]:
    """The labels that launchd knows."""
    return [path.name for path in (world.folder / "launchd").glob("contain.*") if path.suffix != ".part"]


def folders(wrapper: int) -> list[Path]:
    """What a wrapper has made to meet its supervisor in."""
    return list(Path(tempfile.gettempdir()).glob(f"{PREFIX}*-{wrapper}-*-*"))


def until_removed(world: World, wrapper: int) -> None:
    """Waits until launchd knows of no job, and no folder is left."""
    until(lambda: not loaded(world) and not folders(wrapper), f"{loaded(world)}, {folders(wrapper)} removed")
