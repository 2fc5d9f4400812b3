"""What is left of a job that is over: how its command ended, what it took, what it printed."""

from __future__ import annotations

from contain.errors import CommandFailed, CommandTimedOut, SetupFailed
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, ClassVar

    from contain.api.contained import Contained
    from receipts import Leftovers, Outcome, Receipt, Usage


class Finished(Record):
    """A job whose tree is gone, as proven as ``receipt`` says: made only of one that is released.

    ``stdout`` and ``stderr`` are what was captured: bytes, or text where that was asked for; else None.
    """

    _secret: ClassVar[tuple[str, ...]] = ("args", "stdout", "stderr")

    args: tuple[str, ...]
    receipt: Receipt
    stdout: Any = None
    stderr: Any = None

    @property
    def id(self) -> str:
        """Of the job, and of its receipt."""
        return self.receipt.id

    @property
    def outcome(self) -> Outcome:
        """How the command ended."""
        assert self.receipt.outcome is not None  # a released receipt has one
        return self.receipt.outcome

    @property
    def usage(self) -> Usage | None:
        """What it took; None where what leads it was killed before it could say."""
        return self.receipt.usage

    @property
    def leftovers(self) -> Leftovers | None:
        """What outlived the command, and was ended with the containment."""
        return self.receipt.leftovers

    @property
    def returncode(self) -> int:
        """As `subprocess` has it: the exit code, or minus the signal's number."""
        return self.outcome.returncode

    def check(self) -> Finished:
        """This, where the command ended by itself with 0. Raises CommandFailed, or CommandTimedOut."""
        if self.outcome.cause == "timed-out":
            raise CommandTimedOut(self.args[0], self)
        if not self.outcome.succeeded:
            raise CommandFailed(self.args[0], self)
        return self


def finished(contained: Contained, args: Sequence[str]) -> Finished:
    """Of a job that is over. Raises what went wrong with it: ContainmentHeld, ReceiptUnwritable, SetupFailed, ...

    A command that could not be executed is the OSError that it would have been with `subprocess`.
    """
    if contained.error is not None:
        raise contained.error.with_traceback(None)
    receipt = contained.receipt
    assert receipt is not None  # a job that is over without an error has one
    assert receipt.outcome is not None  # the same
    outcome = receipt.outcome
    if outcome.cause == "exec-failed" and outcome.errno is not None:
        raise OSError(outcome.errno, outcome.detail, args[0])
    if outcome.cause == "setup-failed":
        raise SetupFailed(
            f"The launch failed at step {outcome.step} ({outcome.detail}).",
            step=outcome.step,
            advice="The step and the reason say what this machine refuses.",
        )
    return Finished(args=tuple(args), receipt=receipt)
