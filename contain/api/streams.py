"""The standard streams of a job: pipes of ours, files of the caller's, /dev/null.

Every descriptor that is opened here is close-on-exec. The job's ends are closed in this process as soon as the job is
launched, so that the last process of its tree is the last writer.
"""

from __future__ import annotations

import fcntl
import io
import os
from typing import IO, Any

from contain.errors import ImpossibleRequest

PIPE, STDOUT, DEVNULL = -1, -2, -3
"""The numbers of `subprocess`, whose names may be given too."""

Stream = int | IO[Any] | None
"""``PIPE``, ``DEVNULL``, a descriptor, a file with ``fileno()``, or None: as this process has it."""

STDIN_FD, STDOUT_FD, STDERR_FD = 0, 1, 2


class Streams:
    """The descriptors of one job: ``job`` are its 0, 1 and 2; ``ours`` our ends of pipes, by the job's number."""

    def __init__(self, stdin: Stream, stdout: Stream, stderr: Stream) -> None:
        """Opens what is needed. Raises OSError, and ImpossibleRequest for what is no stream; nothing is left then."""
        self._theirs: list[int] = []
        self.ours: dict[int, int] = {}
        self.files: dict[int, IO[Any]] = {}
        try:
            job_stdin = self._open(STDIN_FD, stdin)
            job_stdout = self._open(STDOUT_FD, stdout)
            job_stderr = job_stdout if stderr == STDOUT else self._open(STDERR_FD, stderr)
        except BaseException:
            self.launched()
            self.close()
            raise
        self.job = (job_stdin, job_stdout, job_stderr)

    def _open(self, number: int, stream: Stream) -> int:
        if stream is None:
            return number if _is_open(number) else self._null()
        if stream == DEVNULL:
            return self._null()
        if stream == PIPE:
            read, write = os.pipe()
            ours, theirs = (write, read) if number == STDIN_FD else (read, write)
            self.ours[number] = ours
            self._theirs.append(theirs)
            return theirs
        if isinstance(stream, int):
            if stream < 0:
                raise ImpossibleRequest(
                    f"{stream} is no stream of this kind.", advice="Give PIPE, DEVNULL or a file."
                )
            return stream
        return stream.fileno()

    def _null(self) -> int:
        fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._theirs.append(fd)
        return fd

    def file(self, number: int, *, text: bool, encoding: str | None, errors: str | None) -> IO[Any] | None:
        """A file object for our end of a pipe, which it owns from now on; None where there is no pipe."""
        fd = self.ours.pop(number, None)
        if fd is None:
            return None
        file: IO[Any]
        if number != STDIN_FD:
            file = open(fd, "r" if text else "rb", encoding=encoding, errors=errors)  # noqa: SIM115 - the handle's
        elif text:
            file = open(fd, "w", buffering=1, encoding=encoding, errors=errors)  # noqa: SIM115 - the handle's
        else:
            file = open(fd, "wb", buffering=0)  # noqa: SIM115 - the handle's
        self.files[number] = file
        return file

    def launched(self) -> None:
        """The job has its ends, or never will: ours of them go."""
        while self._theirs:
            os.close(self._theirs.pop())

    def close(self) -> None:
        """Closes our ends, but for those that are files by now."""
        while self.ours:
            os.close(self.ours.popitem()[1])

    def abandon(self) -> None:
        """In a forked child: no copy of a pipe is left. A file object keeps a number of its own, on /dev/null."""
        self.launched()
        self.close()
        for file in self.files.values():
            if not file.closed:
                null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                os.dup2(null, file.fileno(), inheritable=False)
                os.close(null)


def _is_open(fd: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_GETFD)
    except OSError:
        return False
    return True


def as_text(data: bytes, encoding: str | None, errors: str | None) -> str:
    """As a file that is opened in text mode reads it."""
    return io.TextIOWrapper(io.BytesIO(data), encoding=encoding, errors=errors).read()


def as_bytes(text: str, encoding: str | None, errors: str | None) -> bytes:
    """The opposite."""
    sink = io.BytesIO()
    file = io.TextIOWrapper(sink, encoding=encoding, errors=errors)
    file.write(text)
    file.flush()
    return sink.getvalue()
