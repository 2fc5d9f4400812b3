"""How contain-init is compiled: the one place that knows the flags.

The program has no libc (see ``init/sys.h``), so nothing of the machine that built it is needed where it runs.
``setup.py`` calls this; so do the tests, for a hosted build under sanitizers and for builds that stop at a step.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCES = Path(__file__).parent / "init"

WARNINGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror")
FREESTANDING = (
    "-Os",
    "-ffreestanding",
    "-fno-builtin",
    "-fno-stack-protector",
    # gcc would turn the loop inside our memset into a call of memset.
    "-fno-tree-loop-distribute-patterns",
    "-fno-asynchronous-unwind-tables",
    "-fno-pie",
    "-no-pie",
    "-nostdlib",
    "-static",
    "-s",
    "-Wl,--build-id=none",
    "-Wl,-z,noexecstack",
    "-Wl,-z,norelro",
)
HOSTED = ("-g", "-O1", "-DHOSTED")


def compile_program(
    output: str, *, cc: str = "cc", hosted: bool = False, extra: tuple[str, ...] = ()
) -> None:
    """Compiles contain-init to the file ``output`` (mode 0755).

    ``cc`` is a compiler for x86-64 or aarch64 Linux; ``hosted`` links libc, for sanitizers (shipped programs never
    are); ``extra`` are further flags. Raises ``subprocess.CalledProcessError`` with the compiler's words on stderr.
    """
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    flags = WARNINGS + (HOSTED if hosted else FREESTANDING) + extra
    subprocess.run([cc, *flags, "-o", output, *sources], check=True)
    Path(output).chmod(0o755)


if __name__ == "__main__":
    compile_program(sys.argv[1], extra=tuple(sys.argv[2:]))
