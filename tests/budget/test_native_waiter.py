"""Waiting without Python: the same process, the same ticket, the same command; only some pages instead of megabytes."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.blocked import needs_root
from tests.budget.home import Home
from tests.ground import USERS, ground_of
from tests.programs import shared_programs
from tests.session import ROOT, WAIT_S, installed, kill, wait_until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = [needs_root, pytest.mark.timeout(180)]
LOOKING = 2
"""The first two in line stay Python: they look by themselves now and then."""
MOST_PRIVATE_KB = 200


class Queue:
    """One holder of the only unit, and who waits behind it."""

    def __init__(self, home: Home) -> None:
        """The holder has its permit, and runs until ``open``."""
        self.home = home
        self.order = home.work / "order"
        self.order.touch()
        self.order.chmod(0o666)
        self._gate, gate = os.pipe()[::-1]
        ready = home.work / "ready"
        self.holder = self.asks("holder", "sh", "-c", f"echo > {ready}; read line", stdin=gate)
        os.close(gate)
        wait_until(ready.exists, what="the holder runs")
        self.waiters: list[subprocess.Popen[str]] = []

    def asks(
        self,
        session: str,
        *command: str,
        options: tuple[str, ...] = (),
        **popen: Any,  # noqa: ANN401 - passed on
    ) -> subprocess.Popen[str]:
        """One ``contain exec`` of a session; what it says is in a file of that name."""
        with self._said(session).open("w") as errors:
            words = ["exec", "--budget", "--session", session, *options, "--", *command]
            return self.home.starts(*words, stderr=errors, **popen)

    def joins(self, *options: str, command: tuple[str, ...] = (), **popen: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - passed on
        """One more waiter, at the end of the line; it has its ticket. Its command writes its number."""
        number = len(self.waiters) + 1
        command = command or ("sh", "-c", f"echo {number} >> {self.order}; exit {number}")
        waiter = self.asks(f"s{number}", *command, options=options, **popen)
        self.waiters.append(waiter)
        wait_until(lambda: "waiting, place" in self.said(number), what=f"{number} waits")
        return waiter

    def said(self, number: int) -> str:
        """What a waiter has said on standard error."""
        return self._said(f"s{number}").read_text()

    def _said(self, session: str) -> Path:
        return self.home.work / f"{session}.err"

    def open(self) -> None:
        """The holder ends."""
        os.close(self._gate)
        self._gate = -1

    def close(self) -> None:
        """Lets the holder go, if nobody has."""
        if self._gate >= 0:
            self.open()

    def ran(self) -> list[int]:
        """Whose commands ran, in their order."""
        return [int(line) for line in self.order.read_text().split()]

    def standing(self) -> list[str]:
        """The sessions that wait, in their order."""
        return [one["session"] for one in json.loads(self.home.says("status", "--json"))["waiting"]]

    def pythons(self) -> list[int]:
        """How often each waiter has begun as Python."""
        return [self.home.pythons(waiter.pid) for waiter in self.waiters]


@pytest.fixture
def queue(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queue]:
    """A queue of root, or of the user that the test names."""
    user = getattr(request, "param", "root")
    with ground_of(user, shared_programs(tmp_path_factory)) as ground, ExitStack() as stack:
        home = Home(ground, stack)
        made = Queue(home)
        stack.callback(made.close)
        yield made


def is_native(process: subprocess.Popen[str]) -> bool:
    """The process is the waiter."""
    return Path(f"/proc/{process.pid}/comm").read_text() == "contain-waiting\n"


def become_native(*waiters: subprocess.Popen[str]) -> None:
    """Until they are."""
    for waiter in waiters:
        wait_until(lambda waiter=waiter: is_native(waiter), what=f"{waiter.args!r} is native")


def private_kb(pid: int) -> int:
    """The memory that nobody shares with it."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


