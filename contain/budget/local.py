"""The budget adapter on the registry of this machine: binds the proof to the permit, and returns it on evidence."""

from __future__ import annotations

from receipts import encode, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from contain.backend import Event
    from contain.budget.queue.desk import Desk
    from receipts import Receipt


class LocalAdapter:
    """One permit's adapter. Satisfies contain.adapter.BudgetAdapter."""

    at_once = True

    def __init__(self, desk: Desk, permit_id: str, receipts_path: str) -> None:
        """``receipts_path`` is where the job's receipt will be."""
        self._desk = desk
        self._permit_id = permit_id
        self._receipts_path = receipts_path

    def bind(self, receipt: Receipt) -> Generator[float | None, Event, Event | None]:
        """Binds at once. Raises PermitLost where the permit went to somebody else meanwhile."""
        assert receipt.proof is not None  # only a proven containment can be bound
        yield from ()
        proof = jsontext.dumps(encode(receipt.proof))
        self._desk.bind(self._permit_id, proof, self._receipts_path, receipt.id)
        return None

    def release(self, receipt: Receipt) -> None:
        """The receipt is durable and says released and empty: the permit returns in this moment."""
        if receipt.empty is True:
            self._desk.release(self._permit_id, "its receipt says released, empty")
