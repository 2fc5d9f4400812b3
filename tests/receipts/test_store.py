"""The invariants of the store, by number as in its header: order, durability, and what readers are told."""

from __future__ import annotations

import os
import resource
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from receipts import Receipt, Store, Unreadable, Unwritable, dumps, take
from tests.receipts.lives import (
    KINDS,
    STATES,
    exited,
    held,
    job,
    lives_at_random,
    names,
    open_store,
    prepared,
    put,
    released,
)
from tests.receipts.tracing import Call, child, each, misorders, record, run, sabotage

if TYPE_CHECKING:
    from pathlib import Path


def rank(store: Store, number: int = 1) -> int:
    """Return how far a job has come; a receipt that cannot be read fails the test."""
    found = store.find(job(number))
    assert not isinstance(found, Unreadable), found
    return STATES.index(found.state) if found else 0


def kills(home: Path, tmp_path: Path, kind: str) -> list[str | None]:
    """SIGKILL a life at each of its calls; return for each what was wrong afterwards."""

    def kill(at: tuple[int, Call]) -> str | None:
        place = tmp_path / f"{kind}-{at[0]}"
        place.mkdir(mode=0o700)
        done = sabotage(place, "live", at[1], "signal=KILL", kind)
        assert done.returncode == -9, (at, done)
        said = len(done.stdout.split())
        store = open_store(place)
        found = store.find(job(1))
        where = STATES.index(found.state) if isinstance(found, Receipt) else (-1 if found else 0)
        if where not in (said, said + 1):
            return f"{at[1].name} {at[1].text}: said {said}, found {found}"
        if kind == "real":
            # The next one to come goes on from there, whatever litter there is.
            with take(store.directory.fd, job(1)):
                store.finish(released())
            assert rank(store) == len(STATES) - 1
            assert names(place) == [f"{job(1)}.json"]
        os.close(store.directory.fd)
        return None

    return each(kill, list(enumerate(record(home, kind, "live", tmp_path / "log"))))


@pytest.mark.parametrize("step", ["prepare", "exited", "finish"])
def test_inv_01_a_name_appears_whole(store: Store, home: Path, step: str) -> None:
    """A reader that looks all the time sees no receipt or a whole one, never a part."""
    seen: list[object] = []
    done = threading.Event()

    def watch() -> None:
        reader = open_store(home)
        while not done.is_set():
            seen.append(reader.find(job(1)))
        seen.append(reader.find(job(1)))
        os.close(reader.directory.fd)

    watcher = threading.Thread(target=watch)
    watcher.start()
    receipt = {"prepare": prepared(), "exited": exited(), "finish": released()}[step]
    getattr(store, step)(receipt)
    done.set()
    watcher.join()
    assert set(map(repr, seen)) <= {repr(None), repr(receipt)}
    assert seen[-1] == receipt


def test_inv_01_sigkill_at_every_call(home: Path, tmp_path: Path) -> None:
    """SIGKILL at any call of a whole life leaves the old or the new state, and nobody is stuck."""
    found = kills(home, tmp_path, "real")
    assert [wrong for wrong in found if wrong] == []
    assert len(found) > 40, "the life has become too short to be one"


@pytest.mark.parametrize("kind", ["in-place", "gap"])
def test_inv_01_the_kill_loop_sees_a_bad_store(home: Path, tmp_path: Path, kind: str) -> None:
    """Negative control: a store that writes in place, or drops before it writes, is caught as well."""
    assert any(kills(home, tmp_path, kind))


def test_inv_02_order_of_the_calls(home: Path, tmp_path: Path) -> None:
    """Every transition: write, fsync(file), rename, fsync(directory), and only then it is said."""
    calls = record(home, "real", "live", tmp_path / "log")
    assert misorders(calls, home) == []
    words = {
        "write": "write",
        "fsync": "sync",
        "rename": "rename",
        "renameat": "rename",
        "renameat2": "rename",
    }
    order = [words[call.name] for call in calls if call.name in words]
    put = ["write", "sync", "rename", "sync"]
    say = ["write"]
    assert order == [*put, *say, "rename", "sync", *say, *put, *say, *put, *say]


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"real", "gap", "nothing"}))
def test_inv_02_the_checker_sees_a_bad_order(home: Path, tmp_path: Path, kind: str) -> None:
    """Negative control: each sabotaged store is caught by the same checker."""
    assert misorders(record(home, kind, "live", tmp_path / "log"), home)


def test_inv_03_random_sigkills(home: Path) -> None:
    """200 writers killed at random moments: no receipt is lost, torn or older than what was said."""
    done = run(child(home, "real", "200"))
    assert (done.stdout, done.returncode) == ("0\n", 0), done.stderr


def test_inv_03_random_sigkills_are_judged(home: Path) -> None:
    """Negative control: the judge of the random kills counts what a store that writes nothing has lost."""
    store = open_store(home)
    store.directory = KINDS["nothing"](store.directory.fd, str(home))
    assert lives_at_random(store, 1) > 0


