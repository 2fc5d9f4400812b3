"""contain-init's wait face alone, as it is shipped and under sanitizers: what wakes it, and what it executes then."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contain.linux import command, native
from contain.linux.init_build import compile_program
from tests.linux.driver import public_folder
from tests.linux.test_init_sanitized import Sanitized
from tests.session import WAIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TITLE = "contain: waiting"
LOOKS = """
import json, os, signal, sys
fds = [fd for fd in range(100) if os.path.exists(f"/proc/self/fd/{fd}")]
print(json.dumps({"said": sys.argv[1], "name": os.environ["NAME"], "pending": list(signal.sigpending()), "fds": fds}))
"""
SAYS = (sys.executable, "-S", "-c", LOOKS, "again")
"""What is executed afterwards: says that it is there, which signals are pending, and what it has inherited."""


@pytest.fixture(scope="module", params=["shipped", "sanitized"])
def made(request: pytest.FixtureRequest) -> Iterator[tuple[Path, Sanitized | None]]:
    """The program, and where the sanitizers would report."""
    with public_folder() as folder:
        if request.param == "sanitized":
            whole = Sanitized(folder)
            yield whole.program, whole
        else:
            compile_program(str(folder / "contain-init"))
            yield folder / "contain-init", None


@pytest.fixture
def program(made: tuple[Path, Sanitized | None]) -> Iterator[Path]:
    """The program; the test fails when a sanitizer has spoken."""
    yield made[0]
    assert made[1] is None or made[1].reports() == []


class Waiter:
    """A process that has become the waiter, as waiter.py does it."""

    def __init__(
        self,
        program: Path,
        fds: Sequence[int],
        *,
        until_ms: int = 0,
        words: Sequence[str] = SAYS,
        path: str = sys.executable,
        blocked: Sequence[signal.Signals] = (signal.SIGTERM,),
    ) -> None:
        """``words`` are executed by ``path`` when it wakes."""
        data = native.command_block([path.encode()], [word.encode() for word in words], [])
        self.block = command.sealed(data)
        # The mask is inherited; subprocess has no argument for it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
        try:
            self.process = subprocess.Popen(
                [TITLE, "wait", str(until_ms), str(self.block), *(str(fd) for fd in fds)],
                executable=program,
                pass_fds=[self.block, *fds],
                env={"NAME": "value"},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def sleeps(self) -> None:
        """Until it is the waiter, in its poll."""
        proc = Path(f"/proc/{self.process.pid}")
        wait_until(
            lambda: (
                (proc / "comm").read_text() == "contain-waiting\n"
                and (proc / "wchan").read_text().startswith(("do_", "poll", "ep_"))
            ),
            what="it polls",
        )

    def ends(self) -> tuple[int, str, str]:
        """(status, output, errors)."""
        try:
            output, errors = self.process.communicate(timeout=WAIT_S)
        finally:
            self.process.kill()
            os.close(self.block)
        return self.process.returncode, output, errors


@pytest.fixture
def bell() -> Iterator[tuple[int, int]]:
    """(what is polled, what rings it)."""
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


def back(output: str) -> dict[str, Any]:
    """What SAYS said."""
    found: dict[str, Any] = json.loads(output)
    return found


def test_a_descriptor_wakes_it(program: Path, bell: tuple[int, int]) -> None:
    """The words come back with the environment; what was polled, and the words themselves, have been closed."""
    waiter = Waiter(program, [bell[0]])
    waiter.sleeps()
    os.write(bell[1], b"!")
    status, output, errors = waiter.ends()
    assert (status, errors) == (0, "")
    assert back(output) == {"said": "again", "name": "value", "pending": [], "fds": [0, 1, 2]}


def test_what_rang_before_is_not_slept_over(program: Path, bell: tuple[int, int]) -> None:
    """A ring between the last look and the execve."""
    os.write(bell[1], b"!")
    assert back(Waiter(program, [bell[0]]).ends()[1])["said"] == "again"


def test_the_end_of_a_process_wakes_it(program: Path, bell: tuple[int, int]) -> None:
    """A pidfd among others."""
    other = subprocess.Popen(["sleep", "1000"])
    pidfd = os.pidfd_open(other.pid)
    waiter = Waiter(program, [bell[0], pidfd])
    waiter.sleeps()
    other.kill()
    assert waiter.ends()[0] == 0
    other.wait(WAIT_S)
    os.close(pidfd)


def test_a_blocked_signal_wakes_it_and_stays_pending(program: Path, bell: tuple[int, int]) -> None:
    """It is for whoever comes back to read."""
    waiter = Waiter(program, [bell[0]])
    waiter.sleeps()
    waiter.process.send_signal(signal.SIGTERM)
    status, output, _ = waiter.ends()
    assert (status, back(output)["pending"]) == (0, [signal.SIGTERM])


def test_other_signals_do_what_they_do(program: Path, bell: tuple[int, int]) -> None:
    """A signal that nobody blocked ends it, as it would have ended the wrapper."""
    waiter = Waiter(program, [bell[0]], blocked=())
    waiter.sleeps()
    waiter.process.send_signal(signal.SIGTERM)
    assert waiter.ends()[0] == -signal.SIGTERM


def test_its_time_wakes_it(program: Path, bell: tuple[int, int]) -> None:
    """Not before; a time that is past, at once."""
    until_ms = time.monotonic_ns() // 1_000_000 + 200
    assert Waiter(program, [bell[0]], until_ms=until_ms).ends()[0] == 0
    assert time.monotonic_ns() // 1_000_000 >= until_ms
    assert Waiter(program, [bell[0]], until_ms=1).ends()[0] == 0


def test_a_program_that_is_gone(program: Path, bell: tuple[int, int]) -> None:
    """It says so, with the errno, and the status is ours."""
    os.write(bell[1], b"!")
    status, output, errors = Waiter(program, [bell[0]], path="/nowhere/python").ends()
    assert (status, output) == (125, "")
    assert f"/nowhere/python cannot be executed again (errno {errno.ENOENT})" in errors


@pytest.mark.parametrize("seals", [0, fcntl.F_SEAL_SHRINK])
def test_words_that_can_change_are_none(program: Path, bell: tuple[int, int], seals: int) -> None:
    """A block that somebody could still write to is not executed."""
    open_block = os.memfd_create("open", os.MFD_ALLOW_SEALING)
    os.write(open_block, native.command_block([b"/bin/sh"], [b"sh", b"-c", b"echo ran"], []))
    fcntl.fcntl(open_block, fcntl.F_ADD_SEALS, seals)
    os.write(bell[1], b"!")
    done = subprocess.run(
        [TITLE, "wait", "0", str(open_block), str(bell[0])],
        executable=program,
        pass_fds=[open_block, bell[0]],
        capture_output=True,
        check=False,
    )
    os.close(open_block)
    assert (done.returncode, done.stdout) == (125, b"")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["0"],
        ["", "3"],
        ["x", "3"],
        ["-1", "3"],
        ["1" * 19, "3"],
        ["0", "3", "3x"],
        ["0", "3", "999999"],
        ["0", "3", *["0"] * 9],
    ],
)
def test_what_makes_no_sense_is_refused(program: Path, words: list[str]) -> None:
    """Nobody but waiter.py starts it; anything else is a usage error at once."""
    done = subprocess.run([TITLE, "wait", *words], executable=program, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (64, b"", b"")
