"""The invariants of the store from number 8 on, and what its methods are not for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from receipts import Busy, Duplicate, Lock, Receipt, Store, check_id, dumps, take
from tests.receipts.lives import (
    STATES,
    exited,
    held,
    job,
    live,
    look,
    names,
    open_store,
    prepared,
    put,
    released,
)
from tests.receipts.tracing import misorders, record

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("suffix", ["prepared", "running", "exited", "json"])
def test_inv_08_a_used_id_is_refused(store: Store, home: Path, suffix: str) -> None:
    """Any receipt of the id, readable or not, and the next job of that id does not start."""
    put(home, 1, suffix, b"")
    with pytest.raises(Duplicate):
        store.prepare(prepared())
    assert names(home) == [f"{job(1)}.{suffix}"]
    store.prepare(prepared(2))
    assert store.find(job(2)) == prepared(2)


@pytest.mark.parametrize("suffix", ["prepared", "running", "exited", "json"])
def test_inv_08_a_used_id_cannot_be_claimed(store: Store, home: Path, suffix: str) -> None:
    """A claim is refused as prepare is, and leaves nothing behind."""
    put(home, 1, suffix, b"")
    with pytest.raises(Duplicate):
        store.claim(job(1))
    assert names(home) == [f"{job(1)}.{suffix}"]


def test_a_claim_is_no_receipt_and_becomes_one(store: Store, home: Path) -> None:
    """A claimed file has no name that counts; prepare fills just that file, and gives it its name."""
    store.claim(job(1))
    assert store.find(job(1)) is None
    assert store.ids() == []
    claimed = (home / f".{job(1)}.tmp").stat().st_ino
    store.prepare(prepared())
    assert names(home) == [f"{job(1)}.prepared"]
    assert (home / f"{job(1)}.prepared").stat().st_ino == claimed
    assert store.find(job(1)) == prepared()


def test_a_claim_that_is_given_up_leaves_nothing(store: Store, home: Path) -> None:
    """Disclaiming removes the file, and does nothing where there is none or where it became a receipt."""
    store.disclaim(job(1))
    store.claim(job(1))
    store.disclaim(job(1))
    assert names(home) == []
    store.claim(job(1))
    store.prepare(prepared())
    store.disclaim(job(1))
    assert names(home) == [f"{job(1)}.prepared"]


def test_inv_09_unknown_keys_survive(store: Store, home: Path) -> None:
    """A newer writer's keys, at the top and inside, are written back by the next transition."""
    text = dumps(exited()).replace(b'"core":false', b'"core":false,"oomGroup":[1,{"x":null}]')
    put(home, 1, "exited", text.replace(b'"version":1', b'"version":1,"seat":"b"'))
    found = store.find(job(1))
    assert isinstance(found, Receipt)
    store.finish(found.replace(state="released", empty=True))
    after = (home / f"{job(1)}.json").read_text()
    assert '"oomGroup":[1,{"x":null}]' in after
    assert '"seat":"b"' in after


def test_inv_10_only_released_is_pruned(store: Store, home: Path) -> None:
    """By age and by count; a held, a locked, a running one stay; locks and litter of the dead go."""
    for number in range(1, 6):
        store.finish(released(number, ended_at=1000.0 + number))
    store.finish(held(7))
    store.prepare(prepared(8))
    put(home, 9, "lock", b"")
    (home / f".{job(10)}.tmp").write_bytes(b"half")
    (home / f".{job(8)}.tmp").write_bytes(b"half")
    put(home, 1, "running", dumps(prepared()))
    (home / "note.txt").write_text("not ours")
    with take(store.directory.fd, job(2)):
        assert store.prune(1005.5, 2.0, 100) == 2  # 1 and 3: they ended 4.5 and 2.5 s ago; 2 is locked
    assert store.ids() == [job(number) for number in (2, 4, 5, 7, 8)]
    assert store.prune(1005.5, 1e9, 1) == 2
    # Job 8 has a receipt, so the lock that was taken to drop its litter stays.
    rest = {f"{job(5)}.json", f"{job(7)}.json", f"{job(8)}.prepared", f"{job(8)}.lock", "note.txt"}
    assert {path.name for path in home.iterdir()} == rest
    assert store.ids() == [job(5), job(7), job(8)]


