"""A repair that is killed: ``python -m tests.budget.repairer FOLDER N`` dies by SIGKILL before its N-th act.

An act is what CPython audits: a file opened, renamed, removed, listed or locked, a database connected. With N 0 it
lives, and says how many acts it took.
"""

from __future__ import annotations

import os
import signal
import sys

from contain.budget.repair import repair
from contain.linux.backend import LinuxBackend
from tests.budget.customer import desk

ACTS = ("open", "os.rename", "os.remove", "os.listdir", "os.chmod", "fcntl.flock", "sqlite3.connect")


def main() -> int:
    """Repairs; see above."""
    counter, backend, last = desk(sys.argv[1]), LinuxBackend(), int(sys.argv[2])
    taken = 0

    def hook(event: str, _: object) -> None:
        nonlocal taken
        if event in ACTS:
            taken += 1
            if taken == last:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    repair(counter, backend, [])
    sys.stdout.write(f"{taken}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
