"""``contain.run`` and ``contain.start``."""

from __future__ import annotations

from contain.api.asking import Wanted, told
from contain.api.finished import finished
from contain.api.handle import Handle
from contain.api.streams import PIPE, as_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Unpack

    from contain.api.asking import Options, Word
    from contain.api.contained import Contained
    from contain.api.finished import Finished
    from contain.api.streams import Stream


def start(
    args: Sequence[Word],
    *,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    text: bool = False,
    encoding: str | None = None,
    errors: str | None = None,
    **options: Unpack[Options],
) -> Handle:
    """Starts a command and returns when it runs. Use the handle in a ``with``: leaving it ends the whole tree.

    Raises what stands in the way of a launch, as a ContainError; then nothing ran.
    """
    wanted = Wanted(args, options, text=text, encoding=encoding, errors=errors)
    contained = wanted.launch(stdin, stdout, stderr)
    _begun(contained)
    return Handle(contained, wanted.args, text=wanted.text, encoding=encoding, errors=errors)


def run(  # noqa: PLR0913 - subprocess.run has as many
    args: Sequence[Word],
    *,
    input: str | bytes | None = None,  # noqa: A002 - its name in subprocess.run
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    capture_output: bool = False,
    text: bool = False,
    encoding: str | None = None,
    errors: str | None = None,
    check: bool = False,
    **options: Unpack[Options],
) -> Finished:
    """Runs a command to the end of its whole tree; returns how it ended, and what it printed if that was asked for.

    Like ``subprocess.run``: a command that cannot be executed is an OSError, a timeout is CommandTimedOut, and with
    ``check`` any end but an exit with 0 is CommandFailed. A ContainError is something else: nothing ran, or (held, not
    on disk) the end could not be proven. Whatever is raised here, the tree has been ended first.
    """
    wanted = Wanted(args, options, text=text, encoding=encoding, errors=errors)
    contained = wanted.launch(
        *streams_of(input, stdin, stdout, stderr, capture_output=capture_output), feed=input, collect=True
    )
    _begun(contained)
    try:
        contained.over.wait()
    except BaseException:
        _end(contained)
        raise
    return result(contained, wanted, check=check)


def streams_of(
    feed: str | bytes | None, stdin: Stream, stdout: Stream, stderr: Stream, *, capture_output: bool
) -> tuple[Stream, Stream, Stream]:
    """What ``input`` and ``capture_output`` mean for the streams. Raises ValueError where they contradict these."""
    if feed is not None and stdin is not None:
        raise ValueError("stdin and input exclude each other")
    if stdin == PIPE:
        raise ValueError("stdin=PIPE needs somebody who writes: give input, or use start")
    if capture_output and (stdout is not None or stderr is not None):
        raise ValueError("stdout and stderr exclude capture_output")
    return (stdin, PIPE, PIPE) if capture_output else (stdin, stdout, stderr)


def result(contained: Contained, wanted: Wanted, *, check: bool) -> Finished:
    """Of a job of ``run`` that is over. Raises as ``run`` does."""
    contained.streams.close()
    done = finished(contained, wanted.args)
    printed = {}
    for name, number in (("stdout", 1), ("stderr", 2)):
        data = contained.collected(number)
        if data is not None:
            printed[name] = as_text(data, wanted.encoding, wanted.errors) if wanted.text else data
    done = done.replace(**printed)
    if check or done.outcome.cause == "timed-out":
        done.check()
    return done


def _begun(contained: Contained) -> None:
    try:
        contained.begun.wait()
    except BaseException:
        _end(contained)
        raise
    told(contained)


def _end(contained: Contained) -> None:
    """The caller was interrupted: TERM and the grace; interrupted again, KILL. The tree goes first all the same."""
    engine, over = contained.engine, contained.over
    engine.cancel(contained, contained.job.grace_ms)
    try:
        over.wait()
    except BaseException:
        engine.cancel(contained, 0)
        over.wait()
        raise
