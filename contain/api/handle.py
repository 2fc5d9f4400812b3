"""A job that was started: wait for it, end it, signal it, talk to it."""

from __future__ import annotations

import math

from contain.api.finished import Finished, finished
from contain.errors import ContainmentHeld
from contain.protocol import LONGEST_MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import IO, Any, Self

    from contain.api.contained import Contained
    from receipts import Outcome, Receipt, Usage


class Grip:
    """What can be seen of a job and done to it without waiting, from any thread."""

    def __init__(self, contained: Contained, args: Sequence[str]) -> None:
        """Of a job that was handed to the engine."""
        self._contained = contained
        self.args = tuple(args)

    @property
    def id(self) -> str:
        """Of the job, and of its receipt."""
        return self._contained.job.id

    @property
    def receipt(self) -> Receipt | None:
        """As it was last told: with an outcome from the command's end on, released when the tree is gone."""
        return self._contained.receipt

    @property
    def outcome(self) -> Outcome | None:
        """How the command ended; None while it runs."""
        return self.receipt.outcome if self.receipt is not None else None

    @property
    def usage(self) -> Usage | None:
        """What it took; final when the job is over."""
        return self.receipt.usage if self.receipt is not None else None

    @property
    def over(self) -> bool:
        """The last word is said: nothing of the tree is left, or the job is held."""
        return self._contained.over.is_set()

    @property
    def returncode(self) -> int | None:
        """As `subprocess` has it; None while the command runs."""
        return self.outcome.returncode if self.outcome is not None else None

    def cancel(self, grace_s: float | None = None) -> None:
        """Has the tree end: TERM, and KILL after ``grace_s`` (None: the job's own grace; 0: KILL at once). Never waits.

        Nothing happens to a job that is over.
        """
        self._check_process()
        grace_ms = self._contained.job.grace_ms if grace_s is None else milliseconds(grace_s)
        self._contained.engine.cancel(self._contained, grace_ms)

    def signal(self, number: int) -> None:
        """One signal to the command's own process, sent from inside by its parent: never to another's number."""
        self._check_process()
        self._contained.engine.signal(self._contained, int(number))

    def _check_process(self) -> None:
        if self._contained.engine.gone:
            raise RuntimeError("This job belongs to the process that this one was forked from.")


class Handle(Grip):
    """A started job. Leaving it as a context ends the job and waits until its tree is gone."""

    def __init__(
        self,
        contained: Contained,
        args: Sequence[str],
        *,
        text: bool,
        encoding: str | None,
        errors: str | None,
    ) -> None:
        """Of a job that is launched; owns its pipes."""
        super().__init__(contained, args)
        streams = contained.streams
        self.stdin: IO[Any] | None = streams.file(0, text=text, encoding=encoding, errors=errors)
        self.stdout: IO[Any] | None = streams.file(1, text=text, encoding=encoding, errors=errors)
        self.stderr: IO[Any] | None = streams.file(2, text=text, encoding=encoding, errors=errors)

    def wait(self, timeout: float | None = None) -> Finished:
        """Waits until the tree is gone, up to ``timeout`` seconds; then TimeoutError, and the job goes on.

        Raises what went wrong with the job: see ``contain.run``.
        """
        self._check_process()
        if not self._contained.over.wait(timeout):
            raise TimeoutError(f"The job {self.id} is not over within {timeout:g} s; it goes on.")
        return finished(self._contained, self.args)

    def end(self, grace_s: float | None = None) -> None:
        """Cancels and waits until the tree is gone. Raises nothing of the job's own."""
        over = self._contained.over
        if self._contained.engine.gone or over.is_set():
            return
        try:
            self.cancel(grace_s)
            over.wait()
        except BaseException:  # a second Ctrl-C: no more grace, but the tree goes first all the same
            self.cancel(0)
            over.wait()
            raise

    def __enter__(self) -> Self:
        """The handle itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the job. Raises ContainmentHeld where its tree would not go, and nothing else is on its way."""
        self.end()
        for file in (self.stdin, self.stdout, self.stderr):
            if file is not None:
                _close(file)
        held = self._contained.error
        if kind is None and isinstance(held, ContainmentHeld):
            raise held.with_traceback(None)

    def __repr__(self) -> str:
        """For a person: no arguments, which may be private."""
        return f"<contain job {self.id}: {'over' if self.over else 'alive'}>"


def _close(file: IO[Any]) -> None:
    try:
        file.close()
    except BrokenPipeError:
        pass  # what was not flushed has no reader any more


def milliseconds(seconds: float) -> int:
    """Rounded up; as far as a job's times go. Raises ValueError for what is no time."""
    if not seconds >= 0:
        raise ValueError(f"{seconds!r} is no number of seconds")
    return LONGEST_MS if seconds * 1000 >= LONGEST_MS else math.ceil(seconds * 1000)
