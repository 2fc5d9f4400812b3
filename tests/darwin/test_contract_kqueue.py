"""EVFILT_PROC and the other filters: what is told, when, to whom, and what is not."""

from __future__ import annotations

import errno
import os
import select
import signal
from typing import TYPE_CHECKING

import pytest

from tests.darwin.abi import (
    ADD,
    DELETE,
    EOF,
    NOTE_EXEC,
    NOTE_EXIT,
    NOTE_EXITSTATUS,
    NOTE_FORK,
    NOTE_TRACK,
    NOTE_TRIGGER,
    ONESHOT,
    PROC,
    READ,
    TIMER,
    USER_EVENT,
)
from tests.darwin.events import Event, Kqueue
from tests.darwin.world import ON_A_MAC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.darwin.abi import Darwin
    from tests.darwin.processes import Actors

NO_SUCH_PID = 99999 + 4_000_000


@pytest.fixture
def queue(darwin: Darwin) -> Iterator[Kqueue]:
    """A kqueue of the test."""
    with Kqueue(darwin) as made:
        yield made


@pytest.fixture
def _seen_as_it_happens(request: pytest.FixtureRequest) -> None:
    """Forks and execs need the process connector in the fake."""
    if not ON_A_MAC:
        request.getfixturevalue("lineage")


def test_an_exit_is_told_with_its_status(queue: Kqueue, actors: Actors) -> None:
    """The wait status in ``data``, EOF, and one event only."""
    process = actors.sleeper()
    assert queue.attach(process.pid, NOTE_EXIT | NOTE_EXITSTATUS) == 0
    process.kill()
    (event,) = queue.wait()
    assert (event.ident, event.filter) == (process.pid, PROC)
    assert event.fflags & NOTE_EXIT
    assert event.flags & EOF
    assert event.data & 0xFFFF == signal.SIGKILL
    assert queue.wait(0.05) == []


def test_an_exit_that_is_no_childs_is_told(queue: Kqueue, actors: Actors) -> None:
    """It needs neither parenthood nor permission: this is how a supervisor watches its wrapper."""
    parent = actors.parent()
    other = actors.other(actors.says(parent, "spawn"))
    assert queue.attach(other, NOTE_EXIT) == 0
    os.kill(other, signal.SIGKILL)
    (event,) = queue.wait()
    assert event.ident == other


def test_after_its_exit_a_child_is_waited_for_with_patience(queue: Kqueue, actors: Actors) -> None:
    """NOTE_EXIT comes before the zombie: only a blocking wait is sure of it (probe P8)."""
    process = actors.sleeper()
    assert queue.attach(process.pid, NOTE_EXIT) == 0
    process.kill()
    assert len(queue.wait()) == 1
    assert actors.reap(process) == -signal.SIGKILL


def test_nobody_attaches_to_a_pid_that_is_free(queue: Kqueue) -> None:
    """ESRCH in the receipt; no event follows."""
    assert queue.attach(NO_SUCH_PID, NOTE_EXIT) == errno.ESRCH
    assert queue.wait(0.05) == []


def test_a_zombie_does_not_fire_at_once(queue: Kqueue, actors: Actors) -> None:
    """ESRCH: who registers too late must ask another way."""
    assert queue.attach(actors.zombie().pid, NOTE_EXIT) == errno.ESRCH
    assert queue.wait(0.05) == []


def test_a_knote_holds_to_its_process_not_to_the_number(queue: Kqueue, actors: Actors) -> None:
    """One that is deleted says nothing more; one that has fired is gone."""
    process = actors.sleeper()
    assert queue.attach(process.pid, NOTE_EXIT) == 0
    assert queue.change(Event(process.pid, PROC, DELETE, 0, 0)) == 0
    assert queue.change(Event(process.pid, PROC, DELETE, 0, 0)) == errno.ENOENT
    actors.end(process)
    assert queue.wait(0.05) == []


