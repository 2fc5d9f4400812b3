"""What the verbs for one job share: its lock, its receipts' errors in our words, and old receipts."""

from __future__ import annotations

import time

from contain.cli.main import complain
from contain.errors import DuplicateJob, JobBusy, ReceiptUnwritable
from receipts import Busy, Duplicate, Unreadable, Unwritable, take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from receipts import Lock, Place, Store

PRUNE_ONE_IN = 64
KEEP_S = 30 * 24 * 3600.0
KEEP_COUNT = 10_000


def locked(place: Place, job_id: str) -> Lock:
    """The lock of a job. Raises JobBusy and ReceiptUnwritable."""
    try:
        return take(place.fd, job_id)
    except Busy as busy:
        holder = "another process" if busy.holder_pid is None else f"process {busy.holder_pid}"
        raise JobBusy(
            f"The job {job_id} is in the hands of {holder}.", advice="Wait for it, or choose a new id."
        ) from None
    except Unwritable as error:
        raise ReceiptUnwritable(str(error), advice="Free space there, or give another DIR.") from None


def carried(job_id: str, carry: Callable[[], None]) -> None:
    """Carries a job whose lock is held. Raises DuplicateJob and ReceiptUnwritable for what the store says."""
    try:
        carry()
    except Duplicate:
        raise DuplicateJob(
            f"The id {job_id} has a receipt already.",
            advice="Choose a new id for every job; contain inspect shows the old one.",
            state="Nothing of the new job ran.",
        ) from None
    except Unwritable as error:
        raise ReceiptUnwritable(
            f"A receipt could not be written ({error}).", advice="Free space there, or give another DIR."
        ) from None


def prune_sometimes(store: Store, job_id: str) -> None:
    """Old receipts go now and then. What stands in the way is for the next one to meet: this job is done and said."""
    if hash(job_id) % PRUNE_ONE_IN:
        return
    try:
        store.prune(time.time(), KEEP_S, KEEP_COUNT)
    except (Unreadable, Unwritable) as error:
        complain(
            ReceiptUnwritable(
                f"Old receipts could not be removed ({error}).",
                advice="Look at DIR.",
                state="The job has ended well.",
            )
        )
