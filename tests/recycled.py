"""Numbers that are used again at once, in a PID namespace of a test's own: the machine's are left alone.

    python -m tests.recycled race COUNT RECEIPTS   cancels and kills that race with the natural end of as many jobs
    python -m tests.recycled naive COUNT           what a program does that keeps a number: as many signals to it
    python -m tests.recycled fill                  short lives without end, all in a narrow range of numbers

The first two run beside the third, which they start, and say on their standard output what all of them saw. A test
starts them by ``within``; only there may the range of numbers be steered.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter, deque
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contain.backend import CommandEnded, Drained
from contain.job import Job
from contain.linux.backend import LinuxBackend
from tests.session import ROOT, WAIT_S, Session, new_id

if TYPE_CHECKING:
    from contain.backend import Containment, Event

LAST_PID = Path("/proc/sys/kernel/ns_last_pid")
LOWEST, ROUND = 300, 150
"""The fillers go back to the lowest number after so many births."""

FILLERS = 6
FILLED = 7
"""The exit status of a filler that nobody harmed."""

USUAL = 20
"""So many jobs tell how long a command lives when nobody ends it."""

KEPT = 100
"""So many jobs that have ended are signalled on: in that time the fillers have had all their numbers."""

# A shell is PID 1: it waits for the program, and reaps what loses its parent.
WITHIN = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", '"$@"; exit $?', "sh")


def within(*words: object) -> dict[str, Any]:
    """Runs one of the programs above in a namespace of its own; returns what it saw."""
    command = [*WITHIN, sys.executable, "-m", "tests.recycled", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# -- the innocent ------------------------------------------------------------------------------------------------------


def fill() -> None:
    """Until its input ends; counts the births, and the statuses of those that anything but their own end has ended."""
    born, living, asked_to_end = 0, 0, False
    harmed: list[int] = []
    print("ready", flush=True)  # noqa: T201 - to whoever started it
    while living or not asked_to_end:
        asked_to_end = asked_to_end or bool(select.select([sys.stdin], [], [], 0)[0])
        if not asked_to_end and living < FILLERS:
            if born % ROUND == 0:
                LAST_PID.write_text(str(LOWEST))
            life_s = random.random() / 100  # noqa: S311 - no secret
            if os.fork() == 0:
                time.sleep(life_s)
                os._exit(FILLED)
            born, living = born + 1, living + 1
            continue
        _, status = os.waitpid(-1, 0)
        living -= 1
        if status != FILLED << 8:
            harmed.append(status)
    print(json.dumps({"born": born, "harmed": harmed}))  # noqa: T201


class Fillers:
    """The hand of the other programs on ``fill``."""

    def __init__(self) -> None:
        """Starts it and waits until it steers the numbers."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.recycled", "fill"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def end(self) -> dict[str, Any]:
        """Ends it; returns what it counted."""
        said, _ = self.process.communicate()
        assert self.process.returncode == 0
        found: dict[str, Any] = json.loads(said)
        return found


# -- those that signal -------------------------------------------------------------------------------------------------


def running(backend: LinuxBackend) -> Containment:
    """A job whose command has just been let go, and ends by itself at once."""
    job = Job(id=new_id(), permit_id=new_id(), command="true", args=())
    containment = backend.launch(job).ready()
    assert containment.open_gate()
    return containment


def wait(containment: Containment, wait_s: float) -> list[Event]:
    """What happens within ``wait_s``; returns at the first of it."""
    select.select(containment.fds(), [], [], wait_s)
    return containment.events()


def drained(containment: Containment, events: list[Event]) -> list[Event]:
    """What has happened up to the end of the whole containment."""
    deadline_s = time.monotonic() + WAIT_S
    while not any(isinstance(event, Drained) for event in events):
        assert time.monotonic() < deadline_s, f"no end; only {events}"
        events = events + wait(containment, WAIT_S)
    return events


def life_s(backend: LinuxBackend) -> float:
    """How long it takes until something is heard of a command: of its natural end."""
    containment = running(backend)
    begun_s = time.monotonic()
    events = wait(containment, WAIT_S)
    found_s = time.monotonic() - begun_s
    drained(containment, events)
    containment.close()
    return found_s


def race_once(backend: LinuxBackend, most_s: float) -> tuple[str, Containment]:
    """A job that is cancelled and killed at about the moment at which it ends by itself. Who was first?"""
    containment = running(backend)
    events = wait(containment, random.uniform(0, most_s))  # noqa: S311 - no secret
    for _ in range(2):
        grace_ms = random.choice((None, 0, 50))  # noqa: S311
        if grace_ms is None:
            containment.kill()
        else:
            containment.cancel(grace_ms)
    events = drained(containment, events)
    by_itself = any(isinstance(event, CommandEnded) and event.status == 0 for event in events)
    return "itself" if by_itself else "us", containment


def race_session(receipts: str) -> str:
    """The same by a whole ``contain run``; returns the cause of the end."""
    with Session(receipts) as session:
        session.start("sleep", f"{random.random() / 100:.4f}")  # noqa: S311
        if random.random() < 0.8:  # noqa: S311
            session.cancel(graceMs=random.choice((0, 0, 20, 1000)))  # noqa: S311
        last = session.finish()
    assert (last["event"], last["empty"], session.process.returncode) == ("released", True, 0), last
    assert session.errors() == b""
    return str(last["outcome"]["cause"])


def race(count: int, receipts: str) -> dict[str, Any]:
    """By the backend itself, without a wrapper around it; one in sixteen by a wrapper."""
    backend = LinuxBackend()
    backend.start()
    usual_s = statistics.median(life_s(backend) for _ in range(USUAL))
    first: Counter[str] = Counter()
    ended: deque[Containment] = deque()
    for _ in range(count):
        who, containment = race_once(backend, usual_s)
        first[who] += 1
        ended.append(containment)
        for each in ended:
            each.kill()  # and again and again, when its number is somebody else's
            each.cancel(0)
        if len(ended) > KEPT:
            ended.popleft().close()
    for each in ended:
        each.close()
    backend.stop()
    return {"first": first, "causes": Counter(race_session(receipts) for _ in range(count // 16))}


def naive(count: int) -> dict[str, Any]:
    """The number of a job that has ended is signalled, whoever has it then."""
    backend = LinuxBackend()
    backend.start()
    number = sys.maxsize
    # Higher ones are not certain to come again; lower ones were given out once, before the first round.
    while not LOWEST < number <= LOWEST + ROUND // 2:
        containment = running(backend)
        number = containment.proof.pid
        drained(containment, [])
        containment.close()
    backend.stop()
    sent, deadline_s = 0, time.monotonic() + WAIT_S
    while sent < count:
        assert time.monotonic() < deadline_s, f"nobody gets the number {number} again"
        try:
            os.kill(number, signal.SIGTERM)
            sent += 1
        except ProcessLookupError:
            select.select([], [], [], 0.001)
    return {"sent": sent}


def main(face: str, *words: str) -> None:
    """One program."""
    if face == "fill":
        fill()
        return
    fillers = Fillers()
    seen = race(int(words[0]), words[1]) if face == "race" else naive(int(words[0]))
    print(json.dumps({**seen, **fillers.end()}))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
