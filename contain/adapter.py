"""The budget adapter: what stands between ``prepared`` and the gate.

An adapter binds the proof of a containment to a permit, durably, *then* lets the gate open; and takes the permit
back on evidence that the tree is gone. In this version the host is the only adapter (``contain.lifecycle.host``):
it binds on its own side and says ``go``. ``NoBudget`` is for jobs that nobody counts.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Protocol

    from contain.backend import Event
    from receipts import Receipt
else:
    Protocol = object


class BudgetAdapter(Protocol):
    """Binds permits to proofs.

    ``at_once``: nobody outside binds on a receipt that he reads, so ``prepared`` and ``running`` are one write, made
    after the permit is bound and before the gate opens.
    """

    at_once: bool

    def bind(self, receipt: Receipt) -> Generator[float | None, Event, Event | None]:
        """Binds ``receipt.permit_id`` to ``receipt.proof``; returns None when that is durable, else what came between.

        A generator: it yields until when it wants to wait (monotonic seconds, None for ever) and is sent events.
        """

    def release(self, receipt: Receipt) -> None:
        """The permit may return: ``receipt`` is durable and says ``released``, empty."""


class NoBudget:
    """No permit is needed, and none returns. Satisfies BudgetAdapter."""

    at_once = True

    def bind(self, receipt: Receipt) -> Generator[float | None, Event, Event | None]:  # noqa: ARG002 - BudgetAdapter
        """Returns at once."""
        yield from ()
        return None

    def release(self, receipt: Receipt) -> None:
        """Nothing was taken."""
