"""Scenarios of the registry and its lock: real files, real locks, processes that are stopped, killed or mistaken."""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain.budget.arbiter import Ticket
from contain.budget.queue.desk import Desk
from contain.budget.queue.reconcile import births
from contain.budget.queue.waiting import SECOND_TICK_S, TICK_S
from contain.budget.registry import Registry, TicketRow
from contain.budget.registry.store import FILE, LOCK
from contain.errors import LockUnavailable, PermitLost, RegistryDamaged
from contain.linux.backend import LinuxBackend
from tests.budget.customer import UNITS, desk
from tests.budget.shop import Shop
from tests.session import ROOT, WAIT_S, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contain.budget.arbiter import Sample

IN_MODIFY = 0x2
EVENT_BYTES = 16


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A registry of two units, and everybody who came."""
    folder = tmp_path / "registry"
    folder.mkdir(mode=0o700)
    with ExitStack() as stack:
        yield Shop(folder, stack)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Somebody else has the registry's lock, and is named in it as every holder is."""
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.pwrite(fd, b"%-10d\n" % os.getpid(), 0)
    try:
        yield
    finally:
        os.close(fd)


def row(folder: Path, name: str, **birth: int | None) -> TicketRow:
    """A ticket of this process, or of one that has its number and another birth."""
    owner = desk(str(folder)).owner().replace(**birth)
    return TicketRow(ticket=Ticket(id=name, seq=0, session=name), owner=owner, since_s=time.monotonic())


def test_a_number_that_is_somebody_elses_now_holds_nothing(shop: Shop) -> None:
    """A grant whose owner had the number of a living process, but started at another time: it returns."""
    mistaken = row(shop.folder, "old", start_ticks=1, pidfs_id=None, pidfs_handle=None)
    desk(str(shop.folder)).enqueue(mistaken)
    for name in "ab":
        shop.comes(name).hears("granted")
    assert shop.stands() == (["a", "b"], [])
    assert os.getpid() == mistaken.owner.pid, "who has the number now is untouched"


def test_a_grant_that_was_returned_is_bound_to_nothing(shop: Shop) -> None:
    """Whoever comes late with a valid id, after its owner was taken for dead, is refused before anything runs."""
    counter = desk(str(shop.folder))
    counter.enqueue(row(shop.folder, "late"))
    counter.release("late", "somebody saw its owner gone")
    with pytest.raises(PermitLost):
        counter.bind("late", "{}", "/nowhere", "late")
    assert shop.stands() == ([], [])


def test_each_owner_is_looked_at_once(shop: Shop) -> None:
    """Two tickets of one process and one of another: two births; when that one ends, its ticket alone goes."""
    counter = desk(str(shop.folder))
    for name in "ab":
        shop.comes(name).hears("granted")
    for name in ("mine", "mine too"):
        counter.enqueue(row(shop.folder, name))
    other = shop.comes("other")
    shop.waits("mine", "mine too", "other")
    book = counter.look()
    assert len(births([*book.permits.values(), *book.tickets.values()])) == len("ab") + 2
    kill(other.process.pid)
    assert os.waitid(
        os.P_PID, other.process.pid, os.WEXITED | os.WNOWAIT
    )  # a zombie, which nobody has reaped
    counter.tick()
    assert shop.stands()[1] == ["mine", "mine too"]


def test_one_of_eight_who_find_a_dead_owner_settles_it(shop: Shop) -> None:
    """At once, without a lock of its own for that: one line says returned, and all eight are served or wait."""
    dead = shop.comes("dead").hears("granted")
    kill(dead.process.pid)
    dead.process.wait(WAIT_S)
    for name in "abcdefgh":
        shop.comes(name)
    wait_until(lambda: len(shop.stands()[1]) == 8 - UNITS, what="two are served and six wait")
    told = [(what, name) for _, what, name, _, _, _ in desk(str(shop.folder)).look().past()]
    assert told.count(("returned", "dead")) == 1
    assert len(shop.stands()[0]) == UNITS


WRITER = """
import sys, time
from contain.budget.arbiter import Ticket
from contain.budget.registry import TicketRow
from tests.budget.customer import desk, say
counter = desk(sys.argv[1])
with counter.registry.transaction((), {}) as book:
    book.add(TicketRow(ticket=Ticket(id="x", seq=0, session="x"), owner=counter.owner(), since_s=0.0))
    say("inside")
    sys.stdin.readline()
"""


