"""A fuzzing host: ``python -m tests.e2e.fuzz SEED COUNT DIRECTORY`` holds mutated sessions and says what it saw.

Each session is a wrapper of its own, forked from this process after the imports: a session then costs its job and
not a start of Python. What a wrapper must do under any input is checked after each; the first fault ends the run
with its seed and the bytes that were sent.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import select
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from contain import errors
from contain.cli import run
from contain.cli.main import main as contain
from tests.session import TOKEN, descendants, new_id

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_CHILD_SUBREAPER = 36
BOUND_S = 30.0
PATIENCE_S = 0.1
LAST = ("released", "refused", "held")
EXIT_CODES = {0, 130, 143} | {cls.exit_code for cls in errors.ContainError.__subclasses__()}

Lines = list[bytes]


def valid(mark: Path) -> Lines:
    """Request and go of a session whose command makes the file ``mark``."""
    job_id = new_id()
    request = {
        "id": job_id,
        "permitId": new_id(),
        "token": TOKEN,
        "command": "/bin/touch",
        "args": [str(mark)],
    }
    return [
        json.dumps({**request, "graceMs": 50, "killMs": 50}).encode() + b"\n",
        json.dumps({"id": job_id, "token": TOKEN, "action": "go"}).encode() + b"\n",
    ]


def flip(rng: random.Random, lines: Lines) -> Lines:
    """One bit of one line."""
    which = rng.randrange(len(lines))
    data = bytearray(lines[which])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return [*lines[:which], bytes(data), *lines[which + 1 :]]


def cut(rng: random.Random, lines: Lines) -> Lines:
    """The stream ends somewhere."""
    data = b"".join(lines)
    return [data[: rng.randrange(len(data))]]


def double(rng: random.Random, lines: Lines) -> Lines:
    """One line twice."""
    which = rng.randrange(len(lines))
    return [*lines[:which], lines[which], *lines[which:]]


def swap(_rng: random.Random, lines: Lines) -> Lines:
    """The go first."""
    return lines[::-1]


def garbage(rng: random.Random, lines: Lines) -> Lines:
    """A line of anything, anywhere."""
    which = rng.randrange(len(lines) + 1)
    noise = [
        rng.randbytes(rng.randrange(1, 200)),
        b"\n",
        b"{}\n",
        b"[]\n",
        b'"go"\n',
        b"x" * 70_000,
        b"\x00" * 50 + b"\n",
    ]
    return [*lines[:which], rng.choice(noise), *lines[which:]]


def wrong_token(rng: random.Random, lines: Lines) -> Lines:
    """A go with a token that differs in one digit."""
    at = lines[1].index(TOKEN.encode()) + rng.randrange(len(TOKEN))
    data = bytearray(lines[1])
    data[at] = ord("0" if data[at] != ord("0") else "1")
    return [lines[0], bytes(data)]


def splice(rng: random.Random, lines: Lines) -> Lines:
    """Some bytes replaced by others of the stream."""
    data = bytearray(b"".join(lines))
    for _ in range(rng.randrange(1, 4)):
        start, length, to = rng.randrange(len(data)), rng.randrange(1, 30), rng.randrange(len(data))
        data[to : to + length] = data[start : start + length]
    return [bytes(data)]


def cancel(_rng: random.Random, lines: Lines) -> Lines:
    """A cancel after the go."""
    return [*lines, lines[1].replace(b'"go"', b'"cancel"')]


def nothing(_rng: random.Random, lines: Lines) -> Lines:
    """The session as it should be."""
    return lines


MUTATIONS: list[Callable[[random.Random, Lines], Lines]] = [
    *(flip, cut, double, swap, garbage, wrong_token, splice, cancel, nothing)
]


class Wrapper:
    """A forked wrapper and our ends of its three pipes."""

    def __init__(self, receipts: str) -> None:
        """Forks."""
        pipes = [os.pipe() for _ in range(3)]
        self.pid = os.fork()
        if self.pid == 0:
            for to, (read, write) in enumerate(pipes):
                os.dup2(read if to == 0 else write, to)
            os.closerange(3, 256)
            status = 1
            with contextlib.suppress(SystemExit):
                status = wrapped(receipts)
            os._exit(status)
        self.stdin, self.stdout, self.stderr = pipes[0][1], pipes[1][0], pipes[2][0]
        for fd in (pipes[0][0], pipes[1][1], pipes[2][1]):
            os.close(fd)
        self.said = b""
        self.errors = b""

    def send(self, data: bytes) -> None:
        """Bytes; a wrapper that has gone is no fault."""
        view = memoryview(data)
        while view:
            self.listen(0)
            try:
                view = view[os.write(self.stdin, view[:4096]) :]
            except BrokenPipeError:
                return

    def listen(self, wait_s: float) -> bool:
        """Reads what there is; False when both outputs have ended."""
        open_fds = [fd for fd in (self.stdout, self.stderr) if fd >= 0]
        ready, _, _ = select.select(open_fds, [], [], wait_s)
        for fd in ready:
            data = os.read(fd, 65536)
            if fd == self.stdout:
                self.said += data
            else:
                self.errors += data
            if not data:
                self.drop("stdout" if fd == self.stdout else "stderr")
        return self.stdout >= 0 or self.stderr >= 0

    def drop(self, name: str) -> None:
        """Closes one of our ends."""
        if getattr(self, name) >= 0:
            os.close(getattr(self, name))
            setattr(self, name, -1)


def wrapped(receipts: str) -> int:
    """The wrapper's whole life."""
    return contain(["run", receipts])


