"""A world: one fake XNU with its own libraries, its own numbers and its own faults."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cffi import FFI

if TYPE_CHECKING:
    from types import TracebackType

NEW, OLD, INTEL = "libfakexnu.so", "libfakexnu-13.so", "libfakexnu-intel.so"


class World:
    """Lives as long as its server, and the server as long as this process: a test that dies leaves nothing.

    ``built`` is the folder of ``tests.darwin.build``. Each world copies the libraries, because a library finds its
    server by the file that it is.
    """

    def __init__(self, built: Path) -> None:
        """Starts the server and waits until it answers."""
        self.folder = Path(tempfile.mkdtemp(prefix="contain-xnu-"))
        self.folder.chmod(0o755)
        for name in (NEW, OLD, INTEL):
            shutil.copy(built / name, self.folder / name)
        self.library = str(self.folder / NEW)
        self.old_library = str(self.folder / OLD)
        self.intel_library = str(self.folder / INTEL)
        self.launchctl = str(self.folder / "launchctl")
        program = f"exec {sys.executable} -I -S {Path(__file__).with_name('launchctl.py')} {self.library}"
        Path(self.launchctl).write_text(f'#!/bin/sh\n{program} "$@"\n')
        Path(self.launchctl).chmod(0o755)
        self.server = subprocess.Popen(
            [built / "fakexnud", self.library, self.old_library, self.intel_library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.server.stdout is not None
        assert self.server.stdout.readline() == b"ready\n", "the fake XNU did not start"
        self._ffi = FFI()
        self._ffi.cdef("int fakexnu_control(const char *command);")
        self._lib: Any = self._ffi.dlopen(self.library)
        self.lineage = bool(self.control("lineage"))
        self.reason = None if self.lineage else "capability: the process connector, which lineage needs"

    def control(self, command: str) -> int:
        """Changes the world; the commands are in ``fake/ABI.md``. Raises ValueError for one that it has not."""
        answer = int(self._lib.fakexnu_control(command.encode()))
        if answer >= 0:
            return answer
        number = self._ffi.errno
        if number == errno.EINVAL:
            raise ValueError(f"not a command: {command!r}")
        raise OSError(number, os.strerror(number), command)

    def close(self) -> None:
        """Ends what still descends from this process and was born in this world, then the server."""
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.close()
        self.server.wait(30)
        self.server.stdout.close()
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


ON_A_MAC = sys.platform == "darwin"
