"""Whole lives of jobs, for the tests and as a child process: `python lives.py DIRECTORY KIND SCRIPT`.

The child says each state on stdout when the store has returned, as the wrapper would to its host. KIND is
the store as it is (`real`) or sabotaged in one way, to prove that a checker sees the fault.
"""

from __future__ import annotations

import errno
import os
import random
import sys
from typing import TYPE_CHECKING

from receipts import (
    EXITED,
    HELD,
    PREPARED,
    RELEASED,
    RUNNING,
    Busy,
    Duplicate,
    NamespaceInit,
    Outcome,
    Receipt,
    Store,
    Unreadable,
    Unwritable,
    Usage,
    take,
)
from receipts.disk import Directory

if TYPE_CHECKING:
    from pathlib import Path

STATES = ("", PREPARED, RUNNING, EXITED, RELEASED)
PROOF = NamespaceInit(
    pid=4711,
    uid=0,
    boot_id="0d6ad5a4-4b5c-4a3c-9c53-a8a1b0a9c7c1",
    start_ticks=123456,
    namespace=4026532999,
    observer_namespace=4026531836,
    witness="NSpid ends in 1",
    proc="fresh",
)


def job(number: int) -> str:
    """Return the id of job `number`."""
    return f"00000000-0000-4000-8000-{number:012x}"


def prepared(number: int = 1) -> Receipt:
    """Return the first receipt of job `number`."""
    return Receipt(
        id=job(number),
        permit_id=job(0xABC),
        state=PREPARED,
        tier="namespace",
        command="sh",
        wrapper_pid=4710,
        created_at=1000.5,
        proof=PROOF,
    )


def exited(number: int = 1) -> Receipt:
    """Return the receipt of job `number` when its command has ended."""
    return prepared(number).replace(state=EXITED, outcome=Outcome(cause="exited", code=3), ran=True)


def released(number: int = 1, ended_at: float = 1010.25) -> Receipt:
    """Return the last receipt of job `number`."""
    usage = Usage(wall_us=5, user_us=3, system_us=2, max_rss_bytes=4096, processes=2, scope="waited-for")
    return exited(number).replace(state=RELEASED, empty=True, ended_at=ended_at, usage=usage)


def held(number: int = 1) -> Receipt:
    """Return a receipt that waits for somebody."""
    return exited(number).replace(state=HELD, ended_at=1.0)


class NoFileSync(Directory):
    """Sabotage: data is never synced."""

    def sync(self, fd: int | None = None) -> None:
        """Sync names only."""
        if fd is None:
            super().sync()


class NoNameSync(Directory):
    """Sabotage: names are never synced."""

    def sync(self, fd: int | None = None) -> None:
        """Sync data only."""
        if fd is not None:
            super().sync(fd)


class InPlace(Directory):
    """Sabotage: a file appears under its name before it is whole."""

    def put(self, name: str, temporary: str, data: bytes, created: int | None = None) -> None:
        """Write under the last name at once."""
        del temporary, created
        fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600, dir_fd=self.fd)
        os.write(fd, data)
        self.sync(fd)
        os.close(fd)


class EagerDrop(Directory):
    """Sabotage: the older name goes before the newer one is durable."""

    def settle(self, replaced: list[str]) -> None:
        """Drop, then sync."""
        for name in replaced:
            self.drop(name)
        self.sync_names()


class GapBeforePut(Directory):
    """Sabotage: the older receipt goes before the newer one exists."""

    def put(self, name: str, temporary: str, data: bytes, created: int | None = None) -> None:
        """Drop every older name first."""
        for suffix in ("prepared", "running", "exited"):
            self.drop(name.partition(".")[0] + "." + suffix)
        super().put(name, temporary, data, created)


class Nothing(Directory):
    """Sabotage: nothing reaches the directory."""

    def put(self, name: str, temporary: str, data: bytes, created: int | None = None) -> None:
        """Write nothing."""

    def rename(self, old: str, new: str) -> None:
        """Rename nothing."""


