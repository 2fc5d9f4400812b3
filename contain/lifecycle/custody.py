"""A job's receipt in our hands: its directory, its lock, and what the store refuses, in our words."""

from __future__ import annotations

import errno
import time

from contain.errors import DuplicateJob, JobBusy, ReceiptUnwritable, SetupFailed, TooManyJobs, UnsafePlace
from receipts import Busy, Duplicate, Store, Unsafe, Unwritable, open_place, take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.backend import Backend
    from receipts import Lock, Place

KEEP_S = 30 * 24 * 3600.0
KEEP_COUNT = 10_000


def opened(path: str | None, backend: Backend, *, create: bool) -> tuple[Place, Store]:
    """The directory of receipts and its store; None is the account's own. Raises UnsafePlace.

    ``note`` of the place, where there is one, is the caller's to say.
    """
    try:
        place = open_place(path, statfs_type=backend.file_system_magic, create=create)
    except Unsafe as unsafe:
        raise UnsafePlace(
            f"{unsafe.message}.",
            detail=unsafe.reason,
            advice=f"{unsafe.advice}.",
            state=None if create else "",
        ) from None
    return place, Store(place.fd, place.path)


def locked(place: Place, job_id: str) -> Lock:
    """The lock of a job. Raises JobBusy, ReceiptUnwritable and TooManyJobs."""
    try:
        return take(place.fd, job_id)
    except Busy as busy:
        holder = "another process" if busy.holder_pid is None else f"process {busy.holder_pid}"
        raise JobBusy(
            f"The job {job_id} is in the hands of {holder}.", advice="Wait for it, or choose a new id."
        ) from None
    except Unwritable as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise no_descriptors() from None
        raise ReceiptUnwritable(str(error), advice="Free space there, or give another DIR.") from None


def in_our_words(job_id: str, error: Exception) -> Exception:
    """What ``Life.run`` raised: DuplicateJob, ReceiptUnwritable or TooManyJobs; anything else stays what it is."""
    if isinstance(error, Duplicate):
        return DuplicateJob(
            f"The id {job_id} has a receipt already.",
            advice="Choose a new id for every job; contain inspect shows the old one.",
            state="Nothing of the new job ran.",
        )
    if isinstance(error, Unwritable | OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return no_descriptors()
    if isinstance(error, Unwritable):
        return ReceiptUnwritable(
            f"A receipt could not be written ({error}).", advice="Free space there, or give another DIR."
        )
    return error


def no_descriptors() -> TooManyJobs:
    """The process has no descriptor left for one more job."""
    return TooManyJobs(
        "There is no file descriptor left for one more job.",
        detail="open-files",
        advice="Wait until a job has ended, or raise the hard limit of open files (ulimit -Hn).",
    )


def no_thread(error: RuntimeError) -> SetupFailed:
    """The process may start no thread to carry its jobs."""
    return SetupFailed(
        f"The thread that carries this process's jobs cannot be started ({error}).",
        step="engine",
        advice="Raise ulimit -u or the pids limit of this cgroup; in a container, use a seccomp profile that answers"
        " clone3 (Docker 20.10.10 or later).",
    )


def prune(store: Store) -> int:
    """Removes finished receipts that are old or too many; how many went. Raises Unreadable and Unwritable."""
    return store.prune(time.time(), KEEP_S, KEEP_COUNT)
