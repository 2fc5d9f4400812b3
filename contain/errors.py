"""The one hierarchy of what can go wrong, each class with its own reason word and exit code.

Every error says what happened (``message``), what state the job is in (``state``) and what to do next (``advice``).
Exit codes stay clear of 0 to 2, of 126 to 165 (a shell's words about the command) and of each other.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NOTHING_RAN = "Nothing of the job ran and nothing is left."


class ContainError(Exception):
    """Root of the hierarchy; never raised itself. ``step`` names the launch step that failed, where one did."""

    reason = "error"
    exit_code = 70
    usual_state = NOTHING_RAN

    def __init__(
        self,
        message: str,
        *,
        advice: str,
        state: str | None = None,
        step: str | None = None,
        detail: str | None = None,
    ) -> None:
        """Takes the sentences for a person; ``detail`` is a machine-readable word that narrows ``reason``."""
        super().__init__(message)
        self.message = message
        self.advice = advice
        self.state = self.usual_state if state is None else state
        self.step = step
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        """An error may travel to another process, as a pool of workers hands it back."""
        return _again, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        """All three sentences, for a terminal."""
        return " ".join(sentence for sentence in (self.message, self.state, self.advice) if sentence)


class UsageError(ContainError):
    """The command line is wrong."""

    reason = "usage"
    exit_code = 64
    usual_state = ""


class ProtocolViolation(ContainError):
    """The host sent a line that the protocol does not allow."""

    reason = "protocol"
    exit_code = 65


class BadToken(ContainError):
    """A line carried another token than the request's."""

    reason = "bad-token"
    exit_code = 66


class ImpossibleRequest(ContainError):
    """The request is well-formed, but the kernel could never run it (argument sizes, directory, limits)."""

    reason = "impossible"
    exit_code = 67


class NoReceipt(ContainError):
    """No receipt has this id."""

    reason = "no-receipt"
    exit_code = 68


class NamespacesDenied(ContainError):
    """The kernel or a policy refuses the namespaces; ``detail`` says which: sysctl, seccomp, ..."""

    reason = "namespaces-denied"
    exit_code = 69


class SetupFailed(ContainError):
    """A launch step failed; ``step`` names it."""

    reason = "setup-failed"
    exit_code = 71


class LimitsDenied(ContainError):
    """Nothing here can enforce a limit of the tree that the job requires; ``detail`` names the fields."""

    reason = "limits-denied"
    exit_code = 72


class UnsafePlace(ContainError):
    """The receipt directory cannot keep what we promise; ``detail`` says why: owner, mode, symlink, ..."""

    reason = "unsafe-place"
    exit_code = 73


class ReceiptUnwritable(ContainError):
    """The disk did not take a receipt."""

    reason = "receipt-unwritable"
    exit_code = 74


class JobBusy(ContainError):
    """Another process holds the job's lock."""

    reason = "busy"
    exit_code = 75


class DuplicateJob(ContainError):
    """A receipt with this id exists."""

    reason = "duplicate-id"
    exit_code = 76


class WslRefused(ContainError):
    """This is WSL: Windows processes escape every containment of Linux."""

    reason = "wsl"
    exit_code = 77


class TierTooWeak(ContainError):
    """The job requires a stronger tier than can be had here."""

    reason = "tier-too-weak"
    exit_code = 78


class UnsupportedPlatform(ContainError):
    """This system, kernel or installation has no backend that works."""

    reason = "unsupported"
    exit_code = 79


class ContainmentHeld(ContainError):
    """The tree could not be proven gone; the receipt is kept."""

    reason = "held"
    exit_code = 80


class TooManyJobs(ContainError):
    """This process carries as many jobs as it can: ``detail`` says what is short."""

    reason = "too-many-jobs"
    exit_code = 81


class BadPolicy(ContainError):
    """A policy file says what this version does not know, or numbers that cannot be true together."""

    reason = "bad-policy"
    exit_code = 82
    usual_state = "The policy in force is as it was."


class LockUnavailable(ContainError):
    """Somebody has held the registry's lock too long."""

    reason = "registry-locked"
    exit_code = 83
    usual_state = "Nothing was changed; a ticket that was waiting ends with its command."


class RegistryDamaged(ContainError):
    """The registry's file cannot be read. Nothing is released: receipts tell what still runs."""

    reason = "registry-damaged"
    exit_code = 84
    usual_state = "Nothing was granted and nothing was released."


class OperatorFileDamaged(ContainError):
    """The file of holds cannot be read; nothing is granted, since a hold may stand in it."""

    reason = "operator-file"
    exit_code = 89
    usual_state = "Nothing is granted until it can be read again."


class PermitLost(ContainError):
    """The permit that was granted is not there any more."""

    reason = "permit-lost"
    exit_code = 85


class WaitedTooLong(ContainError):
    """The request's own time is over, and it was not granted."""

    reason = "waited-too-long"
    exit_code = 86


class WaitInterrupted(ContainError):
    """Somebody ended the wait; the ticket is withdrawn."""

    reason = "interrupted"
    exit_code = 87


class NeverPossible(ContainError):
    """The policy has less than is asked, even of an empty machine."""

    reason = "impossible-request"
    exit_code = 88


class NestedUnanswered(ContainError):
    """Whoever may hold our permit does not say whether we are inside its job."""

    reason = "nested-unanswered"
    exit_code = 92


class NestedRefused(ContainError):
    """A request inside a job asks for more than its permit has, and that is not free now."""

    reason = "nested-refused"
    exit_code = 93


class EvidenceLacking(ContainError):
    """Nothing proves what a host says of its permit; ``detail`` says what was asked: ``bind`` or ``release``."""

    reason = "no-evidence"
    exit_code = 94
    usual_state = "The permit stays as it is."


class CostsUnusable(ContainError):
    """The file of learned costs cannot be read or written. A job goes on without; only the verb ``costs`` fails."""

    reason = "costs-unusable"
    exit_code = 95
    usual_state = "Jobs are asked for with what their classes say."


class CommandFailed(Exception):
    """A command did not end by itself with 0, and its caller asked for that (``check``).

    Not one of the hierarchy: contain did what it should. ``finished`` tells all.
    """

    def __init__(self, command: str, finished: Any) -> None:
        """``finished`` is the contain.Finished of the job."""
        super().__init__(command, finished)
        self.command = command
        self.finished = finished

    def __str__(self) -> str:
        """The command's base name and how it ended; no arguments, which may be private."""
        outcome = self.finished.outcome
        return f"{self.command!r} ended by {outcome.cause} (returncode {outcome.returncode})."


class CommandTimedOut(CommandFailed):
    """The job's ``timeout`` ended the command. Its tree is gone."""


def _again(kind: type[ContainError], args: tuple[object, ...], values: dict[str, object]) -> ContainError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(values)
    return error
