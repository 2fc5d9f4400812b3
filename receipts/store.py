r"""The store of receipts: one directory, one job = one receipt, the state in the file's name.

Invariants (each has a test of its number in tests/receipts/test_store.py):

  1  A name is made by rename only, so a receipt is there whole or not at all.
  2  A file's data is on disk before its name: write, fsync(file), rename, fsync(directory), in this order.
  3  When a method returns, its state survives SIGKILL and power loss; inside `batch()`, when the batch ends.
  4  From `prepare` to `prune` a job is never without a receipt: the newer name comes before the older goes.
  5  Of several names the later state wins; older ones are litter that a crash may leave or bring back.
  6  An unreadable latest receipt is reported: never hidden by an older one, never dropped, never pruned.
  7  A refused call leaves the older state readable and no temporary that counts.
  8  One id, one job: `prepare` refuses an id that has any receipt.
  9  What a reader does not know it writes back.
 10  Only `released` is ever pruned, under the lock of its job.
 11  The receipts of a batch cost one directory sync.
 12  What changes a job is called by the holder of its lock (`receipts.lock.take`); readers need none.

States (names in brackets; `held` returns to itself, or becomes released when somebody finishes the job):

    prepare ----> prepared -------> running -------> exited -------> released | held
           \    [<id>.prepared]   [<id>.running]   [<id>.exited]      [<id>.json]
            \_______________________^    \______________________________^
              (running at once: no         (the usual way: the tree was
               host waits between)          drained at once)

    transition                   method    file calls
    nothing  -> nothing          claim     create .tmp: an empty file under a name that is no receipt
    nothing  -> prepared|running prepare   write .tmp, fsync, rename, fsync directory
    prepared -> running          running   rename, fsync directory
    any      -> exited           exited    write .tmp, fsync, rename, fsync directory, unlink older names
    any      -> released|held    finish    the same
    released -> nothing          prune     unlink older names, [fsync directory], unlink, unlink the lock

What may be trusted: in [prepared] no command has run, whatever else is known. In [running] it may have run.
In [exited] the outcome is the truth and the tree may live. In [json] the last word is `state` and `empty`.
"""

from __future__ import annotations

import os

from receipts import prune as pruning
from receipts.batch import Batch
from receipts.codec import Unreadable, dumps, loads
from receipts.disk import Directory, Unwritable
from receipts.facts import EXITED, HELD, PREPARED, RELEASED, RUNNING, Receipt
from receipts.names import LOCK, MOVES, TEMPORARY, check_id, name_of, parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

_STATES_OF: Final = {
    "prepared": (PREPARED,),
    "running": (PREPARED, RUNNING),  # a renamed file still says what it was written as
    "exited": (EXITED,),
    "json": (RELEASED, HELD),
}


class Duplicate(Exception):
    """The id has a receipt already: a used id is never used again."""