def hold(rng: random.Random, receipts: str, mark: Path) -> str | None:
    """One session; returns what was wrong, or None."""
    mutation = rng.choice(MUTATIONS)
    lines = mutation(rng, valid(mark))
    deaf, term, patient = rng.random() < 0.05, rng.random() < 0.05, rng.random() < 0.6
    wrapper = Wrapper(receipts)
    if deaf:
        wrapper.drop("stdout")
    for number, data in enumerate(lines):
        if number and patient and not deaf:
            until(
                wrapper, lambda: wrapper.said.count(b"\n") >= 1, PATIENCE_S
            )  # a broken request has no reply
        wrapper.send(data)
        if term and rng.random() < 0.5:
            os.kill(wrapper.pid, signal.SIGTERM)
    if mutation is nothing and not term and not deaf:
        until(wrapper, lambda: b'"event":"released"' in wrapper.said, BOUND_S)
    wrapper.drop("stdin")
    fault = ending(wrapper)
    if fault is None:
        fault = judge(wrapper, lines, mark, whole=mutation is nothing and not term and not deaf)
    mark.unlink(missing_ok=True)
    return (
        None
        if fault is None
        else f"{fault}: {mutation.__name__} {lines!r} {wrapper.said!r} {wrapper.errors!r}"
    )


def until(wrapper: Wrapper, condition: Callable[[], bool], wait_s: float) -> None:
    """Listens until it is so, or the wrapper has no more to say."""
    deadline_s = time.monotonic() + wait_s
    while not condition() and wrapper.listen(0.2) and time.monotonic() < deadline_s:
        if wrapper.stdout < 0:
            return


def ending(wrapper: Wrapper) -> str | None:
    """The wrapper ends in time, with one of the documented codes, and nothing of it is left."""
    deadline_s = time.monotonic() + BOUND_S
    while wrapper.listen(0.2):
        if time.monotonic() > deadline_s:
            return "hangs"
    _, status = os.waitpid(wrapper.pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGTERM and not wrapper.said:
        code = 128 + signal.SIGTERM  # so early that it was still starting
    if code not in EXIT_CODES:
        return f"exit status {code}"
    while descendants(os.getpid()):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)
        if time.monotonic() > deadline_s:
            return f"left {descendants(os.getpid())}"
    return None


def judge(wrapper: Wrapper, lines: Lines, mark: Path, *, whole: bool) -> str | None:
    """What was said makes sense, and nothing ran without the exact go."""
    if b"Traceback" in wrapper.errors:
        return "a traceback"
    replies = [json.loads(text) for text in wrapper.said.splitlines()]
    if replies and replies[-1]["event"] not in LAST:
        return "the last reply is none"
    stream = b"".join(lines).split(b"\n")
    exact = any(b'"action": "go"' in text and TOKEN.encode() in text for text in stream[:-1])
    if mark.exists() and not exact:
        return "executed without the exact go"
    if whole and not mark.exists():
        return "a whole session executed nothing"
    return None


def main() -> int:
    """Holds the sessions."""
    seed, count, receipts = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    assert run.main is not None  # imported before the forks
    executed = 0
    for number in range(count):
        rng = random.Random(f"{seed}-{number}")  # noqa: S311 - to be repeated, not to be secret
        fault = hold(rng, receipts, Path(receipts).parent / f"mark-{seed}-{number}")
        if fault is not None:
            sys.stdout.write(f"seed {seed}, session {number}: {fault}\n")
            return 1
        executed += 1
    sys.stdout.write(f"{executed} sessions\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
