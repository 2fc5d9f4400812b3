"""An account of its own for tests of the budget: a home that ends with the test, for root and for a plain user.

The mount namespace of one sleeping process has its own passwd file, so that the account's home is ours; every command
enters it. Each start of a Python in there is counted, by a line with its number.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

from tests.budget.calm import units_policy
from tests.ground import UID
from tests.session import WAIT_S

if TYPE_CHECKING:
    from contextlib import ExitStack

    from tests.ground import Ground

COUNTS = """
import os
with open({counts!r}, "a") as file:
    file.write(str(os.getpid()) + "\\n")
"""


class Home:
    """A home with a policy, and everything that runs for it."""

    def __init__(self, ground: Ground, stack: ExitStack, policy: str | None = None) -> None:
        """``stack`` ends what is started here."""
        self._ground = ground
        self._stack = stack
        self.work = ground.work
        uid = 0 if ground.user == "root" else UID
        home = ground.work / "home"
        root = home / ".contain"
        root.mkdir(parents=True)
        root.chmod(0o700)
        (root / "policy.toml").write_text(policy or units_policy())
        self._counts = ground.work / "starts"
        self._counts.touch()
        (ground.library / "sitecustomize.py").write_text(COUNTS.format(counts=str(self._counts)))
        for path in (home, root, *root.iterdir(), self._counts):
            os.chown(path, uid, uid)
        passwd = ground.work / "passwd"
        passwd.write_text(f"root:x:0:0::{home}:/bin/sh\nnobody:x:{UID}:{UID}::{home}:/bin/sh\n")
        self._room = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", f"mount --bind {passwd} /etc/passwd; echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        stack.callback(self._close)
        assert self._room.stdout is not None
        assert self._room.stdout.readline() == b"\n"

    def _close(self) -> None:
        self._room.communicate(timeout=WAIT_S)

    def starts(self, *words: str, contain: tuple[str, ...] = (), **popen: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - passed on
        """``contain WORDS`` with all signals as they are by default, off a terminal; ended with the test."""
        process = subprocess.Popen(
            [
                "nsenter",
                f"--mount=/proc/{self._room.pid}/ns/mnt",
                "env",
                "--default-signal",
                f"PYTHONPATH={self._ground.library}",
                *(contain or self._ground.contain),
                *words,
            ],
            text=True,
            **{"stdin": subprocess.DEVNULL, **popen},
        )
        self._stack.callback(_end, process)
        return process

    def says(self, *words: str) -> str:
        """What ``contain WORDS`` prints."""
        output, _ = self.starts(*words, stdout=subprocess.PIPE).communicate(timeout=WAIT_S)
        return output

    def pythons(self, pid: int) -> int:
        """How often this process has begun as Python."""
        return self._counts.read_text().splitlines().count(str(pid))


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=WAIT_S)
