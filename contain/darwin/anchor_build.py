"""How contain-anchor is compiled: the one place that knows the flags. ``setup.py`` calls this; so do the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent / "anchor"
FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2")


def compile_program(output: str, *, cc: str = "cc", extra: tuple[str, ...] = ()) -> None:
    """Compiles contain-anchor to the file ``output`` (mode 0755). Raises ``subprocess.CalledProcessError``."""
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    subprocess.run([cc, *FLAGS, *extra, "-o", output, *sources], check=True)
    Path(output).chmod(0o755)


if __name__ == "__main__":
    compile_program(sys.argv[1], extra=tuple(sys.argv[2:]))