@pytest.mark.parametrize("queue", USERS, indirect=True)
def test_all_run_once_and_in_order(queue: Queue) -> None:
    """Twenty wait; from the third on they are native, small, and begin as Python exactly once more."""
    waiters = [queue.joins() for _ in range(20)]
    become_native(*waiters[LOOKING:])
    assert max(private_kb(waiter.pid) for waiter in waiters[LOOKING:]) < MOST_PRIVATE_KB
    assert queue.standing() == [f"s{number}" for number in range(1, 21)]
    assert queue.pythons() == [1] * 20
    queue.open()
    assert [waiter.wait(WAIT_S) for waiter in waiters] == list(range(1, 21))
    assert queue.ran() == list(range(1, 21))
    assert queue.pythons() == [1] * LOOKING + [2] * 18
    assert queue.standing() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_the_wait(queue: Queue, number: signal.Signals) -> None:
    """128+n, no ticket is left, the command does not run, and who was behind goes on."""
    waiters = [queue.joins() for _ in range(4)]
    become_native(*waiters[LOOKING:])
    kill(waiters[2].pid, number)
    assert waiters[2].wait(WAIT_S) == 128 + number
    assert queue.standing() == ["s1", "s2", "s4"]
    queue.open()
    assert [waiter.wait(WAIT_S) for waiter in waiters] == [1, 2, 128 + number, 4]
    assert queue.ran() == [1, 2, 4]


def test_a_stopped_one_goes_on(queue: Queue) -> None:
    """Stopped, it hears nothing; continued, it looks, and waits on at its place. A signal then ends it."""
    waiters = [queue.joins() for _ in range(4)]
    become_native(*waiters[LOOKING:])
    kill(waiters[2].pid, signal.SIGSTOP)
    kill(waiters[2].pid, signal.SIGCONT)
    wait_until(lambda: queue.pythons() == [1, 1, 2, 1], what="it looks")
    become_native(waiters[2])
    assert queue.standing() == ["s1", "s2", "s3", "s4"]
    kill(waiters[3].pid, signal.SIGSTOP)
    kill(waiters[3].pid, signal.SIGTERM)
    kill(waiters[3].pid, signal.SIGCONT)
    assert waiters[3].wait(WAIT_S) == 128 + signal.SIGTERM
    queue.open()
    assert [waiter.wait(WAIT_S) for waiter in waiters[:3]] == [1, 2, 3]


def test_the_end_of_one_wakes_the_next_alone(queue: Queue) -> None:
    """SIGKILL in the middle: the ticket goes by its owner's birth, and one process has looked."""
    waiters = [queue.joins() for _ in range(7)]
    become_native(*waiters[LOOKING:])
    kill(waiters[3].pid)
    waiters[3].wait(WAIT_S)
    wait_until(lambda: queue.pythons()[4] == 2, what="the next looks")
    become_native(waiters[4])
    assert queue.standing() == ["s1", "s2", "s3", "s5", "s6", "s7"]
    assert queue.pythons() == [1, 1, 1, 1, 2, 1, 1]
    kill(waiters[2].pid)  # it watches its new predecessor as it did the old one
    waiters[2].wait(WAIT_S)
    wait_until(lambda: queue.pythons() == [1, 1, 1, 1, 3, 1, 1], what="the next looks again")


def test_who_becomes_second_looks_again(queue: Queue) -> None:
    """The second in line takes over from a stopped sentinel, so it is woken when it becomes that, and stays Python."""
    waiters = [queue.joins() for _ in range(4)]
    become_native(*waiters[LOOKING:])
    kill(waiters[0].pid)
    waiters[0].wait(WAIT_S)
    wait_until(lambda: queue.pythons()[2] == 2, what="the new second looks")
    become_native(waiters[3])
    assert queue.pythons() == [1, 1, 2, 1]
    queue.open()
    assert [waiter.wait(WAIT_S) for waiter in waiters[1:]] == [2, 3, 4]


@pytest.mark.slow
def test_random_kills(queue: Queue) -> None:
    """Whoever is left runs once, in order, and nothing is left in the registry."""
    waiters = [queue.joins() for _ in range(10)]
    become_native(*waiters[LOOKING:])
    killed = random.Random(11).sample(range(LOOKING, 10), 4)  # noqa: S311 - to be the same again
    for index in killed:
        kill(waiters[index].pid)
    queue.open()
    left = [index for index in range(10) if index not in killed]
    assert [waiters[index].wait(WAIT_S) for index in left] == [index + 1 for index in left]
    assert queue.ran() == [index + 1 for index in left]
    assert json.loads(queue.home.says("status", "--json"))["permits"] == queue.standing() == []


