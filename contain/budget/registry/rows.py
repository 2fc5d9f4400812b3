"""What stands in the registry for one request: the arbiter's fact, its owner, and what the owner waits for."""

from __future__ import annotations

from contain.backend import Birth
from contain.budget.arbiter import Permit, Ticket
from receipts import Record, fields, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

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


MEMO = 4096
"""What was read is made once: the same thousand tickets are there in every transaction."""

_texts: dict[tuple[type[Record], str], Record] = {}
_permits: dict[tuple[Any, ...], PermitRow] = {}

TICKET_KEY = "id, seq, dormant, since_s, returned"
"""What may change of a ticket, and what names it: two rows that agree in these are the same."""
TICKET_COLUMNS = f"{TICKET_KEY}, session, holder, asked, owner, wake, until_s"
PERMIT_COLUMNS = (
    "id, seq, permit, asked, owner, wake, since_s, state_s, until_s, returned, proof, receipts, job_id"
)


def marks(columns: str) -> str:
    """A question mark for each, as a statement has it for what is to be written."""
    return ", ".join("?" for _ in columns.split(","))


def ticket_row(columns: tuple[Any, ...]) -> TicketRow:
    """The row of ``TICKET_COLUMNS``. Raises ValueError or TypeError for what is not one of ours."""
    ticket_id, seq, dormant, since_s, returned, session, holder, asked, owner, wake, until_s = columns
    ticket = loads(Ticket, asked).replace(
        id=ticket_id, seq=seq, session=session, holder=holder, dormant=bool(dormant)
    )
    born = loads(Birth, owner)
    return TicketRow(
        ticket=ticket, owner=born, wake=wake, since_s=since_s, until_s=until_s, returned=returned
    )


def ticket_columns(row: TicketRow, seq: int | None, *, dormant: bool) -> tuple[Any, ...]:
    """``TICKET_COLUMNS`` of a row; ``seq`` None: the next one.

    ``asked`` is what tickets of one class have in common: a thousand of them are decoded once.
    """
    asked = row.ticket
    shared = dumps(asked.replace(id="", seq=0, session="", holder="", dormant=False))
    return (
        *(asked.id, seq, int(dormant), row.since_s, row.returned, asked.session, asked.holder),
        *(shared, dumps(row.owner), row.wake, row.until_s),
    )


def permit_row(columns: tuple[Any, ...]) -> PermitRow:
    """The row of ``PERMIT_COLUMNS``. Raises ValueError or TypeError for what is not one of ours."""
    found = _permits.get(columns)
    if found is None:
        _, _, permit, asked, owner, wake, since_s, state_s, until_s, returned, proof, receipts, job_id = (
            columns
        )
        found = PermitRow(
            permit=loads(Permit, permit),
            ticket=loads(Ticket, asked),
            owner=loads(Birth, owner),
            wake=wake,
            since_s=since_s,
            state_s=state_s,
            until_s=until_s,
            returned=returned,
            proof=proof,
            receipts=receipts,
            job_id=job_id,
        )
        _remember(_permits, columns, found)
    return found


def permit_columns(row: PermitRow) -> tuple[Any, ...]:
    """``PERMIT_COLUMNS`` of a row."""
    permit = row.permit
    return (
        *(permit.id, permit.seq, dumps(permit), dumps(row.ticket), dumps(row.owner), row.wake),
        *(row.since_s, row.state_s, row.until_s, row.returned, row.proof, row.receipts, row.job_id),
    )


def _remember(memo: dict[Any, Any], key: object, value: Record) -> None:
    if len(memo) >= MEMO:
        memo.clear()
    memo[key] = value


def dumps(record: Record) -> str:
    """A record of plain values as JSON, always in the order of its fields; tuples as arrays."""
    return jsontext.dumps({name: getattr(record, name) for name in fields(record)})


def loads(cls: type[R], text: str) -> R:
    """The record again. Raises ValueError or TypeError for a text that is not one of ours."""
    found = _texts.get((cls, text))
    if found is None:
        document = jsontext.loads(text)
        if not isinstance(document, dict):
            raise ValueError("an object is due")
        found = cls(**{name: _tupled(value) for name, value in document.items()})
        _remember(_texts, (cls, text), found)
    return found  # type: ignore[return-value]


def _tupled(value: object) -> object:
    return tuple(_tupled(item) for item in value) if isinstance(value, list) else value
