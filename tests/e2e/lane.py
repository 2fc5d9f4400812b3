"""A lane: a process that runs one wrapper after another, and says of each how it ended and what it left behind.

    python lane.py FD      FD is the lane's end of a socket; ``Lane`` is the other one

A wrapper is a fork of the lane, which has imported the product before and calls ``contain.cli.main.main`` as
bin/contain does, on pipes of its own: a session without the price of a Python start. ``real`` executes the command
instead. Either way the lane is a child subreaper, so whatever a wrapper leaves behind becomes a child of the lane: no
child left is the proof that nothing is.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

PR_SET_CHILD_SUBREAPER = 36
ORDER_BYTES = 4096
LEFT_S = 10.0
"""A tree is gone by then: after a killed init, some milliseconds on a machine that is not overloaded."""

Answer = dict[str, Any]


# -- the lane's side -------------------------------------------------------------------------------------------------


def serve(channel: socket.socket) -> None:
    """Orders come with the three descriptors of the wrapper; the pid is answered at once, the end when it is known."""
    for module in ("contain.cli.run", "contain.linux.backend"):
        importlib.import_module(module)  # so that no fork has to
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    while True:
        data, fds, _, _ = socket.recv_fds(channel, ORDER_BYTES, 3)
        if not data:
            return
        order = json.loads(data)
        pid = os.fork()
        if pid == 0:
            be_a_wrapper(order, fds)
        for fd in fds:
            os.close(fd)
        channel.send(json.dumps({"pid": pid}).encode())
        # It stays a zombie until it is waited for, so the pidfd that the other end opens is its.
        assert channel.recv(1) == b"w"
        _, status = os.waitpid(pid, 0)
        left = what_is_left(float(order.get("leftS", LEFT_S)))
        channel.send(json.dumps({"status": os.waitstatus_to_exitcode(status), "left": left}).encode())


def be_a_wrapper(order: Mapping[str, Any], fds: list[int]) -> None:
    """Never returns. What is set up here is what a shell would set up."""
    code = 1
    try:
        for to, fd in enumerate(fds):
            os.dup2(fd, to)
        os.closerange(3, 256)
        if order.get("stdout") == "closed":
            os.close(1)
        os.chdir(order["cwd"])
        words = ["run", order["receipts"]]
        if order.get("real"):
            os.execv(sys.executable, [sys.executable, "-m", "contain", *words])  # noqa: S606 - no shell is wanted
        if "sabotage" in order:
            SABOTAGES[order["sabotage"]]()
        from contain.cli.main import main  # noqa: PLC0415 - imported before the fork

        code = main(words)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def what_is_left(wait_s: float) -> list[str]:
    """Names of processes that outlive the wrapper for too long; they are ended. Usually nothing is, at once."""
    deadline_s = time.monotonic() + wait_s
    while time.monotonic() < deadline_s:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.001)
        except ChildProcessError:
            return []
    left = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in left]
    for pid in map(int, left):
        os.kill(pid, signal.SIGKILL)  # an unreaped child of ours: the number is its
        os.waitpid(pid, 0)
    return names


# -- what a checker must notice --------------------------------------------------------------------------------------


def replace(module: str, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Puts another function in the place of a module's."""
    found = importlib.import_module(f"contain.{module}")
    setattr(found, name, make(getattr(found, name)))


def any_token() -> None:
    """A wrapper that opens the gate for whatever comes after the request."""
    replace("lifecycle.host", "parse_action", lambda _: lambda _line, _request: None)


def raises() -> None:
    """A parser with a bug."""
    replace("cli.run", "parse_request", lambda _: {}.__getitem__)


def leaves() -> None:
    """A wrapper that forgets a child."""
    if os.fork() == 0:
        os.closerange(0, 256)
        time.sleep(60)
        os._exit(0)


def mute() -> None:
    """A wrapper that does not say how it ended."""
    replace(
        "lifecycle.loop",
        "line",
        lambda line: lambda message: b"" if message["event"] == "released" else line(message),
    )


def odd_exit() -> None:
    """A wrapper with an exit code that is not documented."""
    replace("cli.run", "main", lambda main: lambda words: main(words) + 3)


def hangs() -> None:
    """A wrapper that does not end."""

    def later(main: Callable[..., Any]) -> Callable[..., Any]:
        def run(words: list[str]) -> int:
            code: int = main(words)
            time.sleep(60)
            return code

        return run

    replace("cli.run", "main", later)


SABOTAGES: dict[str, Callable[[], None]] = {
    "any-token": any_token,
    "raises": raises,
    "leaves": leaves,
    "mute": mute,
    "odd-exit": odd_exit,
    "hangs": hangs,
}


# -- the test's side -------------------------------------------------------------------------------------------------


class Lane:
    """A running lane. One wrapper at a time."""

    def __init__(self, root: Path, path: Path) -> None:
        """``root`` is where contain is imported from; ``path`` the only directory in which commands are looked for."""
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={"PATH": str(path), "PYTHONPATH": str(root)},
            stdin=subprocess.DEVNULL,
        )
        theirs.close()

    def start(self, order: Mapping[str, object], fds: list[int]) -> int:
        """Starts a wrapper; returns a pidfd of it."""
        socket.send_fds(self._channel, [json.dumps(order).encode()], fds)
        pidfd = os.pidfd_open(int(self._answer()["pid"]))
        self._channel.send(b"w")
        return pidfd

    def end(self, wait_s: float) -> Answer:
        """How the wrapper ended and what it left. Raises TimeoutError."""
        self._channel.settimeout(wait_s)
        try:
            return self._answer()
        finally:
            self._channel.settimeout(None)

    def _answer(self) -> Answer:
        data = self._channel.recv(ORDER_BYTES)
        assert data, "the lane has died"
        found: Answer = json.loads(data)
        return found

    def close(self) -> None:
        """Ends the lane."""
        self._channel.close()
        self.process.wait()

    def __enter__(self) -> Self:
        """For ``with``."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes."""
        self.close()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