class Store:
    """The receipts of one directory. Not for several threads at once while a batch is open."""

    def __init__(self, dir_fd: int, path: str, *, full: bool = False) -> None:
        """Borrow `dir_fd` (see `receipts.place`); `path` is for messages; `full` is of `disk.Directory`."""
        self.directory = Directory(dir_fd, path, full=full)
        self.path = path
        self.open_batch: Batch | None = None
        self._claimed: dict[str, int] = {}

    def claim(self, job_id: str) -> None:
        """Make the file of the job's first receipt, still empty and without a name that counts.

        It saves `prepare` that time, where there is something to wait for. Raises `Duplicate` and `Unwritable`.
        """
        self._refuse_used(job_id)
        self._claimed[job_id] = self.directory.create(name_of(job_id, TEMPORARY))

    def disclaim(self, job_id: str) -> None:
        """Drop what was claimed and not prepared, if anything."""
        fd = self._claimed.pop(job_id, None)
        if fd is not None:
            os.close(fd)
            self.directory.drop(name_of(job_id, TEMPORARY))

    def prepare(self, receipt: Receipt) -> None:
        """Write the first receipt of a job: state prepared, or running where no host waits between the two.

        Raises `Duplicate` where the id has any receipt, `Unwritable` where the file system refuses.
        """
        suffix = _suffix(receipt, "prepared", "running")
        if receipt.id not in self._claimed:
            self._refuse_used(receipt.id)
        self._put(receipt, suffix)

    def running(self, receipt: Receipt) -> Receipt:
        """Rename prepared to running and return the receipt as it stands now.

        Nothing else of `receipt` is written: what was prepared is what runs. Raises `Unwritable`.
        """
        check_id(receipt.id)
        self.directory.rename(name_of(receipt.id, "prepared"), name_of(receipt.id, "running"))
        self._settle([])
        return receipt.replace(state=RUNNING)

    def exited(self, receipt: Receipt) -> None:
        """Write the outcome of a job whose tree may live on. Raises `Unwritable`."""
        self._put(receipt, _suffix(receipt, "exited"))

    def finish(self, receipt: Receipt) -> None:
        """Write the last state, released or held; a held one may be finished again. Raises `Unwritable`."""
        self._put(receipt, _suffix(receipt, "json"))

    def batch(self) -> Batch:
        """Return a context in which many receipts cost one directory sync."""
        return Batch(self)

    def find(self, job_id: str) -> Receipt | Unreadable | None:
        """Return the latest receipt of a job; None only where there is none at all.

        A latest that cannot be understood comes back as an `Unreadable`: a finding, and it counts as held.
        """
        check_id(job_id)
        latest: Receipt | Unreadable | None = None
        # In the order in which a job moves: the other way round a move under our eyes would be missed twice.
        for suffix in MOVES:
            data = self.directory.read(name_of(job_id, suffix))
            if data is not None:
                latest = data if isinstance(data, Unreadable) else _understand(job_id, suffix, data)
        return latest

    def exists(self, job_id: str) -> bool:
        """Say whether a job has a receipt, readable or not; yes where the file system does not answer."""
        try:
            return bool(self._standing(job_id))
        except OSError:
            return True

    def ids(self) -> list[str]:
        """Return the ids that have a receipt, sorted, from one listing; `Unreadable` where it is refused."""
        found = [parsed for parsed in map(parse, self.directory.names()) if parsed]
        sure = {job_id for job_id, suffix in found if suffix in MOVES}
        # A name that moves while the directory is read may be missed under both names (readdir(3)); its lock
        # stays put.
        doubtful = {job_id for job_id, suffix in found if suffix in (LOCK, TEMPORARY)} - sure
        return sorted(sure | {job_id for job_id in doubtful if self.exists(job_id)})

    def prune(self, now: float, max_age_s: float, max_count: int) -> int:
        """Remove old released receipts and the litter of dead writers; return how many receipts went.

        `now` in seconds since the epoch. Those that ended more than `max_age_s` ago go, and all but the
        newest `max_count`. Held and unreadable ones stay, and whatever is locked. Raises `Unreadable` where
        the directory cannot be listed, `Unwritable` where a sync is refused.
        """
        return pruning.prune(self, now, max_age_s, max_count)

    def _refuse_used(self, job_id: str) -> None:
        try:
            used = self._standing(job_id)
        except OSError as error:
            raise Unwritable.of(error, "look", job_id) from error
        if used:
            raise Duplicate(f"{job_id} has a receipt already: {used[-1]}")

    def _put(self, receipt: Receipt, suffix: str) -> None:
        job_id = check_id(receipt.id)
        temporary, claimed = name_of(job_id, TEMPORARY), self._claimed.pop(job_id, None)
        self.directory.put(name_of(job_id, suffix), temporary, dumps(receipt), claimed)
        self._settle([name_of(job_id, older) for older in MOVES[: MOVES.index(suffix)]])

    def _settle(self, replaced: list[str]) -> None:
        if self.open_batch is None:
            self.directory.settle(replaced)
        else:
            self.open_batch.put_off(replaced)

    def _standing(self, job_id: str) -> list[str]:
        check_id(job_id)
        return [name for name in (name_of(job_id, suffix) for suffix in MOVES) if self.directory.has(name)]


def _suffix(receipt: Receipt, *allowed: str) -> str:
    for suffix in allowed:
        if receipt.state in _STATES_OF[suffix]:
            return suffix
    raise ValueError(f"a receipt in state {receipt.state!r} is not written here")


def _understand(job_id: str, suffix: str, data: bytes) -> Receipt | Unreadable:
    name = name_of(job_id, suffix)
    try:
        receipt = loads(data)
    except Unreadable as error:
        return Unreadable(error.reason, name)
    if receipt.id != job_id:
        return Unreadable("speaks of another job", name)
    if receipt.state not in _STATES_OF[suffix]:
        return Unreadable(f"its state {receipt.state!r} does not belong under this name", name)
    return receipt.replace(state=RUNNING) if suffix == "running" else receipt
