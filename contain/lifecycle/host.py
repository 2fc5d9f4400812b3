"""The host as a source of events and as the budget adapter: it binds on its side, and says ``go``."""

from __future__ import annotations

from contain.backend import Drained, Event, SetupBroke
from contain.errors import BadToken, ContainError, ProtocolViolation
from contain.job import Abort
from contain.protocol import parse_action

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator

    from contain.protocol import Request
    from receipts import Receipt


class Go(Event):
    """The host says that the permit is bound."""


class Ended(Event):
    """Somebody wants the job to end."""

    abort: Abort


class Violated(Event):
    """The host broke the protocol, or does not know the token: the job is not safe in its hands."""

    error: ContainError


def host_event(line: bytes, request: Request) -> Event:
    """The event that a line of the host stands for."""
    try:
        abort = parse_action(line, request)
    except (BadToken, ProtocolViolation) as error:
        return Violated(error=error)
    return Go() if abort is None else Ended(abort=abort)


class HostAdapter:
    """The budget adapter of ``contain run``: satisfies contain.adapter.BudgetAdapter."""

    at_once = False

    def bind(self, receipt: Receipt) -> Generator[float | None, Event, Event | None]:
        """Waits for the host's word on ``receipt``, for ever: a host that dies is an EOF. None means go."""
        assert receipt.proof is not None  # only a proven containment can be bound
        while True:
            event = yield None
            if isinstance(event, Go):
                return None
            if isinstance(event, (Ended, Violated, Drained, SetupBroke)):
                return event

    def release(self, receipt: Receipt) -> None:
        """The host reads the final reply, which is said when the receipt is durable."""
