"""``contain.arun`` and ``contain.astart``, for asyncio, trio and anyio.

A task that is cancelled in here has its job ended first, and waits until the tree is gone; then the
cancellation goes on.
"""

from __future__ import annotations

import os

from contain.api.asking import Wanted, told
from contain.api.calls import result, streams_of
from contain.api.finished import finished
from contain.api.handle import Grip
from contain.api.running import ready, waiter
from contain.api.streams import STDERR_FD, STDIN_FD, STDOUT_FD
from contain.errors import ContainmentHeld

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import AsyncIterator, Sequence
    from types import TracebackType
    from typing import Self, Unpack

    from contain.api.asking import Options, Word
    from contain.api.contained import Contained
    from contain.api.finished import Finished
    from contain.api.streams import Stream

READ_BYTES = 65536


async def _until(contained: Contained, event: threading.Event) -> None:
    """Until the job is so far; a cancellation ends the job, and goes on when its tree is gone."""
    try:
        waiting = waiter()
        contained.when(event, waiting.wake)
        await waiting.wait()
    except BaseException:
        await _end(contained, contained.job.grace_ms)
        raise


async def _end(contained: Contained, grace_ms: int) -> None:
    contained.engine.cancel(contained, grace_ms)
    waiting = waiter()
    contained.when(contained.over, waiting.wake)
    await waiting.wait_all_the_same()


class AsyncReader:
    """The read end of a pipe."""

    def __init__(self, fd: int) -> None:
        """Owns ``fd``."""
        os.set_blocking(fd, False)
        self._fd = fd

    async def read(self, most_bytes: int = READ_BYTES) -> bytes:
        """What is there, waiting until something is; empty at the end."""
        while self._fd >= 0:
            try:
                return os.read(self._fd, most_bytes)
            except BlockingIOError:
                await ready(self._fd, writing=False)
        return b""

    async def read_all(self) -> bytes:
        """Up to the end."""
        return b"".join([chunk async for chunk in self])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Chunks, up to the end."""
        while chunk := await self.read():
            yield chunk

    def close(self) -> None:
        """Lets go."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class AsyncWriter:
    """The write end of a pipe."""

    def __init__(self, fd: int) -> None:
        """Owns ``fd``."""
        os.set_blocking(fd, False)
        self._fd = fd

    async def write(self, data: bytes) -> None:
        """All of it. Raises BrokenPipeError where nobody reads any more."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._fd, left) :]
            except BlockingIOError:
                await ready(self._fd, writing=True)

    def close(self) -> None:
        """The job reads the end of its input."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class AsyncHandle(Grip):
    """A started job. ``async with`` it: leaving ends the job and waits until its tree is gone."""

    def __init__(self, contained: Contained, args: Sequence[str]) -> None:
        """Of a job that is launched; owns its pipes, which speak bytes."""
        super().__init__(contained, args)
        ours = contained.streams.ours
        self.stdin = AsyncWriter(ours.pop(STDIN_FD)) if STDIN_FD in ours else None
        self.stdout = AsyncReader(ours.pop(STDOUT_FD)) if STDOUT_FD in ours else None
        self.stderr = AsyncReader(ours.pop(STDERR_FD)) if STDERR_FD in ours else None

    async def wait(self) -> Finished:
        """Until the tree is gone; cancelling this wait alone does not end the job. Raises as ``contain.run`` does."""
        self._check_process()
        waiting = waiter()
        self._contained.when(self._contained.over, waiting.wake)
        await waiting.wait()
        return finished(self._contained, self.args)

    async def end(self, grace_s: float | None = None) -> None:
        """Cancels, and waits until the tree is gone, whatever is cancelled meanwhile."""
        if not self._contained.engine.gone and not self.over:
            self.cancel(grace_s)
            waiting = waiter()
            self._contained.when(self._contained.over, waiting.wake)
            await waiting.wait_all_the_same()

    async def __aenter__(self) -> Self:
        """The handle itself."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the job. Raises ContainmentHeld where its tree would not go, and nothing else is on its way."""
        await self.end()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        held = self._contained.error
        if kind is None and isinstance(held, ContainmentHeld):
            raise held.with_traceback(None)


async def astart(
    args: Sequence[Word],
    *,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
    **options: Unpack[Options],
) -> AsyncHandle:
    """As ``contain.start``: ``async with await contain.astart([...]) as job``. Pipes are of bytes."""
    wanted = Wanted(args, options, text=False, encoding=None, errors=None)
    contained = wanted.launch(stdin, stdout, stderr)
    await _until(contained, contained.begun)
    told(contained)
    return AsyncHandle(contained, wanted.args)


async def arun(  # noqa: PLR0913 - as contain.run
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
    """As ``contain.run``, without keeping the loop from its other tasks."""
    wanted = Wanted(args, options, text=text, encoding=encoding, errors=errors)
    contained = wanted.launch(
        *streams_of(input, stdin, stdout, stderr, capture_output=capture_output), feed=input, collect=True
    )
    await _until(contained, contained.begun)
    told(contained)
    await _until(contained, contained.over)
    return result(contained, wanted, check=check)
