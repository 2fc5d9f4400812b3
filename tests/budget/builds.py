"""Builds of real tools whose every step reports that it began, and then waits until the test lets it end."""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import termios
from pathlib import Path
from typing import TYPE_CHECKING

from tests.session import WAIT_S, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

STEPS = 150
CRATES = 12
FIRST_NINJA = (1, 13)

CARGO_WRAPPER = """#!/bin/sh
case " $* " in *" --crate-name step"*) echo >>"$LOG"; head -c 1 "$GATE" >/dev/null ;; esac
exec "$@"
"""


def ninja() -> str | None:
    """A ninja that takes tokens: the one beside this Python, or the machine's."""
    for path in (str(Path(sys.prefix) / "bin" / "ninja"), shutil.which("ninja")):
        with contextlib.suppress(OSError, TypeError, ValueError):
            said = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=True).stdout
            if tuple(int(part) for part in said.split(".")[:2]) >= FIRST_NINJA:
                return path
    return None


class Build:
    """One build in a directory of its own: ``steps`` that may all run at once."""

    def __init__(self, place: Path) -> None:
        """Writes nothing yet but the gate."""
        self.place = place
        self.log = place / "log"
        self.log.touch()
        gate = place / "gate"
        os.mkfifo(gate)
        self._gate = os.open(gate, os.O_RDWR)
        self.env = {**os.environ, "LOG": str(self.log), "GATE": str(gate)}
        self._recipe = f"echo >>{self.log}; head -c 1 {gate} >/dev/null"
        self._let = 0
        self.steps = STEPS
        self._process: subprocess.Popen[str] | None = None

    def makefile(self) -> None:
        """For make."""
        names = " ".join(f"s{number}" for number in range(STEPS))
        (self.place / "Makefile").write_text(f"all: {names}\n{names}:\n\t@{self._recipe}\n")

    def ninja_file(self) -> None:
        """For ninja."""
        edges = "".join(f"build s{number}: step\n" for number in range(STEPS))
        (self.place / "build.ninja").write_text(f"rule step\n  command = {self._recipe}\n{edges}")

    def crates(self) -> None:
        """For cargo: libraries that need nothing, not even each other."""
        self.steps = CRATES
        names = [f"step{number}" for number in range(CRATES)]
        members = ", ".join(f'"{name}"' for name in names)
        (self.place / "Cargo.toml").write_text(f'[workspace]\nresolver = "2"\nmembers = [{members}]\n')
        for name in names:
            (self.place / name / "src").mkdir(parents=True)
            (self.place / name / "src" / "lib.rs").touch()
            (self.place / name / "Cargo.toml").write_text(f'[package]\nname = "{name}"\nversion = "1.0.0"\n')
        wrapper = self.place / "wrapper"
        wrapper.write_text(CARGO_WRAPPER)
        wrapper.chmod(0o755)
        self.env["RUSTC_WRAPPER"] = str(wrapper)

    def start(
        self, command: Sequence[str], changes: Mapping[str, str | None], keep: Sequence[int] = ()
    ) -> None:
        """Starts it with these changes to its environment."""
        merged: dict[str, str | None] = {**self.env, **changes}
        env = {name: value for name, value in merged.items() if value is not None}
        self._process = subprocess.Popen(
            command, cwd=self.place, env=env, pass_fds=keep, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    @property
    def begun(self) -> int:
        """Steps that have begun so far."""
        return len(self.log.read_text())

    @property
    def at_work(self) -> int:
        """Steps that have begun and were not yet let to their end."""
        waiting = array.array("i", [0])
        fcntl.ioctl(self._gate, termios.FIONREAD, waiting)
        return self.begun - (self._let - waiting[0])

    def wait_at_work(self, count: int) -> None:
        """Waits until exactly so many steps are at work."""
        wait_until(lambda: self.at_work >= count, what=f"{count} steps are at work")
        assert self.at_work == count

    def let_end(self, count: int) -> None:
        """Lets so many of the steps end, or the next ones as soon as they begin."""
        self._let += os.write(self._gate, b"x" * count)

    def kill(self) -> None:
        """SIGKILL to the tool alone, then the end of the steps that it leaves; the log and the gate are as new."""
        assert self._process is not None
        self._process.kill()
        self.let_end(STEPS)
        self._process.communicate(timeout=WAIT_S)
        os.read(self._gate, STEPS)
        self._let = 0
        self.log.write_text("")

    def finish(self) -> str:
        """Lets all end; returns what the tool said. It must have succeeded."""
        assert self._process is not None
        self.let_end(self.steps)
        said, _ = self._process.communicate(timeout=WAIT_S)
        assert self._process.returncode == 0, said
        assert self.begun == self.steps
        return said

    def close(self) -> None:
        """Ends what is left."""
        if self._process is not None:
            if self._process.poll() is None:
                kill(self._process.pid)
            self.let_end(STEPS)
            self._process.communicate(timeout=WAIT_S)
        os.close(self._gate)


@contextlib.contextmanager
def build(place: Path) -> Iterator[Build]:
    """A build that is ended afterwards."""
    made = Build(place)
    try:
        yield made
    finally:
        made.close()
