"""The longest times that a host may ask for are times like any other: nothing overflows, a cancel still ends all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import contain
from tests.serving import Served
from tests.session import Session

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_MS = 2**31 - 1
LONG: dict[str, Any] = {"graceMs": LONGEST_MS, "killMs": LONGEST_MS, "timeoutMs": LONGEST_MS}
LEAVES = ("sh", "-c", "sleep 60 & exit 3")


def test_in_a_run(receipts: Path) -> None:
    """Leftovers may live for some weeks, and twice as long."""
    with Session(receipts) as session:
        session.start(*LEAVES, **LONG)
        session.until("exited")
        session.cancel()
        session.cancel(graceMs=0)
        last = session.finish()
    assert (last["event"], last["outcome"]["code"]) == ("released", 3)


def test_in_a_serve(receipts: Path) -> None:
    """The same beside others."""
    with Served(receipts) as served:
        job_id = served.start(*LEAVES, **LONG)
        served.until("exited", job_id)
        served.cancel(job_id)
        served.until("released", served.start("true"))
        served.cancel(job_id, graceMs=0)
        assert served.until("released", job_id)["outcome"]["code"] == 3


def test_in_the_api(receipts: Path) -> None:
    """Longer than that is as long as that."""
    with contain.start(LEAVES, grace_s=1e300, kill_s=float("inf"), timeout=1e9, receipts=receipts) as job:
        job.cancel()
        job.cancel(0)
        assert job.wait().receipt.empty is True
