"""``contain inspect [DIR] [ID]``: what is true of a job now, one JSON object a receipt."""

from __future__ import annotations

import os

from contain import recovery
from contain.cli.place import open_receipts
from contain.errors import ContainmentHeld, JobBusy, ReceiptUnwritable, UsageError
from contain.platform import backend as find_backend
from contain.protocol import line
from receipts import Unreadable, Unwritable, check_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from contain.backend import Backend
    from contain.recovery import Finding
    from receipts import Place, Store

ADVICE = "contain --help shows it."


class _Wanted:
    """The command line, taken apart."""

    def __init__(self, args: list[str]) -> None:
        """Raises UsageError."""
        self.directory: str | None = None
        self.job_id: str | None = None
        self.finish = self.forget = False
        self.reason: str | None = None
        rest = list(args)
        words: list[str] = []
        while rest:
            word = rest.pop(0)
            if word == "--finish":
                self.finish = True
            elif word == "--forget":
                self.forget = True
            elif word == "--reason" and rest:
                self.reason = rest.pop(0)
            elif word.startswith("-"):
                raise UsageError(
                    f"contain inspect has no option {word[:40]!r}, or it lacks its value.", advice=ADVICE
                )
            else:
                words.append(word)
        if words and _is_id(words[-1]):
            self.job_id = words.pop().lower()
        if len(words) > 1:
            raise UsageError("contain inspect takes a directory and an id.", advice=ADVICE)
        self.directory = words[0] if words else None
        self._check()

    def _check(self) -> None:
        if (self.finish or self.forget) and self.job_id is None:
            raise UsageError("--finish and --forget are for one job: name its id.", advice=ADVICE)
        if self.finish and self.forget:
            raise UsageError("--finish ends a job, --forget gives one up: choose.", advice=ADVICE)
        if self.forget != (self.reason is not None):
            raise UsageError("--forget needs --reason TEXT, which the receipt keeps.", advice=ADVICE)


def _is_id(word: str) -> bool:
    try:
        check_id(word.lower())
    except ValueError:
        return False
    return True


def main(args: list[str]) -> int:
    """Prints one line a receipt; 0 when every one is released, 80 when one is held, else 75 for a busy one."""
    wanted = _Wanted(args)
    backend = find_backend()
    backend.check_host()
    place, store = open_receipts(wanted.directory, backend, create=False)
    try:
        return _print(_look(wanted, backend, place, store))
    except (Unreadable, Unwritable) as error:
        raise ReceiptUnwritable(
            f"The receipts could not all be read or written ({error}).",
            advice="Look at the disk and at DIR; then inspect again.",
            state="No receipt is worse than before.",
        ) from None


def _look(wanted: _Wanted, backend: Backend, place: Place, store: Store) -> Iterator[Finding]:
    if wanted.job_id is None:
        return recovery.inspect_everything(store, backend, place.fd)
    if wanted.reason is not None:
        return iter([recovery.forget(store, backend, place.fd, wanted.job_id, wanted.reason)])
    return iter([recovery.inspect(store, backend, place.fd, wanted.job_id, finish=wanted.finish)])


def _print(findings: Iterator[Finding]) -> int:
    code = 0
    for finding in findings:
        _write(line(finding.reply()))
        if not finding.settled and code != ContainmentHeld.exit_code:
            code = JobBusy.exit_code if finding.state == "busy" else ContainmentHeld.exit_code
    return code


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]