@pytest.mark.usefixtures("_seen_as_it_happens")
def test_forks_are_told_before_the_child_is_heard_of(queue: Kqueue, actors: Actors) -> None:
    """Merged into one event, with no pid: whoever wants the child must look for it."""
    parent = actors.parent()
    assert actors.says(parent, "spawn") > 0
    assert queue.attach(parent.pid, NOTE_FORK) == 0
    for _ in range(3):
        actors.other(actors.says(parent, "spawn"))
    (event,) = queue.wait()
    assert (event.ident, event.fflags & NOTE_FORK, event.data) == (parent.pid, NOTE_FORK, 0)
    assert queue.wait(0.05) == []


@pytest.mark.usefixtures("_seen_as_it_happens")
def test_an_exec_is_told(queue: Kqueue, actors: Actors) -> None:
    """NOTE_EXEC, for a process that goes on."""
    process = actors.script("import os, sys; sys.stdin.readline(); os.execlp('cat', 'cat')")
    assert queue.attach(process.pid, NOTE_EXEC | NOTE_EXIT) == 0
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    (event,) = queue.wait()
    assert event.fflags == NOTE_EXEC
    assert process.poll() is None


def test_children_are_not_followed(queue: Kqueue, actors: Actors) -> None:
    """NOTE_TRACK is ENOTSUP since 10.5."""
    assert queue.attach(actors.sleeper().pid, NOTE_EXIT | NOTE_TRACK) == errno.ENOTSUP


def test_the_end_of_a_pipe_is_told(queue: Kqueue) -> None:
    """EVFILT_READ: bytes while there are some, then EOF: a lifeline."""
    ours, theirs = os.pipe()
    try:
        assert queue.change(Event(ours, READ, ADD, 0, 0)) == 0
        assert queue.wait(0.05) == []
        os.write(theirs, b"four")
        (event,) = queue.wait()
        assert (event.ident, event.data, event.flags & EOF) == (ours, 4, 0)
        os.read(ours, 4)
    finally:
        os.close(theirs)
    (event,) = queue.wait()
    assert (event.data, event.flags & EOF) == (0, EOF)
    os.close(ours)


def test_a_timer_and_a_call_of_ones_own_wake(queue: Kqueue) -> None:
    """EVFILT_TIMER counts milliseconds; EVFILT_USER fires when triggered."""
    assert queue.change(Event(1, TIMER, ADD | ONESHOT, 0, 20)) == 0
    (event,) = queue.wait()
    assert (event.ident, event.filter, event.data) == (1, TIMER, 1)
    assert queue.change(Event(7, USER_EVENT, ADD | ONESHOT, 0, 0)) == 0
    assert queue.wait(0.05) == []
    assert queue.change(Event(7, USER_EVENT, 0, NOTE_TRIGGER, 0)) == 0
    (event,) = queue.wait()
    assert (event.ident, event.filter) == (7, USER_EVENT)


def test_a_queue_can_be_polled(queue: Kqueue, actors: Actors) -> None:
    """Its descriptor is readable while it has something to tell."""
    process = actors.sleeper()
    assert queue.attach(process.pid, NOTE_EXIT) == 0
    assert select.select([queue.fd], [], [], 0)[0] == []
    process.kill()
    assert select.select([queue.fd], [], [], 20)[0] == [queue.fd]
    assert len(queue.wait(0)) == 1


FORKS = """
import ctypes, os
library = ctypes.CDLL({library!r}, use_errno=True)
queue = library.kqueue()
pid = os.fork()
if pid == 0:
    library.kevent(queue, None, 0, None, 0, None)
    os._exit(ctypes.get_errno())
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_a_queue_is_not_inherited(queue: Kqueue, darwin: Darwin, actors: Actors) -> None:
    """It is closed on exec, and of no use after a fork: every process makes its own."""
    assert os.get_inheritable(queue.fd) is False
    assert actors.says(actors.script(FORKS.format(library=darwin.path))) == errno.EBADF


def test_many_events_come_in_portions(queue: Kqueue, actors: Actors) -> None:
    """A list too short loses nothing: the rest comes with the next call."""
    processes = [actors.sleeper() for _ in range(5)]
    for process in processes:
        assert queue.attach(process.pid, NOTE_EXIT) == 0
    for process in processes:
        actors.end(process)
    told: list[int] = []
    while portion := queue.wait(1, most=2):
        assert len(portion) <= 2
        told += [event.ident for event in portion]
    assert sorted(told) == sorted(process.pid for process in processes)
