"""The commands that contestants execute, compiled without a libc."""

from __future__ import annotations

import subprocess
from pathlib import Path

from contain.linux.init_build import FREESTANDING, SOURCES

HERE = Path(__file__).parent


def compile_command(name: str, folder: Path) -> str:
    """Compiles ``name``.c into ``folder``; returns its path."""
    output = folder / name
    subprocess.run(
        ["cc", *FREESTANDING, f"-I{SOURCES}", "-o", str(output), str(HERE / f"{name}.c")], check=True
    )
    return str(output)
