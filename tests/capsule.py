"""A PID namespace of a test's own: numbers are recycled in it at will, and the machine's are left alone.

    python -m tests.capsule reuse NUMBER child|init   a bystander that gets exactly this number
    python -m tests.capsule fill                      short lives without end, all in a narrow range of numbers
    python -m tests.capsule race COUNT SEED           cancels and kills that race with the natural end of as many jobs

Each runs inside, entered by nsenter, until its standard input ends, and says what it saw on its standard output.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests import receipt_files
from tests.session import CONTAIN, ROOT, WAIT_S, Session, descendants, kill, stat_fields, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SYS_CLONE3 = 435  # on every architecture
CLONE_NEWPID = 0x20000000
CLONE_ARGS = (
    *("flags", "pidfd", "child_tid", "parent_tid", "exit_signal", "stack", "stack_size", "tls"),
    *("set_tid", "set_tid_size", "cgroup"),
)
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
LOWEST, RANGE = 300, 300
"""Where the fillers keep the numbers of their namespace."""

FILLERS = 6
FILLED = 7
"""The exit status of a filler that nobody harmed."""

HARM_S = 0.2
"""How long a bystander is watched for a signal that is under way."""


# -- the programs inside -----------------------------------------------------------------------------------------------


class CloneArgs(ctypes.Structure):
    """clone_args of clone3(2), as far as set_tid."""

    _fields_ = [(name, ctypes.c_uint64) for name in CLONE_ARGS]


def born_as(number: int, *, as_init: bool) -> int:
    """Forks a ``sleep`` with exactly this number; as PID 1 of a further namespace if asked. Returns the number."""
    chosen = (ctypes.c_int * 2)(1, number) if as_init else (ctypes.c_int * 1)(number)
    args = CloneArgs(
        flags=CLONE_NEWPID if as_init else 0,
        exit_signal=signal.SIGCHLD,
        set_tid=ctypes.addressof(chosen),
        set_tid_size=len(chosen),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    deadline_s = time.monotonic() + WAIT_S
    while True:
        child = int(libc.syscall(SYS_CLONE3, ctypes.byref(args), ctypes.c_size_t(ctypes.sizeof(args))))
        if child == 0:
            os.execvp("sleep", ["sleep", "1000"])  # noqa: S606 - no shell is wanted
        if child > 0:
            return child
        failed = ctypes.get_errno()
        # EEXIST: the dead one has not been reaped yet.
        assert failed == errno.EEXIST, os.strerror(failed)
        assert time.monotonic() < deadline_s, f"{number} does not become free"
        select.select([], [], [], 0.01)


def say(**facts: object) -> None:
    """One line for the test."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def reuse(number: int, *, as_init: bool) -> None:
    """A bystander; at the end of input: is it well?"""
    child = born_as(number, as_init=as_init)
    ticks = int((stat_fields(child) or [])[19])
    say(pid=child, startTicks=ticks)
    sys.stdin.read()
    pidfd = os.pidfd_open(child)
    harmed, _, _ = select.select([pidfd], [], [], HARM_S)
    say(lives=not harmed)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.waitpid(child, 0)


