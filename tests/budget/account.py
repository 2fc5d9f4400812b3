"""An account's root of its own, by a mount that ends with the test, and commands of ``contain`` that run there."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contain.budget.registry import Registry
from contain.budget.registry.store import FILE, LOCK
from tests.budget.calm import units_policy
from tests.session import CONTAIN, WAIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import ExitStack

    from contain.budget.registry import Book, PermitRow

HOME = pwd.getpwuid(os.getuid()).pw_dir
ONE_UNIT = units_policy()


class Account:
    """Needs root. Everything that was started is ended, by its id, when ``stack`` is closed."""

    def __init__(
        self,
        folder: Path,
        stack: ExitStack,
        policy: str = ONE_UNIT,
        room_kib: int | None = None,
        program: Sequence[str] = CONTAIN,
    ) -> None:
        """Holds a mount namespace in which ``~/.contain`` is ``folder/root``; ``room_kib``: one of that size, empty.

        ``program``: the words in the place of ``contain``.
        """
        self.folder, self.root = folder, folder / "root"
        self._program = program
        self._stack = stack
        self._registry: Registry | None = None
        self.root.mkdir(mode=0o700)
        self.root.joinpath("policy.toml").write_text(policy, encoding="ascii")
        Path(HOME, ".contain").mkdir(mode=0o700, exist_ok=True)
        small = f"mount -t tmpfs -o size={room_kib}k,mode=700 none {self.root} && " if room_kib else ""
        mounts = f"{small}mount --bind {self.root} {HOME}/.contain && echo mounted && read _"
        holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", mounts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(holder.communicate)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mounted\n"
        self.enter: tuple[str, ...] = (
            "nsenter",
            f"--mount=/proc/{holder.pid}/ns/mnt",
            "env",
            "-C",
            str(folder),
        )

    def command(self, *args: str) -> list[str]:
        """``contain ARGS`` in the account, in ``folder``; by exec alone, so its pid is the wrapper's."""
        return [*self.enter, *self._program, *args]

    def start(self, *args: str, **popen: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - passed on
        """Starts a verb."""
        popen = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **popen}
        process: subprocess.Popen[str] = subprocess.Popen(self.command(*args), **popen)
        self._stack.callback(end, process)
        return process

    def asks(
        self,
        name: str,
        *command: str,
        options: tuple[str, ...] = (),
        **popen: Any,  # noqa: ANN401 - passed on
    ) -> subprocess.Popen[str]:
        """Starts a command of session ``name``."""
        return self.start("exec", "--session", name, *options, "--", *command, **popen)

    def holds(self, name: str, *command: str, **more: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - passed on
        """The same, and waits until its permit is bound: from then on its command may run."""
        process = self.asks(name, *command, **more)
        wait_until(lambda: self.state(name) in ("bound", "running"), what=f"{name} runs")
        return process

    def waits(self, name: str, *command: str, **more: Any) -> subprocess.Popen[str]:  # noqa: ANN401 - passed on
        """The same, and waits until it is in the queue."""
        process = self.asks(name, *command, **more)
        wait_until(lambda: name in self.queue(), what=f"{name} waits")
        return process

    def run(self, *args: str, before: tuple[str, ...] = (), **popen: Any) -> subprocess.CompletedProcess[str]:  # noqa: ANN401 - passed on
        """Runs a verb to its end; ``before``: what starts it, inside the account."""
        command = [*self.enter, *before, *self.command(*args)[len(self.enter) :]]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=2 * WAIT_S, check=False, **popen
        )

    def status(self) -> dict[str, Any]:
        """What ``contain status`` publishes."""
        found: dict[str, Any] = json.loads(self.run("status", "--json").stdout)
        return found

    # -- the registry, looked at from outside and without a lock ---------------------------------------------------

    def live(self) -> Path:
        """The registry of this boot; it must have been opened once."""
        (found,) = (self.root / "live").iterdir()
        return found

    def book(self) -> Book | None:
        """The registry as it was last committed; None before somebody opens it."""
        if not any(self.root.glob(f"live/*/{FILE}")):
            return None
        if self._registry is None:
            self._registry = Registry(str(self.live()), 1, lambda _: None)
            self._stack.callback(self._registry.close)
        return self._registry.look((), {})

    def lock(self) -> Callable[[], None]:
        """Somebody else takes the registry's lock, and is named in it as every holder is; returns what lets it go."""
        fd = os.open(self.live() / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.pwrite(fd, b"%-10d\n" % os.getpid(), 0)
        return lambda: os.close(fd)

    def wants_lock(self, pid: int) -> bool:
        """A process has the lock's file open."""
        wanted = (self.live() / LOCK).stat()
        for fd in Path(f"/proc/{pid}/fd").iterdir():
            try:
                if os.path.samestat(fd.stat(), wanted):
                    return True
            except OSError:
                continue  # it was closed meanwhile
        return False

    def queue(self) -> list[str]:
        """Sessions that wait, by arrival."""
        book = self.book()
        return [] if book is None else [row.ticket.session for row in book.tickets.values()]

    def permit(self, name: str) -> PermitRow | None:
        """The permit of a session."""
        book = self.book()
        rows = [] if book is None else book.permits.values()
        return next((row for row in rows if row.permit.session == name), None)

    def state(self, name: str) -> str | None:
        """Of a session's permit."""
        row = self.permit(name)
        return None if row is None else row.permit.state

    def past(self) -> list[tuple[str, str, str]]:
        """(what, session, why), oldest first."""
        book = self.book()
        return [] if book is None else [(one[1], one[3], one[5]) for one in reversed(book.past())]

    def empty(self) -> bool:
        """Nobody waits and nobody has a permit."""
        book = self.book()
        return book is not None and not book.tickets and not book.permits


def end(process: subprocess.Popen[Any]) -> None:
    """By its id."""
    if process.poll() is None:
        process.kill()
    process.communicate()