def test_the_time_to_wait_goes_on(queue: Queue) -> None:
    """--max-wait counts from the first start: back from the native waiter the time is over, not begun anew."""
    [*_, waiter] = [queue.joins(), queue.joins(), queue.joins("--max-wait", "5")]
    become_native(waiter)
    assert waiter.wait(WAIT_S) == 125
    assert "Not granted in time" in queue.said(3)
    assert queue.pythons()[2] == 2
    assert queue.standing() == ["s1", "s2"]


def test_nothing_of_the_command_shows(queue: Queue) -> None:
    """Its words and its environment come back whole, with a descriptor that was kept; none of them is on show."""
    kept = os.memfd_create("kept", 0)
    os.write(kept, b"kept")
    os.lseek(kept, 0, os.SEEK_SET)
    odd = "a b\n'\"*\\ \udcff"
    show = 'printf "%s|" "$@" "$SECRET"; cat /dev/fd/'
    [*_, waiter] = [
        queue.joins(),
        queue.joins(),
        queue.joins(
            "--keep-fd",
            str(kept),
            command=("sh", "-c", f"{show}{kept}", "sh", "s3cret", odd, ""),
            env={"PATH": os.environ["PATH"], "SECRET": "v4lue"},
            stdout=-1,
            errors="surrogateescape",
            pass_fds=[kept],
        ),
    ]
    become_native(waiter)
    shown = Path(f"/proc/{waiter.pid}/cmdline").read_bytes()
    assert shown.startswith(b"contain: waiting\0wait\0")
    assert b"s3cret" not in shown
    assert b"LC_CTYPE" not in Path(f"/proc/{waiter.pid}/environ").read_bytes()  # Python's own, in a C locale
    queue.open()
    output, _ = waiter.communicate(timeout=WAIT_S)
    os.close(kept)
    assert output == f"s3cret|{odd}||v4lue|kept"


def test_a_python_that_is_gone(queue: Queue, tmp_path: Path) -> None:
    """It cannot come back: it says so, the status is ours, and the ticket goes with it."""
    python = tmp_path / "python"
    python.symlink_to(os.path.realpath(sys.executable))
    [first, second] = [queue.joins(), queue.joins()]
    path = os.pathsep.join([str(ROOT), *sys.path[1:]])
    words = ("env", f"PYTHONPATH={path}", str(python), "-m", "contain")
    waiter = queue.joins(contain=words)
    become_native(waiter)
    python.unlink()
    kill(waiter.pid, signal.SIGCONT)
    assert waiter.wait(WAIT_S) == 125
    assert f"{python} cannot be executed again" in queue.said(3)
    wait_until(lambda: queue.standing() == ["s1", "s2"], what="its ticket is gone")
    queue.open()
    assert [first.wait(WAIT_S), second.wait(WAIT_S)] == [1, 2]


def test_the_installed_command(queue: Queue, tmp_path: Path) -> None:
    """bin/contain comes back as python -m contain does."""
    command = (str(installed(tmp_path)),)
    waiters = [queue.joins(contain=command) for _ in range(3)]
    become_native(waiters[2])
    queue.open()
    assert [waiter.wait(WAIT_S) for waiter in waiters] == [1, 2, 3]
    assert queue.pythons()[2] == 2


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"job_id":"x"}'])
def test_nobody_else_resumes(queue: Queue, content: bytes) -> None:
    """What no contain wrote is refused, and the command does not run."""
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    done = queue.asks(
        "s1", "touch", str(queue.home.work / "ran"), options=(f"--resumed={read}",), pass_fds=[read]
    )
    os.close(read)
    assert done.wait(WAIT_S) == 125
    assert "--resumed is contain's own" in queue.said(1)
    assert not (queue.home.work / "ran").exists()
