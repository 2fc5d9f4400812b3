"""What the verbs for one job share: its lock, its receipts' errors in our words, and old receipts."""

from __future__ import annotations

from contain.cli.main import complain
from contain.errors import ReceiptUnwritable
from contain.lifecycle import custody
from contain.lifecycle.custody import locked
from receipts import Duplicate, Unreadable, Unwritable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from receipts import Store

__all__ = ["carried", "locked", "prune_sometimes"]

PRUNE_ONE_IN = 64


def carried(job_id: str, carry: Callable[[], None]) -> None:
    """Carries a job whose lock is held. Raises DuplicateJob and ReceiptUnwritable for what the store says."""
    try:
        carry()
    except (Duplicate, Unwritable) as error:
        raise custody.in_our_words(job_id, error) from None


def prune_sometimes(store: Store, job_id: str) -> None:
    """Old receipts go now and then. What stands in the way is for the next one to meet: this job is done and said."""
    if hash(job_id) % PRUNE_ONE_IN:
        return
    try:
        custody.prune(store)
    except (Unreadable, Unwritable) as error:
        complain(
            ReceiptUnwritable(
                f"Old receipts could not be removed ({error}).",
                advice="Look at DIR.",
                state="The job has ended well.",
            )
        )
