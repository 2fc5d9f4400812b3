"""``contain.arun`` and ``contain.astart`` on asyncio, trio and anyio: a cancelled task waits until its tree is gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import anyio
import pytest
import trio

import contain
from tests.session import inspect, wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    Main = Callable[[], Awaitable[Any]]


def on_asyncio(main: Main) -> Any:  # noqa: ANN401 - whatever it returns
    """The standard library's loop."""

    async def whole() -> Any:  # noqa: ANN401 - the same
        return await main()

    return asyncio.run(whole())


RUNNERS: dict[str, Callable[[Main], Any]] = {
    "asyncio": on_asyncio,
    "trio": trio.run,
    "anyio on asyncio": lambda main: anyio.run(main, backend="asyncio"),
    "anyio on trio": lambda main: anyio.run(main, backend="trio"),
}


@pytest.fixture(params=RUNNERS)
def run_in(request: pytest.FixtureRequest) -> Callable[[Main], Any]:
    """Each library in turn."""
    return RUNNERS[request.param]


def test_arun(run_in: Callable[[Main], Any], receipts: Path) -> None:
    """As contain.run."""

    async def main() -> contain.Finished:
        return await contain.arun(["cat"], input="x", capture_output=True, text=True, receipts=receipts)

    done = run_in(main)
    assert (done.stdout, done.returncode, done.receipt.empty) == ("x", 0, True)


def test_arun_raises_as_run_does(run_in: Callable[[Main], Any], receipts: Path) -> None:
    """Typed errors come through."""

    async def main() -> None:
        with pytest.raises(contain.CommandFailed):
            await contain.arun(["false"], check=True, receipts=receipts)
        with pytest.raises(FileNotFoundError):
            await contain.arun(["/no/such"], receipts=receipts)
        with pytest.raises(contain.ContainError):
            await contain.arun(["true"], cwd="/no/such", receipts=receipts)
        with pytest.raises(contain.CommandTimedOut):
            await contain.arun(["sleep", "60"], timeout=0.1, receipts=receipts)

    run_in(main)


def test_a_conversation(run_in: Callable[[Main], Any], receipts: Path) -> None:
    """Pipes of bytes, in both directions, and more than they hold."""

    async def main() -> None:
        async with await contain.astart(
            ["cat"], stdin=contain.PIPE, stdout=contain.PIPE, receipts=receipts
        ) as job:
            assert job.stdin is not None
            assert job.stdout is not None
            await job.stdin.write(b"hello\n")
            assert await job.stdout.read() == b"hello\n"
            job.stdin.close()
            assert await job.stdout.read_all() == b""
            assert (await job.wait()).returncode == 0

    run_in(main)


def test_leaving_the_context_ends_the_tree(run_in: Callable[[Main], Any], receipts: Path) -> None:
    """By an exception too."""

    async def main() -> contain.AsyncHandle:
        with pytest.raises(ZeroDivisionError):
            async with await contain.astart(["sleep", "60"], receipts=receipts) as job:
                raise ZeroDivisionError
        return job

    job = run_in(main)
    assert job.over
    assert (job.receipt.state, job.outcome.by) == ("released", "host")


DEAF = ["sh", "-c", "trap '' TERM; echo > $0; sleep 60 & wait; sleep 60"]


@pytest.mark.parametrize("library", ["asyncio", "anyio on asyncio", "anyio on trio"])
def test_a_cancelled_task_waits_for_the_drain(library: str, receipts: Path, tmp_path: Path) -> None:
    """The cancellation goes on when the receipt says released, however often it is repeated."""
    file = tmp_path / "ready"
    command = [*DEAF, str(file)]
    states: list[str] = []

    async def work() -> None:
        try:
            await contain.arun(command, grace_s=0.3, receipts=receipts)
        finally:
            states.append(inspect(receipts)[1][0]["state"])

    async def with_asyncio() -> None:
        task = asyncio.create_task(work())
        await asyncio.to_thread(wait_until, lambda: file.exists() and file.stat().st_size)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await task

    async def with_anyio() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            await anyio.to_thread.run_sync(wait_until, lambda: file.exists() and file.stat().st_size)
            group.cancel_scope.cancel()

    RUNNERS[library](with_asyncio if library == "asyncio" else with_anyio)
    assert states == ["released"]
    assert inspect(receipts)[1][0]["outcome"]["lastSignal"] == "KILL"


def test_a_timeout_of_asyncio_waits_for_the_drain(receipts: Path) -> None:
    """And is still a timeout."""

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await contain.arun(["sleep", "60"], receipts=receipts)
        assert inspect(receipts)[1][0]["state"] == "released"

    asyncio.run(main())


def test_a_launch_that_is_cancelled_leaves_nothing(run_in: Callable[[Main], Any], receipts: Path) -> None:
    """Before the job runs: whatever there is of it is gone when the cancellation goes on."""

    async def main() -> None:
        with anyio.move_on_after(0):
            await contain.arun(["sleep", "60"], receipts=receipts)

    run_in(main)
    code, found = inspect(receipts)
    assert code == 0
    assert {reply["state"] for reply in found} <= {"released"}


def test_a_cancelled_wait_alone_does_not_end_the_job(run_in: Callable[[Main], Any], receipts: Path) -> None:
    """The handle is still there."""

    async def main() -> None:
        async with await contain.astart(["sleep", "60"], receipts=receipts) as job:
            with anyio.move_on_after(0.1):
                await job.wait()
            assert not job.over
            job.cancel(0)
            assert (await job.wait()).outcome.cause == "canceled"

    run_in(main)


def test_many_tasks(run_in: Callable[[Main], Any], receipts: Path) -> None:
    """Fifty jobs at once in one loop."""
    codes: list[int] = []

    async def one(number: int) -> None:
        codes.append((await contain.arun(["sh", "-c", f"exit {number}"], receipts=receipts)).returncode)

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(one, number)

    run_in(main)
    assert sorted(codes) == list(range(50))


def test_outside_of_a_loop_it_is_refused(receipts: Path) -> None:
    """A coroutine that nobody runs starts nothing."""
    contain.arun(["true"], receipts=receipts).close()
    assert inspect(receipts) == (0, [])
