"""``contain exec`` as its users start it: a whole process, its status and what it printed."""

from __future__ import annotations

import os
import re
import select
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tests.session import CONTAIN, WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


class Done(NamedTuple):
    """A whole run: the status as a shell says it, output and words."""

    status: int
    out: str
    err: str


def line(receipts: Path, *options: str, program: Sequence[str] = CONTAIN) -> list[str]:
    """The command line up to the command."""
    return [*program, "exec", "--no-budget", "--receipts", str(receipts), *options, "--"]


def run(receipts: Path, *command: str, options: Sequence[str] = (), **popen: Any) -> Done:  # noqa: ANN401 - passed on
    """Runs a command to its end."""
    popen.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run(
        [*line(receipts, *options), *command],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        **popen,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class Started:
    """A command that runs; its output is read as it comes."""

    def __init__(self, receipts: Path, *command: str, options: Sequence[str] = (), **popen: Any) -> None:  # noqa: ANN401
        """Starts it; ``close`` ends it by its id."""
        popen.setdefault("stdin", subprocess.DEVNULL)
        self.process = subprocess.Popen(
            [*line(receipts, *options), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen
        )
        self.seen = b""

    def until(self, text: str) -> str:
        """Reads on until this text; fails after a while."""
        assert self.process.stdout is not None
        while text.encode() not in self.seen:
            ready, _, _ = select.select([self.process.stdout], [], [], WAIT_S)
            data = os.read(self.process.stdout.fileno(), 65536) if ready else b""
            assert data, f"{text!r} never came; so far: {self.seen!r}"
            self.seen += data
        return self.seen.decode()

    def finish(self) -> Done:
        """Waits for its end."""
        out, err = self.process.communicate(timeout=WAIT_S)
        return Done(self.process.returncode, (self.seen + out).decode(), err.decode())

    def __enter__(self) -> Self:
        """For ``with``."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the wrapper, and with it the job."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


def ids(receipts: Path) -> Iterator[str]:
    """The ids that have a receipt."""
    return (
        path.stem for path in sorted(receipts.iterdir()) if path.suffix in (".json", ".running", ".exited")
    )
