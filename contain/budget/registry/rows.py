"""What stands in the registry for one request: the arbiter's fact, its owner, and what the owner waits for."""

from __future__ import annotations

from contain.backend import Birth
from contain.budget.arbiter import Permit, Ticket
from receipts import Record, fields, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    R = TypeVar("R", bound=Record)


class TicketRow(Record):
    """A waiting request. Times in awake seconds."""

    ticket: Ticket
    owner: Birth
    wake: str = ""
    """Path of the owner's FIFO, relative to the registry; empty for an owner that only looks."""
    since_s: float
    until_s: float | None = None
    """When it gives up; None: never."""
    returned: int = 0
    """How often it came back to its place from a grant that its owner did not take."""


class PermitRow(Record):
    """A granted request. ``state_s``: when it came into its state."""

    permit: Permit
    owner: Birth
    wake: str = ""
    since_s: float
    state_s: float
    until_s: float | None = None
    returned: int = 0
    proof: str | None = None
    """The containment that it is bound to, as JSON of the receipt's proof."""
    receipts: str | None = None
    """The directory of the job's receipt; its id is the job's."""
    job_id: str | None = None
    ticket: Ticket
    """As it was asked, so that it can go back to its place."""

    def replace_ticket(self, ticket: Ticket, since_s: float) -> TicketRow:
        """Another request of the same owner, who does not wait for it."""
        return TicketRow(ticket=ticket, owner=self.owner, since_s=since_s)


_memo: dict[tuple[type[Record], str], Record] = {}
MEMO = 4096
"""A row's text is decoded once: the same thousand tickets are read in every transaction."""


def dumps(record: Record) -> str:
    """A flat record as JSON; tuples as arrays."""
    return jsontext.dumps({name: _plain(getattr(record, name)) for name in fields(record)})


def _plain(value: object) -> object:
    if isinstance(value, Record):
        return {name: _plain(getattr(value, name)) for name in fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def loads(cls: type[R], text: str) -> R:
    """The record again. Raises ValueError or TypeError for a text that is not one of ours."""
    found = _memo.get((cls, text))
    if found is None:
        document = jsontext.loads(text)
        if not isinstance(document, dict):
            raise ValueError("an object is due")
        found = cls(**{name: _tupled(value) for name, value in document.items()})
        if len(_memo) >= MEMO:
            _memo.clear()
        _memo[cls, text] = found
    return found  # type: ignore[return-value]


def _tupled(value: object) -> object:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