def test_inv_11_a_batch_costs_one_sync(home: Path, tmp_path: Path) -> None:
    """Twenty receipts: twenty file syncs and one of the directory, before anything is said."""
    calls = record(home, "real", "batch", tmp_path / "log")
    synced = [call.text for call in calls if call.name == "fsync"]
    assert sum(text.endswith(f"<{home}>") for text in synced) == 1
    assert len(synced) == 21
    assert misorders(calls, home) == []


def test_inv_11_a_batch_ends_well_after_an_error(store: Store, home: Path) -> None:
    """What was written before an error in a batch is settled; batches do not nest."""
    store.prepare(prepared())
    with pytest.raises(KeyError), store.batch():  # noqa: PT012 - the state in between is the point
        store.finish(released())
        assert names(home) == [f"{job(1)}.json", f"{job(1)}.prepared"]
        with pytest.raises(RuntimeError), store.batch():
            pass
        raise KeyError
    assert names(home) == [f"{job(1)}.json"]
    assert store.open_batch is None


def test_inv_12_writers_hold_the_lock_and_readers_none(store: Store) -> None:
    """Everything can be read under somebody else's lock, and nobody else can have it."""
    lock = take(store.directory.fd, job(1))
    assert isinstance(lock, Lock)
    store.prepare(prepared())
    reader = open_store(store.path)
    assert reader.find(job(1)) == prepared()
    assert reader.ids() == [job(1)]
    with pytest.raises(Busy):
        take(reader.directory.fd, job(1))
    os.close(reader.directory.fd)
    lock.release()


def test_running_at_once(store: Store, home: Path) -> None:
    """Without a host in between, the first receipt may be the running one."""
    receipt = prepared().replace(state="running")
    store.prepare(receipt)
    assert names(home) == [f"{job(1)}.running"]
    assert store.find(job(1)) == receipt


def test_a_life_in_this_process(store: Store, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The states follow one another, one name at a time, private."""
    live(store)
    assert capfd.readouterr().out.split() == list(STATES[1:])
    assert names(home) == [f"{job(1)}.json"]
    assert (home / names(home)[0]).stat().st_mode & 0o777 == 0o600
    assert store.find(job(1)) == released()
    look_at = open_store(home)
    look_at.finish(held(2))
    look(look_at)
    assert capfd.readouterr().out == "pruned 1\n"
    os.close(look_at.directory.fd)


@pytest.mark.parametrize("state", ["exited", "released", "held"])
def test_a_state_under_the_wrong_method(store: Store, home: Path, state: str) -> None:
    """A receipt goes only through the door of its state."""
    with pytest.raises(ValueError, match="not written here"):
        store.prepare(prepared().replace(state=state))
    assert names(home) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "../" + "a" * 33,
        job(1).upper().replace("8", "A"),
        job(1) + "\n",
        job(1).replace("-", ""),
        "é" * 36,
    ],
)
def test_an_id_is_a_canonical_uuid(store: Store, text: str) -> None:
    """An id becomes a file name: anything else is refused by every door."""
    for door in (check_id, store.find, store.exists, lambda job_id: take(store.directory.fd, job_id)):
        with pytest.raises(ValueError, match="not a job id"):
            door(text)
    with pytest.raises(ValueError, match="not a job id"):
        store.finish(released().replace(id=text))


def test_an_odd_umask_locks_nobody_out(store: Store, home: Path) -> None:
    """A job's umask may take our own bits: the receipt and its lock are 0600 all the same."""
    before = os.umask(0o777)
    try:
        with take(store.directory.fd, job(1)):
            store.prepare(prepared())
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in home.iterdir()} == {0o600}
