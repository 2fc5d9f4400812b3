"""Native programs that tests need, compiled once for a session: contain-init with a wait in it, and unruly jobs."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from contain.linux.init_build import SOURCES, compile_program

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

HERE = Path(__file__).parent
STEP_NAMES: tuple[str, ...] = tuple(
    re.findall(
        r"\bSTEP_([A-Z_]+)\b(?=[,\s}])",
        (SOURCES / "wire.h").read_text().partition("enum step {")[2].partition("}")[0],
    )
)
"""The launch steps of wire.h in order: the index of a name is its number. The first, NONE, is no step."""


def other_program(program: Path, python: str = sys.executable, folder: Path = HERE) -> tuple[str, ...]:
    """A ``contain`` whose keeper is ``program``: no variable of the product could choose that."""
    return (python, str(folder / "other_program.py"), str(program))


class Programs:
    """A cache of compiled programs in one folder, which several test processes may share."""

    def __init__(self, folder: Path) -> None:
        """The folder is made when it is not there."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def _once(self, name: str, make: Callable[[str], None]) -> Path:
        """One process compiles, the others wait for it; a name is there only when its program is whole."""
        path = self.folder / name
        with (self.folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                unfinished = self.folder / f"{name}.part"
                make(str(unfinished))
                unfinished.rename(path)
        return path

    def waits_at(self, step: str, wait_ms: int = 400) -> Path:
        """A contain-init that waits at a launch step, as a slow machine would."""
        hook = (f"-DSTEP_HOOK={STEP_NAMES.index(step)}", f"-DSTEP_HOOK_MS={wait_ms}")
        return self._once(f"init-{step}-{wait_ms}", lambda output: compile_program(output, extra=hook))

    def unruly(self) -> Path:
        """The program of ``unruly.c``."""

        def make(output: str) -> None:
            source = str(HERE / "unruly.c")
            subprocess.run(
                ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", output, source],
                check=True,
            )

        return self._once("unruly", make)


def shared_programs(factory: pytest.TempPathFactory) -> Programs:
    """One cache for all processes of one test run."""
    base = factory.getbasetemp()
    return Programs((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "programs")
