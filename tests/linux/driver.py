"""A wrapper's side of contain-init for tests: a keeper of any program and user, and one job at a time, step by step.

It says exactly what it is told to say, right or wrong, which the product's own wrapper never would.
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import os
import select
import shutil
import socket
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from contain.linux import native
from contain.linux.init_build import compile_program
from tests.session import WAIT_S, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NOBODY = 65534
USERS = ("root", "nobody")
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
USUAL = native.launch_request(200, 200, 0o022, None, {})
STEP_NUMBERS = {name: number for number, name in native.STEPS.items()}


class Report(NamedTuple):
    """A report of the init."""

    kind: int
    step: str
    error: int
    status: int
    pid: int
    proc_fresh: int
    leftovers: int
    reaped: int
    user_us: int
    system_us: int
    max_rss_bytes: int
    read_bytes: int
    written_bytes: int


def readable(fd: int, wait_s: float = 0.0) -> bool:
    """A poll says so within this time."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))


def sealed(data: bytes, seals: int = SEALS) -> int:
    """A memfd of these bytes."""
    fd = os.memfd_create("block", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def block(*command: str, env: Sequence[str] = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin",)) -> bytes:
    """The command block of a command that is found along the usual path."""
    paths = [os.fsencode(shutil.which(command[0]) or command[0])]
    return native.command_block(
        paths, [os.fsencode(word) for word in command], [text.encode() for text in env]
    )


class Launch:
    """One job, from the reply of the keeper on. Everything of it is closed by ``close``, which ends it."""

    def __init__(self, reply: tuple[int, str, int], pidfd: int, ends: tuple[socket.socket, int, int]) -> None:
        """Owns all that it is given."""
        self.error, self.step, self.pid = reply
        self.pidfd = pidfd
        self.control, self.gate, self.output = ends

    def report(self, wait_s: float = WAIT_S) -> Report | None:
        """The next report; None when the init has closed its end."""
        assert readable(self.control.fileno(), wait_s), "no report"
        try:
            data = self.control.recv(4096)
        except ConnectionResetError:
            # It left with an order unread. That is said once, and before what it had reported.
            data = self.control.recv(4096)
        if not data:
            return None
        found: Any = native.report(data)
        values = {name: int(getattr(found, name)) for name in Report._fields if name != "step"}
        return Report(step=native.STEPS[found.step], **values)

    def until(self, kind: int) -> Report:
        """Reads on until a report of this kind."""
        seen = []
        while (found := self.report()) is not None:
            if found.kind == kind:
                return found
            seen.append(found)
        raise AssertionError(f"the init ended without a report {kind}; it said {seen}")

    def order(self, data: bytes) -> None:
        """One order, as it is. An init that has ended meanwhile is no error: its reports say so."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.control.send(data)

    def arm(self) -> Launch:
        """Up to the closed gate."""
        assert self.error == 0, f"{self.step}: {os.strerror(self.error)}"
        assert self.until(native.READY).pid == 1
        self.order(native.arm_order())
        self.until(native.ARMED)
        return self

    def go(self, byte: bytes = native.GATE_BYTE) -> Launch:
        """Opens the gate, or tries to."""
        os.write(self.gate, byte)
        return self

    def read(self, wait_s: float = WAIT_S) -> str:
        """All that the job prints, up to the end of everything that holds its output."""
        found = b""
        while True:
            assert readable(self.output, wait_s), f"the job's output stays open after {found!r}"
            data = os.read(self.output, 65536)
            if not data:
                return found.decode(errors="replace")
            found += data

    def read_line(self) -> str:
        """One line of output, and nothing behind it."""
        found = b""
        while not found.endswith(b"\n"):
            assert readable(self.output, WAIT_S), f"no line, only {found!r}"
            data = os.read(self.output, 1)
            assert data, f"no line, only {found!r}"
            found += data
        return found.decode().strip()

    def gone(self, wait_s: float = WAIT_S) -> bool:
        """The init has ended, and its namespace with it."""
        return readable(self.pidfd, wait_s)

    def close(self) -> None:
        """Ends the job."""
        self.control.close()
        for fd in (self.gate, self.output, self.pidfd):
            if fd >= 0:
                os.close(fd)
        self.gate = self.output = self.pidfd = -1


class Keeper:
    """A keeper that this test process started; a user other than ours is vouched for with our privilege.

    It owns what it launches: a test that fails, or finds that it must skip, need not close its jobs.
    """

    def __init__(
        self, program: Path | str = native.PROGRAM, user: str = "root", *, through: Sequence[str] = ()
    ) -> None:
        """Starts it. ``through``: a command in front that executes the rest of its line."""
        if user == "nobody" and os.getuid() != 0:
            pytest.skip("capability: root, to become the user nobody")
        self.uid = NOBODY if user == "nobody" else os.getuid()
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        life, self.life = os.pipe()
        wrapper = os.pidfd_open(os.getpid())
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (theirs.fileno(), wrapper, life)]
        change = (
            ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
            if user == "nobody"
            else ()
        )
        words = [*through, *change, str(program), "keeper"]
        actions: list[Any] = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
        actions += [(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in zip(high, native.KEEPER_FDS, strict=True)]
        # Without an environment, as the product starts it: since Linux 6.14 CAP_PERFMON can read that of the init.
        path = shutil.which(words[0]) or words[0]
        self.pid = os.posix_spawn(path, words, {}, file_actions=actions, setsid=True)
        self.pidfd = os.pidfd_open(self.pid)
        self._launched: list[Launch] = []
        theirs.close()
        for fd in (wrapper, life, *high):
            os.close(fd)

    def send(self, data: bytes, fds: Sequence[int] = ()) -> None:
        """One message, as it is, from the keeper's own user."""
        ancillary: list[Any] = []
        if self.uid != os.getuid():
            ancillary.append(
                (
                    socket.SOL_SOCKET,
                    socket.SCM_CREDENTIALS,
                    struct.pack("iII", os.getpid(), self.uid, self.uid),
                )
            )
        if fds:
            ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds)))
        self.requests.sendmsg([data], ancillary)

    def reply(self) -> tuple[tuple[int, str, int], int]:
        """A launch_reply, and the pidfd that came with it or -1."""
        assert readable(self.requests.fileno(), WAIT_S), "the keeper does not answer"
        data, fds, _, _ = socket.recv_fds(self.requests, 4096, 1)
        assert len(data) == native.REPLY_BYTES, "the keeper has closed its end"
        return native.launch_reply(data), (fds[0] if fds else -1)

    def launch(
        self,
        data: bytes,
        *,
        request: bytes = USUAL,
        cwd: str = "/",
        seals: int = SEALS,
        more: Sequence[int] = (),
    ) -> Launch:
        """One job of this command block. ``more``: what travels after the seven, cgroups and kept descriptors."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        gate_read, gate = os.pipe()
        output, output_write = os.pipe()
        given = [
            theirs.detach(),
            gate_read,
            sealed(data, seals),
            os.open(cwd, os.O_PATH),
            os.open(os.devnull, os.O_RDONLY),
        ]
        try:
            self.send(request, [*given, output_write, output_write, *more])
            reply, pidfd = self.reply()
        except BaseException:
            ours.close()
            os.close(gate)
            os.close(output)
            raise
        finally:
            for fd in (*given, output_write):
                os.close(fd)
        self._launched.append(Launch(reply, pidfd, (ours, gate, output)))
        return self._launched[-1]

    def run(self, *command: str, request: bytes = USUAL) -> Launch:
        """One job, with its gate open."""
        return self.launch(block(*command), request=request).arm().go()

    def ended(self, wait_s: float = WAIT_S) -> bool:
        """The keeper has ended."""
        return readable(self.pidfd, wait_s)

    def close(self) -> None:
        """Ends it, and what it launched."""
        kill(self.pid)
        os.waitpid(self.pid, 0)
        for launch in self._launched:
            launch.close()
        self.requests.close()
        os.close(self.life)
        os.close(self.pidfd)


@contextlib.contextmanager
def keeper(
    program: Path | str = native.PROGRAM, user: str = "root", *, through: Sequence[str] = ()
) -> Iterator[Keeper]:
    """A keeper, and whatever it launched, ended afterwards."""
    started = Keeper(program, user, through=through)
    try:
        yield started
    finally:
        started.close()


@contextlib.contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that everybody may enter; gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="contain-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextlib.contextmanager
def public_program() -> Iterator[Path]:
    """contain-init, where everybody may execute it: a clone may be in a directory that only root may enter."""
    with public_folder() as folder:
        program = folder / "contain-init"
        compile_program(str(program))
        yield program


def run_to_end(launch: Launch) -> tuple[Report, str]:
    """EXITED and the output of a job whose gate is open; nothing is left of it then."""
    ended = launch.until(native.EXITED)
    launch.until(native.EMPTY)
    text = launch.read()
    wait_until(launch.gone, what="the init ends")
    launch.close()
    return ended, text