@contextmanager
def inside(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process in the middle of a transaction, with a ticket written and not committed."""
    command = [sys.executable, "-c", WRITER, str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"inside\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_writer_killed_in_the_middle_has_written_nothing(shop: Shop) -> None:
    """And the lock is free at once."""
    desk(str(shop.folder)).tick()
    with inside(shop.folder) as process:
        process.kill()
        process.wait()
        shop.comes("a").hears("granted")
        assert shop.stands() == (["a"], [])


def test_a_writer_stopped_in_the_middle_is_named(shop: Shop) -> None:
    """Who waits says whom for, gives up when its time is over, and who only looks sees what was committed."""
    desk(str(shop.folder)).tick()
    with inside(shop.folder) as process:
        kill(process.pid, signal.SIGSTOP)
        said: list[str] = []
        registry = Registry(str(shop.folder), UNITS, said.append)
        registry.give_up_s = 6.0
        with (
            pytest.raises(LockUnavailable, match=f"process {process.pid} has held"),
            registry.transaction((), {}),
        ):
            pytest.fail("the lock was had")
        assert said == [f"waiting for the registry's lock, which process {process.pid} holds"]
        registry.give_up_s = 0.0
        assert registry.look((), {}).tickets == {}
        registry.close()


def test_who_is_killed_while_it_waits_for_the_lock_has_done_nothing(shop: Shop) -> None:
    """The holder is undisturbed, and the next one is served."""
    shop.comes("a").hears("granted")
    with locked(shop.folder):
        waiting = shop.comes("b")
        wait_until(lambda: _has_open(waiting.process.pid, shop.folder / LOCK), what="it wants the lock")
        kill(waiting.process.pid, signal.SIGTERM)
        waiting.process.wait(WAIT_S)
    shop.comes("c").hears("granted")
    assert shop.stands() == (["a", "c"], [])


def _has_open(pid: int, path: Path) -> bool:
    return any(fd.is_symlink() and fd.readlink() == path for fd in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.parametrize("kind", ["garbage", "directory", "text of another"])
def test_a_file_that_is_no_registry_grants_and_releases_nothing(shop: Shop, kind: str) -> None:
    """A refusal with the cause; when it is gone, the same process goes on."""
    counter = desk(str(shop.folder))
    if kind == "directory":
        (shop.folder / FILE).mkdir()
    else:
        (shop.folder / FILE).write_bytes(
            b"garbage" if kind == "garbage" else b"SQLite format 3\0" + bytes(4096)
        )
    before = (shop.folder / FILE).stat()
    with pytest.raises(RegistryDamaged):
        counter.tick()
    assert (shop.folder / FILE).stat().st_ino == before.st_ino, "it is evidence, and not ours to remove"
    (shop.folder / FILE).rename(shop.folder / "aside")
    counter.tick()
    assert shop.stands() == ([], [])


def test_a_lock_that_cannot_be_opened_is_a_named_refusal(shop: Shop) -> None:
    """A directory stands there; nothing is granted without the lock."""
    (shop.folder / LOCK).mkdir()
    with pytest.raises(LockUnavailable, match="Is a directory"):
        desk(str(shop.folder)).tick()


def test_eight_waiters_leave_the_lock_alone(shop: Shop) -> None:
    """The first looks every two seconds and the second every thirty; the other six take it never."""
    held = [shop.comes(name).hears("granted") for name in "ab"]
    for name in "ab":
        desk(str(shop.folder)).bind(
            name, "{", "", ""
        )  # a grant that nobody takes is somebody else's turn in 10 s
    for name in "cdefghij":
        shop.comes(name)
    wait_until(lambda: len(shop.stands()[1]) == 8, what="eight wait")
    next_two = shop.stands()[1][:2]
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    assert libc.inotify_add_watch(watch, bytes(shop.folder / LOCK), IN_MODIFY) >= 0
    while select.select([watch], [], [], TICK_S / 2)[0]:
        os.read(watch, 1 << 16)  # those who have just come
    begun_s, taken = time.monotonic(), 0
    while taken < 3:
        assert select.select([watch], [], [], WAIT_S)[0], "the sentinel sleeps"
        taken += len(os.read(watch, 1 << 16)) // EVENT_BYTES
        passed_s = time.monotonic() - begun_s
        assert taken <= 2 + passed_s / TICK_S + passed_s / SECOND_TICK_S
    os.close(watch)
    for customer in held:
        customer.give_back()
    wait_until(lambda: shop.stands()[0] == sorted(next_two), what="the next two have it")


def test_a_hundred_looks_are_one_sample() -> None:
    """A reading is shared while it is fresh, within one process; each takes below a millisecond."""
    looks: list[Sample] = []
    backend = LinuxBackend()
    sampler = backend.sampler(backend.judge())

    def look() -> Sample:
        looks.append(sampler.sample({}))
        return looks[-1]

    plain = desk("/nowhere")
    counter = Desk(plain.registry, plain.policy, backend, look, lambda: ((), {}))
    samples = [counter.sample() for _ in range(100)]
    assert len({id(one) for one in samples}) == len(looks) < len(samples)
