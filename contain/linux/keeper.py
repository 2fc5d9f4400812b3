"""The wrapper's side of the keeper: start it, ask it for inits, notice its end.

The keeper is started by posix_spawn and never forked by Python: no Python runs between a clone and an execve.
"""

from __future__ import annotations

import errno
import os
import select
import time

from contain.csignal import csignal as signal
from contain.errors import SetupFailed, UnsupportedPlatform
from contain.linux import channel, host, native

ANSWER_S = 5.0
"""A keeper answers in a tenth of a millisecond; one that is stopped never does, and no wait may be unbounded."""

CLOSE_S = 1.0
"""A keeper is dead some microseconds after its lifeline closes."""

ABOVE_STDIO = 10

RESETTABLE = [number for number in range(1, signal.NSIG) if number not in (32, 33)]
"""Every signal but the two that glibc keeps for its threads and refuses to touch."""


class Launched:
    """What the keeper hands back: the init's number and a pidfd, the only thing that is ever signalled."""

    def __init__(self, pid: int, pidfd: int) -> None:
        """Owns ``pidfd``."""
        self.pid = pid
        self.pidfd = pidfd


class Denied(Exception):
    """The keeper could not launch: ``step`` and ``errno``."""

    def __init__(self, step: str, number: int) -> None:
        """As the launch_reply says."""
        super().__init__(f"{step}: {os.strerror(number)}")
        self.step = step
        self.errno = number


def program() -> str:
    """A path that can be executed. On a noexec site-packages that is a memfd with the program's bytes."""
    if os.access(native.PROGRAM, os.X_OK) and not os.statvfs(native.PROGRAM).f_flag & os.ST_NOEXEC:
        return native.PROGRAM
    try:
        with open(native.PROGRAM, "rb") as source:
            data = source.read()
    except OSError as error:
        raise UnsupportedPlatform(
            f"contain-init cannot be read ({error.strerror}).",
            advice="Install the package again, from a wheel or with gcc.",
        ) from None
    copy = os.memfd_create("contain-init")  # closed with this process: the keeper is started once
    os.write(copy, data)
    return f"/proc/self/fd/{copy}"


def _high(fd: int) -> int:
    """A copy out of the way of the numbers that the spawn fills; closes the original."""
    import fcntl

    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, ABOVE_STDIO)
    os.close(fd)
    return copy


def _own_pidfd() -> int:
    """A pidfd of this process. Raises UnsupportedPlatform: without pidfds nothing can be proven."""
    try:
        return os.pidfd_open(os.getpid())
    except OSError as error:
        raise UnsupportedPlatform(
            f"pidfd_open is refused here ({error.strerror}).",
            advice="contain needs Linux 5.10 or later; in a container, a seccomp profile that allows pidfd_open.",
        ) from None


