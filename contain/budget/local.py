"""The budget adapter on the registry of this machine: binds the proof to the permit, and returns it on evidence."""

from __future__ import annotations

import os

from contain.budget import nested
from contain.errors import LockUnavailable, RegistryDamaged
from receipts import encode, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Generator

    from contain.backend import Event
    from contain.budget.nested import Outer
    from contain.budget.queue.desk import Desk
    from contain.budget.tenure import Tenure
    from receipts import Receipt


class LocalAdapter:
    """One permit's adapter. Satisfies contain.adapter.BudgetAdapter."""

    at_once = True

    def __init__(self, desk: Desk, permit_id: str, receipts_path: str, tenure: Tenure | None = None) -> None:
        """``receipts_path`` is where the job's receipt will be."""
        self._desk = desk
        self._tenure = tenure
        self._permit_id = permit_id
        self._receipts_path = receipts_path

    def bind(self, receipt: Receipt) -> Generator[float | None, Event, Event | None]:
        """Binds at once. Raises PermitLost where the permit went to somebody else meanwhile."""
        assert receipt.proof is not None  # only a proven containment can be bound
        yield from ()
        proof = jsontext.dumps(encode(receipt.proof))
        self._desk.bind(self._permit_id, proof, self._receipts_path, receipt.id)
        if self._tenure is not None:
            self._tenure.prove(receipt.proof)
        return None

    def release(self, receipt: Receipt) -> None:
        """The receipt is durable and says released and empty: the permit returns in this moment."""
        if receipt.empty is True:
            try:
                self._desk.release(self._permit_id, "its receipt says released, empty")
            except (RegistryDamaged, LockUnavailable) as error:
                # How the command ended stays the truth, and its receipt is the evidence: whoever repairs the registry,
                # or looks at it next, sees that owner and tree are gone.
                self._desk.registry.say(f"the permit could not be returned yet: {error}")


class OuterAdapter:
    """A nested job's: the permit is its outer job's, and stays there. Satisfies contain.adapter.BudgetAdapter."""

    at_once = True

    def __init__(self, outer: Outer, connection: socket) -> None:
        """``outer`` has answered on ``connection``; what was drawn for us is drawn as long as that stands."""
        self._outer = outer
        self._connection = connection
        self._name: str | None = None

    def bind(self, receipt: Receipt) -> Generator[float | None, Event, Event | None]:
        """What runs inside this job can ask the outer wrapper too, even with an environment of its own."""
        assert receipt.proof is not None  # a prepared containment has one
        yield from ()
        folder, name = os.path.split(self._outer.path)
        self._name = nested.name_again(folder, name, receipt.proof)
        return None

    def release(self, receipt: Receipt) -> None:  # noqa: ARG002 - BudgetAdapter
        """What was drawn besides returns, and the name goes."""
        self._connection.close()
        if self._name is not None:
            nested.forget_name(os.path.dirname(self._outer.path), self._name)
