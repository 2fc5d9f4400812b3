"""Who of the tests' processes is still alive: the suite must pass its own standard.

`python -m tests.darwin.survivors mark FILE [LIBRARY]` before the tests notes the highest unique id;
`python -m tests.darwin.survivors check FILE [LIBRARY]` after them exits with 1 and names every process of this user
that was born later and executes what tests start. Of other users' processes, and of other programs, it says nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.darwin.abi import SHORT, UNIQUE, USER, Darwin, ffi

STARTED = ("sleep", "cat", "sh", "python", "contain", "anchor", "pauses")
"""How the names of programs begin that tests start."""


def births(darwin: Darwin) -> dict[int, int]:
    """Unique ids by pid, of this user's live processes but for this one and those above it."""
    above, pid = set(), os.getpid()
    while pid > 1 and (info := darwin.pidinfo(pid, SHORT)) is not None:
        above.add(pid)
        pid = info.pbsi_ppid
    told = {
        pid: darwin.pidinfo(pid, UNIQUE) for pid in darwin.listpids(USER, os.geteuid()) if pid not in above
    }
    return {pid: answer.p_uniqueid for pid, answer in told.items() if answer is not None}


def name_of(darwin: Darwin, pid: int) -> str:
    """What it executes; empty when it is gone."""
    room = ffi.new("char[]", 64)
    darwin.lib.proc_name(pid, room, 64)
    name = ffi.string(room)
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def survivors(darwin: Darwin, mark: int) -> list[str]:
    """Pid, unique id and name of each."""
    later = {pid: uniq for pid, uniq in births(darwin).items() if uniq > mark}
    named = ((pid, uniq, name_of(darwin, pid)) for pid, uniq in sorted(later.items()))
    return [f"pid {pid} uniq {uniq} {name}" for pid, uniq, name in named if name.lower().startswith(STARTED)]


def main(word: str, file: str, library: str | None = None) -> int:
    """0, or 1 when somebody is left."""
    darwin = Darwin(library)
    if word == "mark":
        Path(file).write_text(str(darwin.unique(os.getpid()).p_uniqueid))
        return 0
    left = survivors(darwin, int(Path(file).read_text()))
    sys.stdout.writelines(f"still alive: {line}\n" for line in left)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