def test_inv_04_never_without_a_receipt(store: Store, home: Path) -> None:
    """While jobs move from prepared to held, an observer without a lock finds each one every time."""
    for number in range(20):
        store.prepare(prepared(number))
    missed: list[int] = []
    looks = 0
    done = threading.Event()

    def watch() -> None:
        nonlocal looks
        reader = open_store(home)
        while not done.is_set():
            looks += 1
            missed.extend(n for n in range(20) if not isinstance(reader.find(job(n)), Receipt))
            missed.extend(n for n in range(20) if not reader.exists(job(n)))
        os.close(reader.directory.fd)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for number in range(20):
        store.running(prepared(number))
        store.exited(exited(number))
        store.finish(held(number))
    done.set()
    watcher.join()
    assert missed == []
    assert looks > 1


def test_inv_05_the_later_name_wins(store: Store, home: Path) -> None:
    """With every name of a job present, the last state is the truth."""
    states = [("prepared", prepared()), ("running", prepared()), ("exited", exited()), ("json", released())]
    for position, (suffix, receipt) in enumerate(states):
        put(home, 1, suffix, dumps(receipt))
        assert rank(store) == position + 1
    assert store.ids() == [job(1)]


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 300, dumps(released())[:-40], b"{}"], ids=["empty", "zero", "torn", "{}"]
)
@pytest.mark.parametrize("suffix", ["prepared", "running", "exited", "json"])
def test_inv_06_unreadable_is_reported(store: Store, home: Path, suffix: str, data: bytes) -> None:
    """An unreadable latest receipt is a finding, whatever older one is there, and survives pruning."""
    if suffix != "prepared":
        put(home, 1, "prepared", dumps(prepared()))
    put(home, 1, suffix, data)
    before = names(home)
    found = store.find(job(1))
    assert isinstance(found, Unreadable)
    assert found.name == f"{job(1)}.{suffix}"
    assert store.exists(job(1))
    assert store.ids() == [job(1)]
    assert store.prune(1e12, 0.0, 0) == 0
    assert names(home) == before


def test_inv_06_strange_files_are_unreadable(store: Store, home: Path) -> None:
    """A link, a FIFO, a directory, a giant or another job's receipt is a finding, and never hangs."""
    (home / f"{job(1)}.json").symlink_to("/etc/passwd")
    os.mkfifo(home / f"{job(2)}.json")
    (home / f"{job(3)}.json").mkdir()
    put(home, 4, "json", b" " * (2 << 20))
    put(home, 5, "json", dumps(released(6)))
    put(home, 7, "json", dumps(prepared(7)))
    reasons = [
        found.reason if isinstance(found, Unreadable) else found for found in map(store.find, store.ids())
    ]
    assert [str(reason).split(":")[0].split(" '")[0] for reason in reasons] == [
        "cannot be opened",
        "not a regular file",
        "not a regular file",
        "larger than 1048576 bytes",
        "speaks of another job",
        "its state",
    ]


@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EROFS"])
def test_inv_07_every_call_fails_once(home: Path, tmp_path: Path, error: str) -> None:
    """Each call of a life fails once: an error of ours or none, a readable state, and the store goes on."""

    def fail(at: tuple[int, Call]) -> int:
        place = tmp_path / f"{error}-{at[0]}"
        place.mkdir(mode=0o700)
        done = sabotage(place, "live", at[1], f"error={error}")
        assert done.returncode in (0, 3), (at, done.stderr)
        said = len(done.stdout.split()) - (2 if done.returncode else 0)
        store = open_store(place)
        assert rank(store) in (said, said + 1), (at, done)
        if not at[1].name.startswith(("unlink", "close")):
            assert not [name for name in names(place) if name.endswith(".tmp")], at
        with take(store.directory.fd, job(1)):
            store.finish(released())
        assert rank(store) == len(STATES) - 1
        os.close(store.directory.fd)
        return done.returncode

    codes = each(fail, list(enumerate(_faulty(record(home, "real", "live", tmp_path / "log")))))
    assert codes.count(3) > 20, "the faults were not felt"


def test_inv_07_every_call_of_a_reader_fails_once(home: Path, tmp_path: Path) -> None:
    """Listing, finding, a batch, pruning: any one call may fail, and held receipts are there all the same."""

    def fill(place: Path) -> None:
        place.mkdir(mode=0o700)
        put(place, 1, "json", dumps(released()))
        put(place, 2, "json", dumps(held(2)))
        put(place, 2, "running", dumps(prepared(2)))

    def fail(at: tuple[int, Call]) -> int:
        place = tmp_path / f"reader-{at[0]}"
        fill(place)
        done = sabotage(place, "look", at[1], "error=EIO")
        assert done.returncode in (0, 3), (at, done.stderr)
        store = open_store(place)
        assert store.find(job(2)) == held(2), at
        assert store.find(job(1)) in (released(), None), at
        os.close(store.directory.fd)
        return done.returncode

    fill(home / "model")
    codes = each(fail, list(enumerate(_faulty(record(home / "model", "real", "look", tmp_path / "log")))))
    assert codes.count(3) > 5, "the faults were not felt"


def _faulty(calls: list[Call]) -> list[Call]:
    # The host's pipe is not the store's affair.
    return [call for call in calls if not call.text.startswith("1<")]


def test_inv_07_a_full_disk(home: Path, store: Store) -> None:
    """RLIMIT_FSIZE stops the write for real, half-way: the old state stands and no temporary is left."""
    store.prepare(prepared())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(Unwritable) as caught:
            store.finish(released())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (caught.value.step, caught.value.name) == ("write", f"{job(1)}.json")
    assert "File too large" in str(caught.value)
    assert names(home) == [f"{job(1)}.prepared"]
