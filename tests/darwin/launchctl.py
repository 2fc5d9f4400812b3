"""A stand-in for launchctl and launchd in one world: `launchctl.py LIBRARY bootstrap|bootout|print ...`.

What it keeps of the real one: a job is a child of pid 1 in a coalition of its own; when its main process ends, what is
left of that process's group is killed and nothing else; a label is loaded once, and stays loaded when the process has
ended; its removal asks by TERM, waits, kills, and returns when the process is gone. From source: never compared with a
Mac. A file ``join`` beside the notes holds the id of the coalition that jobs get in the place of one of their own; one
``refuses`` the domains that are none here.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import plistlib
import select
import signal
import sys
from pathlib import Path
from typing import Any, TypeAlias

assert sys.platform == "linux"  # a Mac has its own

Plist: TypeAlias = dict[str, Any]

ALREADY, NOT_LOADED, USAGE, NO_DOMAIN = 5, 3, 64, 125
"""Exit statuses, as launchctl's: the errno that it prints."""

EXIT_S = 20
"""Between TERM and KILL, where the job says nothing of it."""


class Launchd:
    """The jobs of one world: a file for each that is loaded, named after its label."""

    def __init__(self, library: str) -> None:
        """``library`` is the world's; the jobs are noted beside it."""
        self._lib = ctypes.CDLL(library, use_errno=True)
        self._jobs = Path(library).parent / "launchd"
        self._jobs.mkdir(exist_ok=True)

    def bootstrap(self, domain: str, plist: str) -> int:
        """Loads a job and, with RunAtLoad, starts it."""
        if domain.partition("/")[0] in self._told("refuses").split():
            return _says("Bootstrap failed: 125: Domain does not support specified action", NO_DOMAIN)
        job: Plist = plistlib.loads(Path(plist).read_bytes())
        note = self._jobs / job["Label"]
        if note.exists():
            return _says("Bootstrap failed: 5: Input/output error", ALREADY)
        note.write_text("{}")
        if job.get("RunAtLoad") and os.fork() == 0:
            self._launch(job, note)
        while job.get("RunAtLoad") and note.exists() and not json.loads(note.read_text()):
            select.select([], [], [], 0.005)
        return 0

    def _told(self, name: str) -> str:
        path = self._jobs / name
        return path.read_text() if path.exists() else ""

    def _note(self, note: Path, **facts: int) -> None:
        """Only of a job that is still loaded."""
        unfinished = note.with_name(f"{note.name}.part")
        unfinished.write_text(json.dumps(facts))
        with (self._jobs / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if note.exists():
                unfinished.rename(note)
            else:
                unfinished.unlink()

    def _launch(self, job: Plist, note: Path) -> None:
        """In launchd's place: starts the main process as an orphan, and clears its group when it has ended."""
        os.setsid()
        nowhere = os.open("/dev/null", os.O_RDWR)
        for fd in range(3):
            os.dup2(nowhere, fd)  # whoever asked waits for the end of its pipes
        reader, writer = os.pipe()
        if os.fork() == 0:
            main = os.fork()
            if main == 0:
                self._become(job)
            os.write(writer, str(main).encode())
            os._exit(0)
        os.wait()
        main = int(os.read(reader, 32))
        watch = os.pidfd_open(main)
        self._note(note, pid=main, exit_s=job.get("ExitTimeOut", EXIT_S))
        select.select([watch], [], [])
        if not job.get("AbandonProcessGroup"):
            self._lib.killpg(main, signal.SIGKILL)
        self._note(note, pid=0)
        os._exit(0)

    def _become(self, job: Plist) -> None:
        """The main process: a session and a coalition of its own, then the program."""
        os.setsid()
        join = self._told("join")
        command = f"coalition-join pid={os.getpid()} id={join}" if join else f"coalition pid={os.getpid()}"
        if self._lib.fakexnu_control(command.encode()) < 0:
            os._exit(errno.EIO)
        for fd, key in ((0, "StandardInPath"), (1, "StandardOutPath"), (2, "StandardErrorPath")):
            opened = os.open(job.get(key, "/dev/null"), os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(opened, fd)
        os.closerange(3, 256)
        os.chdir(job.get("WorkingDirectory", "/"))
        program = job["ProgramArguments"]
        os.execve(program[0], program, job.get("EnvironmentVariables", {}))  # noqa: S606 - an exec

    def bootout(self, target: str) -> int:
        """Unloads a job, when its main process has ended: by TERM, or later by KILL."""
        note = self._jobs / target.rpartition("/")[2]
        if not note.exists():
            return _says("Boot-out failed: 3: No such process", NOT_LOADED)
        facts = json.loads(note.read_text())
        if facts.get("pid"):
            self._end(facts["pid"], facts["exit_s"])
        with (self._jobs / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            note.unlink(missing_ok=True)
        return 0

    def _end(self, pid: int, exit_s: int) -> None:
        try:
            watch = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        self._lib.kill(pid, signal.SIGTERM)
        if not select.select([watch], [], [], exit_s)[0]:
            self._lib.kill(pid, signal.SIGKILL)
            select.select([watch], [], [])

    def print(self, target: str) -> int:
        """Tells the pid of a job that is loaded."""
        note = self._jobs / target.rpartition("/")[2]
        if not note.exists():
            return _says("Could not find service", NOT_LOADED)
        sys.stdout.write(f"{target} = {{\n\tpid = {json.loads(note.read_text()).get('pid', 0)}\n}}\n")
        return 0


def _says(words: str, status: int) -> int:
    sys.stderr.write(words + "\n")
    return status


def main(library: str, word: str = "", *arguments: str) -> int:
    """One command."""
    commands = {"bootstrap": 2, "bootout": 1, "print": 1}
    if commands.get(word) != len(arguments):
        return _says(f"Unrecognized subcommand: {word}", USAGE)
    done: int = getattr(Launchd(library), word)(*arguments)
    return done


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
