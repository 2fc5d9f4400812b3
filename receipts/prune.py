"""Finished receipts do not pile up: which ones go, and in which order of file calls."""

from __future__ import annotations

from receipts.disk import Unwritable
from receipts.facts import RELEASED, Receipt
from receipts.lock import Busy, Lock, take
from receipts.names import LOCK, MOVES, TEMPORARY, name_of, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from receipts.disk import Directory
    from receipts.store import Store


def prune(store: Store, now: float, max_age_s: float, max_count: int) -> int:
    """See `Store.prune`. Fails closed: what is locked, held or not understood stays."""
    kinds: dict[str, set[str]] = {}
    for name in store.directory.names():
        parsed = parse(name)
        if parsed:
            kinds.setdefault(parsed[0], set()).add(parsed[1])
    _sweep(store, {job_id for job_id, found in kinds.items() if TEMPORARY in found or found == {LOCK}})
    released = [
        (ended, job_id)
        for job_id, found in kinds.items()
        if "json" in found and (ended := _released_at(store, job_id)) is not None
    ]
    released.sort(reverse=True)
    old = [
        job_id
        for rank, (ended, job_id) in enumerate(released)
        if rank >= max_count or now - ended > max_age_s
    ]
    locks = [lock for job_id in old if (lock := _try(store, job_id))]
    try:
        return _remove(store, locks)
    finally:
        for lock in locks:
            lock.release()


def _released_at(store: Store, job_id: str) -> float | None:
    """Return when a job ended, in seconds since the epoch, or None where it is not released."""
    receipt = store.find(job_id)
    if not isinstance(receipt, Receipt) or receipt.state != RELEASED:
        return None
    return receipt.created_at if receipt.ended_at is None else receipt.ended_at


def _try(store: Store, job_id: str) -> Lock | None:
    try:
        return take(store.directory.fd, job_id)
    except (Busy, Unwritable):
        return None  # somebody is at work on it, or nothing can be changed here: another time


def _sweep(store: Store, job_ids: set[str]) -> None:
    """Remove temporaries and lock files of writers that died before they had a receipt."""
    for job_id in sorted(job_ids):
        lock = _try(store, job_id)
        if lock is None:
            continue
        with lock:
            store.directory.drop(name_of(job_id, TEMPORARY))
            if not store.exists(job_id):
                lock.remove()


def _remove(store: Store, locks: list[Lock]) -> int:
    # Under the locks the look from before counts no more: a job may have been finished otherwise since.
    sure = [lock for lock in locks if _released_at(store, lock.job_id) is not None]
    directory = store.directory
    # An older name that outlived its successor would be a running job again after a power loss: it goes
    # first, for good.
    dropped = [directory.drop(name_of(lock.job_id, older)) for lock in sure for older in MOVES[:-1]]
    if any(dropped):
        directory.sync_names()
    removed = 0
    for lock in sure:
        if _is_alone(directory, lock.job_id) and directory.drop(name_of(lock.job_id, MOVES[-1])):
            removed += 1
            lock.remove()
    return removed


def _is_alone(directory: Directory, job_id: str) -> bool:
    """Say whether the last receipt is the only one; no, where the file system does not answer."""
    try:
        return not any(directory.has(name_of(job_id, suffix)) for suffix in MOVES[:-1])
    except OSError:
        return False
