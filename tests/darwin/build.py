"""Compiles the fake XNU: its server and its library, once for a session."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

FAKE = Path(__file__).parent / "fake"
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wshadow")
LIBRARY = ("client", "libproc", "syscalls", "files", "mach", "kqueue")
SERVER = (
    "main",
    "procfs",
    "table",
    "events",
    "pidinfo",
    "census",
    "coalitions",
    "signals",
    "machine",
    "watches",
    "holds",
    "faults",
)


def sources(names: tuple[str, ...]) -> list[str]:
    """The paths of our C files."""
    return [str(FAKE / f"{name}.c") for name in names]


def missing_compiler() -> str | None:
    """Why nothing can be compiled here; None when it can."""
    return None if shutil.which("cc") else "capability: a C compiler, to build the fake XNU"


def _compile(output: Path, arguments: list[str]) -> None:
    """Under another name until it is whole."""
    unfinished = output.with_suffix(".part")
    subprocess.run(["cc", *FLAGS, "-o", str(unfinished), *arguments], check=True)
    unfinished.rename(output)


def build(folder: Path) -> Path:
    """The folder with ``fakexnud`` and the libraries.

    ``libfakexnu-13.so`` has no signal by audit token, ``libfakexnu-intel.so`` two calls for file systems. Several
    processes may ask at once: one compiles, the others wait.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = ["-shared", "-fPIC", "-fvisibility=hidden", *sources(LIBRARY), "-lpthread", "-ldl"]
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "fakexnud").exists():
            _compile(folder / "libfakexnu.so", library)
            _compile(folder / "libfakexnu-13.so", ["-DBEFORE_14_2", *library])
            _compile(folder / "libfakexnu-intel.so", ["-DINTEL", *library])
            _compile(folder / "fakexnud", sources(SERVER))
    return folder
