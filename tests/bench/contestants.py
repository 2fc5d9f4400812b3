"""What is measured against what: the peers, our command, and how a whole launch is timed."""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import time
from pathlib import Path

CONTAIN = (str(Path(sys.executable).with_name("contain")),)
BWRAP = (
    "bwrap",
    "--unshare-pid",
    "--die-with-parent",
    "--bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
)
UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
BARE = (sys.executable, "-I", "-S", "-B", "-c", "pass")


def spawn_and_wait(*command: str) -> float:
    """Seconds from the spawn to the exit of a whole command."""
    begun = time.perf_counter()
    pid = os.posix_spawnp(
        command[0],
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, 1, 0) for fd in (1, 2)],
    )
    os.waitpid(pid, 0)
    return time.perf_counter() - begun


def settle() -> None:
    """The same pause before each contestant: the wrapper has started by then, and the processor is as idle for all."""
    select.select([], [], [], 0.3)


def after_a_pause(*command: str) -> float:
    """A whole launch, after the same pause."""
    settle()
    return spawn_and_wait(*command)


def private(folder: Path) -> Path:
    """A new directory that receipts may lie in."""
    folder.mkdir(mode=0o700)
    return folder


def crun(folder: Path, command: str) -> tuple[str, ...] | None:
    """Crun with a bundle that contains as little as we do: a PID and a mount namespace; None where there is no crun."""
    if shutil.which("crun") is None or os.geteuid() != 0:
        return None
    mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": [command],
            "cwd": "/",
            "env": ["PATH=/usr/bin:/bin"],
        },
        "root": {"path": "/"},
        "mounts": mounts,
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]},
    }
    bundle = folder / "bundle"
    bundle.mkdir()
    (bundle / "config.json").write_text(json.dumps(config))
    return ("crun", "--cgroup-manager=disabled", "run", "-b", str(bundle), f"bench-{os.getpid()}")
