"""The lock of a job: one holder, freed by any death, never two of them after a removal."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from receipts import Busy, Lock, Unwritable, take
from tests.receipts.lives import job, open_store
from tests.receipts.tracing import environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLD = """
import os, sys
from receipts import take
from tests.receipts.lives import job
fd = os.open(sys.argv[1], os.O_RDONLY)
lock = take(fd, job(1))
print(lock.fd, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def fd(home: Path) -> Iterator[int]:
    """Return a descriptor of the directory."""
    opened = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
    yield opened
    os.close(opened)


def holder(home: Path) -> subprocess.Popen[str]:
    """Start a process that holds the lock of job 1, and return it once it does."""
    process = subprocess.Popen(
        [sys.executable, "-S", "-B", "-c", HOLD, str(home)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_busy_names_the_holder_and_sigkill_frees(home: Path, fd: int) -> None:
    """A lock held elsewhere is busy, with the holder's number; SIGKILL of the holder frees it at once."""
    process = holder(home)
    with process:
        with pytest.raises(Busy) as caught:
            take(fd, job(1))
        assert caught.value.holder_pid == process.pid
        assert str(process.pid) in str(caught.value)
        process.kill()
        process.wait()
        take(fd, job(1)).release()


def test_locks_of_other_jobs_are_free(home: Path, fd: int) -> None:
    """One lock a job: the negative control of busy."""
    with holder(home) as process:
        take(fd, job(2)).release()
        process.kill()


def test_one_process_excludes_itself(fd: int) -> None:
    """Two tasks of one process exclude each other: a flock belongs to the open file, not to the process."""
    with take(fd, job(1)) as lock:
        with pytest.raises(Busy):
            take(fd, job(1))
        # An unrelated open and close of the file, which would drop a POSIX lock (case 32).
        os.close(os.open(f"{job(1)}.lock", os.O_RDWR, dir_fd=fd))
        with pytest.raises(Busy):
            take(fd, job(1))
        assert lock.fd >= 0
    assert lock.fd == -1
    lock.release()
    take(fd, job(1)).release()


def test_the_file_is_private_and_stays(home: Path, fd: int) -> None:
    """The file is 0600, close-on-exec, says who holds it, and outlives a release."""
    with take(fd, job(1)) as lock:
        assert not os.get_inheritable(lock.fd)
        path = home / f"{job(1)}.lock"
        assert path.stat().st_mode & 0o777 == 0o600
        assert int(path.read_text()) == os.getpid()
    assert path.exists()


def test_remove_race(home: Path, fd: int) -> None:
    """Case 31: a waiter that opened the file before it was removed does not become a second holder."""
    first = take(fd, job(1))
    waiter = os.open(f"{job(1)}.lock", os.O_RDWR, dir_fd=fd)
    first.remove()
    assert not (home / f"{job(1)}.lock").exists()
    fcntl.flock(waiter, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the nameless file can be had: this is the trap
    with take(fd, job(1)) as second:
        assert os.fstat(second.fd).st_ino == (home / f"{job(1)}.lock").stat().st_ino
        # And the one who holds a nameless file cannot take the name away from the one who has it.
        Lock(waiter, fd, job(1)).remove()
        assert (home / f"{job(1)}.lock").exists()
        with pytest.raises(Busy):
            take(fd, job(1))


def test_remove_under_a_crowd(home: Path) -> None:
    """Processes that take, mark and remove one lock without a break are never in it together."""
    script = """
import os, sys
from receipts import Busy, take
from tests.receipts.lives import job
fd = os.open(sys.argv[1], os.O_RDONLY)
held = together = 0
while held < 300:
    try:
        lock = take(fd, job(1))
    except Busy:
        continue
    try:
        os.close(os.open("inside", os.O_CREAT | os.O_EXCL, dir_fd=fd))
    except FileExistsError:
        together += 1
    else:
        os.unlink("inside", dir_fd=fd)
    held += 1
    lock.remove()
print(together)
"""
    crowd = [
        subprocess.Popen(
            [sys.executable, "-S", "-B", "-c", script, str(home)],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    assert [process.communicate()[0] for process in crowd] == ["0\n"] * 4


def test_a_forked_child_keeps_and_does_not_free(home: Path, fd: int) -> None:
    """A child's copy keeps the lock when its parent lets go; its release does not free the parent's."""
    lock = take(fd, job(1))
    reading, writing = os.pipe()
    answering, answer = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        lock.release()
        os.write(answer, b"x")
        os.read(reading, 1)
        os._exit(0)
    os.close(reading)
    os.read(answering, 1)
    with pytest.raises(Busy):
        take(fd, job(1))
    lock.release()
    take(fd, job(1)).release()
    kept = take(fd, job(1))
    second = os.fork()
    if not second:
        os.read(answering, 1)
        os._exit(0)
    kept.release()
    with pytest.raises(Busy):
        take(fd, job(1))
    os.write(answer, b"x")
    os.waitpid(second, 0)
    take(fd, job(1)).release()
    os.close(writing)
    os.waitpid(child, 0)
    for end in (answering, answer):
        os.close(end)
    assert (home / f"{job(1)}.lock").exists()


def test_a_link_is_not_followed(home: Path, fd: int, tmp_path: Path) -> None:
    """A symbolic link under the lock's name is refused, and what it leads to is not touched."""
    target = tmp_path / "elsewhere"
    (home / f"{job(1)}.lock").symlink_to(target)
    with pytest.raises(Unwritable) as caught:
        take(fd, job(1))
    assert caught.value.step == "lock"
    assert not target.exists()


def test_garbage_in_the_file(home: Path, fd: int) -> None:
    """A busy lock whose file says nothing sensible is busy with an unknown holder."""
    with holder(home) as process:
        (home / f"{job(1)}.lock").write_text("who?")
        with pytest.raises(Busy) as caught:
            take(fd, job(1))
        assert caught.value.holder_pid is None
        process.kill()
    assert open_store(home).ids() == []
