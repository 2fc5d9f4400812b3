"""A host of ``contain serve``: many jobs over one pair of pipes. Like tests.session, it imports nothing of contain."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.session import CONTAIN, TOKEN, WAIT_S, Reply, new_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

LAST = ("released", "held")


class Served:
    """One ``contain serve``, from the host's side."""

    def __init__(self, receipts: Path, *, program: Sequence[str] = CONTAIN, **popen: Any) -> None:  # noqa: ANN401 - passed on
        """Starts it; nothing is sent yet. Standard error of it and its jobs is thrown away."""
        self.replies: list[Reply] = []
        self.process = subprocess.Popen(
            [*program, "serve", str(receipts)],
            **{
                "stdin": subprocess.PIPE,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.DEVNULL,
                "bufsize": 0,
                **popen,
            },
        )
        self._pending = b""

    def send_raw(self, data: bytes) -> None:
        """Bytes as they are."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            view = memoryview(data)
            while view:
                view = view[self.process.stdin.write(view) :]

    def send(self, **message: object) -> None:
        """One message."""
        self.send_raw(json.dumps(message).encode() + b"\n")

    def request(
        self, command: str, *args: str, job_id: str | None = None, token: str = TOKEN, **extra: object
    ) -> str:
        """A request line; the job's id."""
        job_id = job_id or new_id()
        self.send(id=job_id, permitId=new_id(), token=token, command=command, args=list(args), **extra)
        return job_id

    def go(self, job_id: str, token: str = TOKEN) -> None:
        """``go``."""
        self.send(id=job_id, token=token, action="go")

    def cancel(self, job_id: str, token: str = TOKEN, **extra: object) -> None:
        """``cancel``."""
        self.send(id=job_id, token=token, action="cancel", **extra)

    def hang_up(self) -> None:
        """EOF."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def read(self, wait_s: float = WAIT_S) -> Reply | None:
        """The next reply; None at the end of replies. Fails after ``wait_s``."""
        assert self.process.stdout is not None
        deadline_s = time.monotonic() + wait_s
        while b"\n" not in self._pending:
            ready, _, _ = select.select(
                [self.process.stdout], [], [], max(0.0, deadline_s - time.monotonic())
            )
            assert ready, f"no reply within {wait_s} s; so far: {self.replies[-20:]}"
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                assert not self._pending, f"a torn reply: {self._pending!r}"
                return None
            self._pending += data
        text, _, self._pending = self._pending.partition(b"\n")
        reply: Reply = json.loads(text)
        self.replies.append(reply)
        return reply

    def until(self, event: str, job_id: str | None = None) -> Reply:
        """Reads on until a reply of this event (and job); one that was read before counts too."""
        for reply in self.replies:
            if reply["event"] == event and job_id in (None, reply["id"]):
                return reply
        while (reply_now := self.read()) is not None:
            if reply_now["event"] == event and job_id in (None, reply_now["id"]):
                return reply_now
        raise AssertionError(f"no {event} of {job_id}; replies: {self.replies[-20:]}")

    def start(self, command: str, *args: str, **extra: Any) -> str:  # noqa: ANN401 - passed on
        """Request and go; the job is running afterwards."""
        job_id = self.request(command, *args, **extra)
        self.until("prepared", job_id)
        self.go(job_id)
        self.until("running", job_id)
        return job_id

    def start_all(self, count: int, command: str, *args: str) -> list[str]:
        """So many at once."""
        ids = [self.request(command, *args) for _ in range(count)]
        for job_id in ids:
            self.until_of(job_id, "prepared")
            self.go(job_id)
        for job_id in ids:
            self.until_of(job_id, "running")
        return ids

    def until_of(self, job_id: str, event: str) -> None:
        """As ``until``, for many: what was read before is not searched twice."""
        seen: set[tuple[str, str]] = self.__dict__.setdefault("_seen", set())
        while (job_id, event) not in seen:
            reply = self.read()
            assert reply is not None
            seen.add((reply["id"], reply["event"]))

    def finish(self) -> None:
        """Reads to the end of replies and reaps the process."""
        while self.read() is not None:
            pass
        self.process.wait(WAIT_S)

    def last_of(self, job_id: str) -> Reply:
        """The last reply of a job."""
        return [reply for reply in self.replies if reply["id"] == job_id][-1]

    def events_of(self, job_id: str) -> list[str]:
        """The events of a job, in order."""
        return [reply["event"] for reply in self.replies if reply["id"] == job_id]

    def released(self) -> set[str]:
        """Ids that were released, empty."""
        return {r["id"] for r in self.replies if r["event"] == "released" and r["empty"] is True}

    def __enter__(self) -> Self:
        """For ``with``."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it, by its id, and closes the pipes."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Size:
    """What a process holds: descriptors, zombies among its children, resident bytes."""

    def __init__(self, pid: int) -> None:
        """Looks now."""
        proc = Path(f"/proc/{pid}")
        self.fds = len(list((proc / "fd").iterdir()))
        status = (proc / "status").read_text()
        self.rss_bytes = int(status.partition("VmRSS:")[2].split()[0]) * 1024
        self.zombies = sum(_is_zombie(child) for child in _children(pid))


def _children(pid: int) -> Iterable[int]:
    return (int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return False