class Keeper:
    """A running keeper. It and all its inits end when this object is closed, and when this process ends."""

    def __init__(self, *, shared_session: bool = False) -> None:
        """Starts the keeper, in a session of its own or (for a terminal) in this process's.

        Raises UnsupportedPlatform where the program cannot be executed.
        """
        self._requests, theirs = channel.pair()
        # On their end and before the start: the kernel stamps a message with its sender only if the receiver
        # wants that at the time of sending.
        channel.want_sender(theirs)
        life_read, self._life = os.pipe()
        self._wrapper = _high(_own_pidfd())
        given = (_high(theirs.detach()), self._wrapper, _high(life_read))
        try:
            self.pid = self._spawn(given, own_session=not shared_session)
        finally:
            os.close(given[0])
            os.close(given[2])
        self.pidfd = os.pidfd_open(self.pid)
        self._owed = 0
        """Answers that came too late, or are still to come: each belongs to a launch that was given up."""

    def _spawn(self, given: tuple[int, int, int], *, own_session: bool) -> int:
        actions: list[tuple[int, int] | tuple[int, int, int] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
        actions += [(os.POSIX_SPAWN_DUP2, fd, to) for fd, to in zip(given, native.KEEPER_FDS, strict=True)]
        try:
            return os.posix_spawn(
                program(),
                ["contain-init", "keeper"],
                {},  # the job's environment travels in a memfd; ours stays out of /proc/KEEPER/environ
                file_actions=actions,
                setsid=own_session,
                setsigmask=(),
                setsigdef=RESETTABLE,
            )
        except OSError as error:
            if error.errno in host.NO_ROOM:
                raise SetupFailed(
                    f"The keeper cannot be started ({error.strerror}): {host.NO_ROOM_WHY}.",
                    detail=errno.errorcode[error.errno],
                    advice=host.NO_ROOM_ADVICE,
                ) from None
            # glibc spawns by clone3 and takes no EPERM for an answer, as Docker's profile of 2020 gives it.
            advice = (
                "Use a seccomp profile that answers clone3 (Docker 20.10.10 or later)."
                if error.errno == errno.EPERM
                else "Install contain on a file system without noexec, and for this machine's processor."
            )
            raise UnsupportedPlatform(
                f"contain-init cannot be started ({error.strerror}).", advice=advice
            ) from None

    def ask(self, request: bytes, fds: list[int]) -> None:
        """Asks for one init; ``answer`` must follow. Raises SetupFailed for a keeper that is gone or still deaf."""
        if self._owed and not _readable(self._requests.fileno(), 0.0):
            raise self._deaf()  # at once: whoever launches many must not wait for it again and again
        try:
            channel.send_fds(self._requests, request, fds)
        except OSError as error:
            raise self._gone(str(error.strerror)) from None

    def answer(self) -> Launched:
        """The init that was asked for. Raises Denied, or SetupFailed for a keeper that is gone or deaf."""
        deadline_s = time.monotonic() + ANSWER_S
        while self._owed:
            _, late = self._next_answer(deadline_s)
            self._owed -= 1
            if late >= 0:
                os.close(late)  # its init has seen its control socket closed, and ends
        data, pidfd = self._next_answer(deadline_s)
        number, step, pid = native.launch_reply(data) if len(data) == native.REPLY_BYTES else (0, "clone", 0)
        if number:
            raise Denied(step, number)
        if pidfd < 0:
            raise self._gone("it closed the connection")
        return Launched(pid, pidfd)

    def _next_answer(self, deadline_s: float) -> tuple[bytes, int]:
        if not _readable(self._requests.fileno(), deadline_s):
            self._owed += (
                1  # answers come in the order of the requests: the next one to come is not the next launch's
            )
            raise self._deaf()
        try:
            return channel.receive_fd(self._requests, native.REPLY_BYTES)
        except OSError as error:
            raise self._gone(str(error.strerror)) from None

    def _deaf(self) -> SetupFailed:
        return SetupFailed(
            f"The keeper (pid {self.pid}) has not answered within {ANSWER_S:g} s.",
            step="clone",
            advice="Look whether something has stopped it (state T); then ask again.",
        )

    def _gone(self, why: str) -> SetupFailed:
        return SetupFailed(
            f"The keeper (pid {self.pid}) is gone ({why}).",
            step="clone",
            advice="Ask again with a new contain run.",
        )

    def lost(self, wait_s: float = 0.0) -> bool:
        """True when the keeper has ended, looking for up to ``wait_s``."""
        return _readable(self.pidfd, time.monotonic() + wait_s)

    def reap(self) -> None:
        """Takes the status of a keeper that has ended. By its pidfd: the number may be another child's by now."""
        try:
            os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            pass  # a host that ignores SIGCHLD, or waits for whatever comes: it is reaped

    def close(self) -> None:
        """Ends the keeper, and with it every init of this process, and reaps it.

        One that is frozen, or traced from outside, is dead only when it is let go: it is left to that.
        """
        self._requests.close()
        os.close(self._life)  # the kernel kills the keeper, were it stopped
        self.lost(CLOSE_S)
        self.reap()
        os.close(self.pidfd)
        os.close(self._wrapper)

    def abandon(self) -> None:
        """In a forked child: closes its copies. The keeper and its inits are the parent's, and live on."""
        self._requests.close()
        for fd in (self._life, self.pidfd, self._wrapper):
            os.close(fd)


def _readable(fd: int, deadline_s: float) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000))
