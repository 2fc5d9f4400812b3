"""What the tests drive ``contain`` with: a host of the protocol, and an independent look at the process table.

Nothing here imports contain or receipts: the product is run as its users run it, and what it claims is checked with
/proc and with pidfds of our own.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Self

ROOT = Path(__file__).resolve().parent.parent
CONTAIN: tuple[str, ...] = (sys.executable, "-m", "contain")
TOKEN = "5f" * 32
WAIT_S = 30.0 * float(os.environ.get("CONTAIN_TEST_SLOW", "1"))
"""No wait of a test is longer; a wait that ends by it is a failure."""

Reply = dict[str, Any]


def new_id() -> str:
    """A fresh job id."""
    return str(uuid.uuid4())


class Session:
    """One ``contain run``, from the host's side."""

    def __init__(
        self,
        receipts: Path | str | None,
        *,
        program: Sequence[str] = CONTAIN,
        env: Mapping[str, str] | None = None,
        stderr: int | None = None,
        **popen: Any,  # noqa: ANN401 - passed on
    ) -> None:
        """Starts the wrapper; nothing is sent yet."""
        self.id = new_id()
        self.replies: list[Reply] = []
        self.process = subprocess.Popen(
            [*program, "run", *([] if receipts is None else [str(receipts)])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stderr is None else stderr,
            env=None if env is None else dict(env),
            **popen,
        )
        self._pending = b""
        self._errors: bytes | None = None
        self._pins: list[int] = []

    # -- what a host says ------------------------------------------------------------------------------------------

    def send_raw(self, data: bytes) -> None:
        """Bytes as they are; a wrapper that is gone is no error here."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def send(self, message: Mapping[str, object]) -> None:
        """One message."""
        self.send_raw(json.dumps(message).encode() + b"\n")

    def request(self, command: str, *args: str, **extra: object) -> Session:
        """The request line."""
        self.send(
            {
                "id": self.id,
                "permitId": new_id(),
                "token": TOKEN,
                "command": command,
                "args": list(args),
                **extra,
            }
        )
        return self

    def go(self, token: str = TOKEN) -> Session:
        """``go``."""
        self.send({"id": self.id, "token": token, "action": "go"})
        return self

    def cancel(self, **extra: object) -> Session:
        """``cancel``."""
        self.send({"id": self.id, "token": TOKEN, "action": "cancel", **extra})
        return self

    def hang_up(self) -> Session:
        """EOF."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        return self

    # -- what it hears ---------------------------------------------------------------------------------------------

    def read(self, wait_s: float = WAIT_S) -> Reply | None:
        """The next reply; None at the end of replies. Fails after ``wait_s``."""
        assert self.process.stdout is not None
        deadline_s = time.monotonic() + wait_s
        while b"\n" not in self._pending:
            ready, _, _ = select.select(
                [self.process.stdout], [], [], max(0.0, deadline_s - time.monotonic())
            )
            assert ready, f"no reply within {wait_s} s; so far: {self.replies}"
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                assert not self._pending, f"a torn reply: {self._pending!r}"
                return None
            self._pending += data
        text, _, self._pending = self._pending.partition(b"\n")
        reply: Reply = json.loads(text)
        self.replies.append(reply)
        if reply["event"] == "prepared" and "namespaceInit" in reply:
            with contextlib.suppress(OSError):  # it is gone already, or its number is of another namespace
                self._pins.append(hold_namespace(reply["namespaceInit"]))
        return reply

    def until(self, event: str, wait_s: float = WAIT_S) -> Reply:
        """Reads on until a reply of this event."""
        while (reply := self.read(wait_s)) is not None:
            if reply["event"] == event:
                return reply
        raise AssertionError(f"no {event}; replies: {self.replies}; stderr: {self.errors()!r}")

    def start(self, command: str, *args: str, **extra: object) -> Reply:
        """Request and go; returns ``prepared``. The job is running afterwards."""
        self.request(command, *args, **extra)
        prepared = self.until("prepared")
        self.go().until("running")
        return prepared

    def finish(self, wait_s: float = WAIT_S) -> Reply:
        """Reads to the end of replies, reaps the wrapper, returns the last reply."""
        while self.read(wait_s) is not None:
            pass
        self.process.wait(wait_s)
        self.errors()
        assert self.replies, f"no reply at all; stderr: {self.errors()!r}"
        return self.replies[-1]

    def events(self) -> list[str]:
        """The names of the replies so far, in order."""
        return [reply["event"] for reply in self.replies]

    def errors(self) -> bytes:
        """Standard error, which is also the command's output, to its end: the wrapper must have ended, or be ending."""
        if self._errors is None:
            self._errors = self.process.stderr.read() if self.process.stderr is not None else b""
        return self._errors

    def close(self) -> None:
        """Ends the wrapper, by its id, and closes the pipes."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_S)
        while self._pins:
            os.close(self._pins.pop())
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def __enter__(self) -> Self:
        """For ``with``."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes."""
        self.close()


def run_job(receipts: Path, command: str, *args: str, **extra: object) -> tuple[Reply, Session]:
    """One whole job; returns its last reply and the ended session."""
    with Session(receipts) as session:
        session.start(command, *args, **extra)
        return session.finish(), session


def installed(directory: Path) -> Path:
    """bin/contain as an installation leaves it, in ``directory``: with this Python in its first line, and this tree."""
    path = directory / "contain"
    lines = (ROOT / "bin" / "contain").read_text().splitlines()
    assert lines[0] == "#!python"
    lines[0] = f"#!{sys.executable}"
    lines.insert(lines.index("import sys") + 1, f"sys.path.insert(0, {str(ROOT)!r})")
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


def inspect(receipts: Path, *words: str, program: Sequence[str] = CONTAIN) -> tuple[int, list[Reply]]:
    """``contain inspect``: exit code, and the objects that it printed."""
    done = subprocess.run(
        [*program, "inspect", str(receipts), *words], capture_output=True, timeout=WAIT_S, check=False
    )
    return done.returncode, [json.loads(text) for text in done.stdout.splitlines()]


# -- an independent look at the machine --------------------------------------------------------------------------------


def stat_fields(pid: int) -> list[str] | None:
    """Fields 3 and on of /proc/PID/stat, None where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def alive(pid: int, start_ticks: int | None = None) -> bool:
    """A process with this number (and birth) runs: zombies and the dead do not."""
    found = stat_fields(pid)
    if found is None or found[0] in "ZX":
        return False
    return start_ticks is None or int(found[19]) == start_ticks


def pids() -> Iterator[int]:
    """Every process number of /proc."""
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


_inits: dict[int, tuple[int, int]] = {}


def hold_namespace(namespace_init: Reply) -> int:
    """A pidfd of an init, to be closed by the caller; while it is open, the inode of its namespace is no other's.

    The kernel gives the inode of a namespace that is gone to the next one, but a pidfd keeps the namespace. An init is
    undumpable, so that only root sees which namespace it is in: to others `in_namespace` shows it by its birth.
    """
    _inits[namespace_init["namespace"]] = (namespace_init["pid"], namespace_init["startTicks"])
    return os.pidfd_open(namespace_init["pid"])


def in_namespace(inode: int) -> list[int]:
    """Living processes of a PID namespace, as seen from here; nested namespaces are found through their parents."""
    parents: dict[int, int] = {}
    members: set[int] = set()
    for pid in pids():
        found = stat_fields(pid)
        if found is None or found[0] in "ZX":
            continue
        parents[pid] = int(found[1])
        try:
            if Path(f"/proc/{pid}/ns/pid").stat().st_ino == inode:
                members.add(pid)
        except OSError:
            if _inits.get(inode) == (pid, int(found[19])):
                members.add(pid)
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        members |= more
        grown = bool(more)
    return sorted(members)


def descendants(root: int) -> list[int]:
    """Living descendants of a process, itself left out."""
    children: dict[int, list[int]] = {}
    for pid in pids():
        found = stat_fields(pid)
        if found is not None and found[0] not in "ZX":
            children.setdefault(int(found[1]), []).append(pid)
    todo, seen = [root], []
    while todo:
        more = children.get(todo.pop(), [])
        seen += more
        todo += more
    return sorted(seen)


def keeper_of(wrapper_pid: int) -> int:
    """The keeper of a wrapper: its child of that name."""
    for pid in descendants(wrapper_pid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "contain-keeper":
                return pid
    raise AssertionError(f"wrapper {wrapper_pid} has no keeper")


def wait_until(condition: Any, wait_s: float = WAIT_S, what: str = "") -> None:  # noqa: ANN401 - any callable
    """Polls until ``condition()`` is true; fails after ``wait_s``. For facts that no descriptor announces."""
    deadline_s = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {wait_s} s: {what or condition}"
        select.select([], [], [], 0.01)


def wait_file(path: Path, wait_s: float = WAIT_S) -> str:
    """The content of a file that a job writes, once it is there and not empty."""
    wait_until(lambda: path.exists() and path.stat().st_size > 0, wait_s, f"{path} is written")
    return path.read_text()


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """A signal by a pidfd of our own; only ever to what a test started. Gone already is no error."""
    with contextlib.suppress(ProcessLookupError):
        fd = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)