KINDS: dict[str, type[Directory]] = {
    "real": Directory,
    "no-file-sync": NoFileSync,
    "no-name-sync": NoNameSync,
    "in-place": InPlace,
    "eager-drop": EagerDrop,
    "gap": GapBeforePut,
    "nothing": Nothing,
}


def open_store(path: str | Path, kind: str = "real") -> Store:
    """Return a store on a directory; its descriptor lives as long as the process."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    store = Store(fd, str(path))
    store.directory = KINDS[kind](fd, str(path))
    return store


def say(word: str) -> None:
    """Tell the host."""
    os.write(1, f"{word}\n".encode())


def say_and_wait(word: str) -> None:
    """Tell the host, and go on when it says so: for a copy of the disk at this moment."""
    say(word)
    os.read(0, 1)


def mark(word: str) -> None:
    """Leave a trace for strace: a look at a path that does not exist."""
    try:
        os.stat(f"/{word}-of-life")  # noqa: PTH116 - the bare call is the point
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def live(store: Store, number: int = 1, *, wait: bool = False) -> None:
    """Go through every state of one job, under its lock."""
    speak = say_and_wait if wait else say
    with take(store.directory.fd, job(number)):
        store.prepare(prepared(number))
        speak(PREPARED)
        store.running(prepared(number))
        speak(RUNNING)
        store.exited(exited(number))
        speak(EXITED)
        store.finish(released(number))
        speak(RELEASED)


def look(store: Store) -> None:
    """Read everything and tidy up, as `inspect` does. Expects jobs 1 (released long ago) and 2 (held)."""
    for job_id in store.ids():
        found = store.find(job_id)
        if isinstance(found, Unreadable):
            raise found
    store.exists(job(3))
    with take(store.directory.fd, job(2)), store.batch():
        store.finish(held(2))
    say(f"pruned {store.prune(2000.0, 10.0, 10)}")


def lives_at_random(store: Store, count: int) -> int:
    """Fork writers, SIGKILL each at a random moment; return how many receipts were lost, torn or too old."""
    wrong = 0
    moments = random.Random(20240601)  # noqa: S311 - a repeatable test
    for turn in range(count):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.dup2(writing, 1)
            for number in range(turn * 100, turn * 100 + 100):
                live(store, number)
            os._exit(0)
        os.close(writing)
        heard = b""
        wanted = moments.randrange(1, 14)
        while heard.count(b"\n") < wanted:
            heard += os.read(reading, 9)
        for _ in range(moments.randrange(20000)):  # some microseconds further, without a clock
            pass
        os.kill(child, 9)
        os.waitpid(child, 0)
        while more := os.read(reading, 4096):
            heard += more
        os.close(reading)
        words = heard.decode().split()
        for number in range(turn * 100, turn * 100 + len(words) // 4 + 1):
            said = words[(number - turn * 100) * 4 :][:4]
            found = store.find(job(number))
            rank = STATES.index(found.state) if isinstance(found, Receipt) else (-1 if found else 0)
            wrong += rank not in (len(said), len(said) + 1)
    return wrong


def main(path: str, kind: str, script: str) -> int:
    """Run one script; 3 where the store refused with an error of ours."""
    store = open_store(path, kind)
    mark("begin")
    try:
        if script == "live":
            live(store)
        elif script == "steps":
            live(store, wait=True)
        elif script == "look":
            look(store)
        elif script == "batch":
            with store.batch():
                for number in range(20):
                    store.finish(released(number))
            say("all")
        else:
            say(str(lives_at_random(store, int(script))))
    except (Unwritable, Unreadable, Duplicate, Busy) as error:
        say(f"refused {type(error).__name__}")
        return 3
    finally:
        mark("end")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))


def put(home: Path, number: int, suffix: str, data: bytes) -> None:
    """Plant a file, as a crash or a stranger would leave it."""
    (home / f"{job(number)}.{suffix}").write_bytes(data)


def names(home: Path) -> list[str]:
    """Return the names in a directory but for locks."""
    return sorted(path.name for path in home.iterdir() if path.suffix != ".lock")