def fill() -> None:
    """Innocent processes with recycled numbers; counts them, and those that anything but their own end has ended."""
    born, living = 0, 0
    harmed: list[int] = []
    say(ready=True)
    ended = False
    while living or not ended:
        ended = ended or bool(select.select([sys.stdin], [], [], 0)[0])
        if not ended and living < FILLERS:
            if born % (RANGE // 2) == 0:
                LAST_PID.write_text(str(LOWEST))
            if os.fork() == 0:
                time.sleep(random.random() / 100)  # noqa: S311 - no secret
                os._exit(FILLED)
            born, living = born + 1, living + 1
            continue
        _, status = os.waitpid(-1, 0)
        living -= 1
        if status != FILLED << 8:
            harmed.append(status)
    say(born=born, harmed=harmed)


def race(count: int, seed: int) -> None:
    """Jobs that end by themselves while they are cancelled and killed. The backend itself, without a wrapper."""
    from contain.job import Job  # noqa: PLC0415 - of the product: only this program drives it from inside
    from contain.linux.backend import LinuxBackend  # noqa: PLC0415
    from tests.session import new_id  # noqa: PLC0415

    dice = random.Random(seed)  # noqa: S311 - no secret
    backend = LinuxBackend()
    seen = {"natural": 0, "ended": 0}
    for _ in range(count):
        job = Job(id=new_id(), permit_id=new_id(), command="true", args=())
        containment = backend.launch(job).ready()
        assert containment.open_gate()
        events = _wait(containment, dice.random() * 0.003)
        for _ in range(2):
            grace_ms = dice.choice((None, 0, 50))
            if grace_ms is None:
                containment.kill()
            else:
                containment.cancel(grace_ms)
        while "Drained" not in events:
            more = _wait(containment, WAIT_S)
            assert more, "nothing happens any more"
            events += more
        containment.kill()  # and once more, when its number is anybody's
        containment.close()
        seen["natural" if "CommandEnded0" in events else "ended"] += 1
    backend.stop()
    say(**seen)


def _wait(containment: Any, wait_s: float) -> list[str]:  # noqa: ANN401 - contain is not imported here
    """The names of the events that came, with a wait status behind; none at the end of the wait."""
    if not select.select(containment.fds(), [], [], wait_s)[0]:
        return []
    found = [f"{type(event).__name__}{getattr(event, 'status', '')}" for event in containment.events()]
    return found or ["nothing"]


# -- the test's hand on it ---------------------------------------------------------------------------------------------


class Inside:
    """One of the programs above, running inside."""

    def __init__(self, enter: tuple[str, ...], *words: object) -> None:
        """Starts it and waits for its first line."""
        self.process = subprocess.Popen(
            [*enter, sys.executable, "-m", "tests.capsule", *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.first = self._line()

    def _line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, f"no word; exit status {self.process.wait()}"
        found: dict[str, Any] = json.loads(text)
        return found

    def end(self) -> dict[str, Any]:
        """Ends its input; returns its last line."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        last = self._line()
        assert self.process.wait() == 0
        return last

    def close(self) -> None:
        """Lets go of it, however it stands."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        if self.process.poll() is None:
            for pid in descendants(self.process.pid):
                kill(pid)
            self.process.wait()


class Capsule:
    """The namespace. Its PID 1 only reaps; everything inside ends with it."""

    def __init__(self) -> None:
        """Starts it and waits until one can enter."""
        keep = ("env", "--ignore-signal=CHLD", "sleep", "1000")  # SIGCHLD ignored: orphans are reaped at once
        unshare = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
        # Without its standard error: unshare 2.38 calls a killed child a failed sigprocmask.
        self.process = subprocess.Popen([*unshare, *keep], stderr=subprocess.DEVNULL)
        wait_until(self._is_up, what="the capsule is up")
        [self.init] = descendants(self.process.pid)
        target = ("nsenter", "--target", str(self.init), "--pid", "--mount", "--")
        self.enter = (*target, "env", "-C", str(ROOT))
        self.contain = (*self.enter, *CONTAIN)

    def _is_up(self) -> bool:
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                return Path(f"/proc/{pid}/comm").read_text() == "sleep\n"
        return False

    def __enter__(self) -> Self:
        """For ``with``."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it with everything inside."""
        kill(self.init)
        self.process.wait()

    @contextlib.contextmanager
    def inside(self, *words: object) -> Iterator[Inside]:
        """One of the programs of this file, inside."""
        program = Inside(self.enter, *words)
        try:
            yield program
        finally:
            program.close()

    def lost(self, receipts: Path) -> receipt_files.Document:
        """As receipt_files.lost, for a job of this namespace."""
        with Session(receipts, program=self.contain) as session:
            session.start("sleep", "1000")
            kill(wrapper_of(session))
            session.process.wait()
            session.errors()
        document = receipt_files.read(receipts, session.id)
        for path in receipt_files.files(receipts, session.id):
            path.unlink()
        return document


def wrapper_of(session: Session) -> int:
    """The wrapper's number as seen from here, of a session whose program was entered by nsenter."""
    parent = str(session.process.pid)
    found = [pid for pid in descendants(session.process.pid) if (stat_fields(pid) or "??")[1] == parent]
    assert len(found) == 1, found
    return found[0]


def main(face: str, *words: str) -> None:
    """One program inside."""
    if face == "reuse":
        reuse(int(words[0]), as_init=words[1] == "init")
    elif face == "fill":
        fill()
    elif face == "race":
        race(int(words[0]), int(words[1]))


if __name__ == "__main__":
    main(*sys.argv[1:])
