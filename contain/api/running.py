"""The asynchronous library that runs the current task: asyncio or trio, found and never imported first.

anyio runs on either. Each library needs three things here: a wait that another thread ends, a wait that a cancellation
does not end, and a wait for a descriptor.
"""

from __future__ import annotations

import sys
from typing import Any, Protocol


class Waiter(Protocol):
    """One wait of the current task. ``wake`` may be called from any thread, at any time, more than once."""

    def wake(self) -> None:
        """Ends the wait. Nothing happens where the library's loop has ended."""

    async def wait(self) -> None:
        """Until ``wake``. Can be cancelled."""

    async def wait_all_the_same(self) -> None:
        """Until ``wake``, whatever is cancelled meanwhile."""


class _OnAsyncio:
    def __init__(self) -> None:
        import asyncio

        self._asyncio = asyncio
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._set)
        except RuntimeError:
            pass  # the loop is closed, and its tasks with it

    def _set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        await self._asyncio.shield(self._future)

    async def wait_all_the_same(self) -> None:
        if "anyio" in sys.modules:
            # Its scopes cancel a task again and again, as fast as the loop goes, until it gives in: asked not to.
            import anyio

            with anyio.CancelScope(shield=True):
                await self._wait_through()
        else:
            await self._wait_through()

    async def _wait_through(self) -> None:
        while not self._future.done():
            try:
                await self._asyncio.shield(self._future)
            except self._asyncio.CancelledError:
                continue  # the first one is on its way already: it is raised when this returns


class _OnTrio:
    def __init__(self) -> None:
        self._trio: Any = sys.modules["trio"]
        self._token = self._trio.lowlevel.current_trio_token()
        self._event = self._trio.Event()

    def wake(self) -> None:
        try:
            self._token.run_sync_soon(self._event.set)
        except self._trio.RunFinishedError:
            pass  # its tasks are gone

    async def wait(self) -> None:
        await self._event.wait()

    async def wait_all_the_same(self) -> None:
        with self._trio.CancelScope(shield=True):
            await self._event.wait()


def _in_trio() -> bool:
    trio: Any = sys.modules.get("trio")
    return trio is not None and bool(trio.lowlevel.in_trio_task())


def waiter() -> Waiter:
    """For the current task. Raises RuntimeError outside of one."""
    return _OnTrio() if _in_trio() else _OnAsyncio()


async def ready(fd: int, *, writing: bool) -> None:
    """Until ``fd`` can be read, or written. Can be cancelled. One task a descriptor and direction."""
    if _in_trio():
        lowlevel: Any = sys.modules["trio"].lowlevel
        await (lowlevel.wait_writable if writing else lowlevel.wait_readable)(fd)
        return
    import asyncio

    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    (loop.add_writer if writing else loop.add_reader)(fd, event.set)
    try:
        await event.wait()
    finally:
        (loop.remove_writer if writing else loop.remove_reader)(fd)
