"""The wrapper's side of a supervisor: start one by posix_spawn, talk to it, notice its end.

Never a fork of the wrapper: a process with threads or Objective-C in it may not run on in a forked child on Darwin.
"""

from __future__ import annotations

import errno
import os
import sys
import time

from contain.darwin import channel
from contain.errors import SetupFailed, UnsupportedPlatform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contain.backend import Birth
    from receipts import Anchor

ANSWER_S = 10.0
"""A fresh interpreter answers in some tens of milliseconds; no wait may be unbounded."""

CLOSE_S = 0.5
ABOVE_CHANNEL = 16

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "contain-anchor")
PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
START = (
    "import sys; sys.path.insert(0, sys.argv[3]);"
    " from contain.darwin.supervise import main; main(sys.argv[1], sys.argv[2])"
)


class Supervisor:
    """A running supervisor, with or without a job yet. It ends when ``close`` hangs up, once its job is over."""

    own: Sequence[Birth] = ()
    """Who of us is among the job's processes, and not of the job."""

    def __init__(self, library: str | None, program: str, *, own_session: bool) -> None:
        """Starts it. Raises UnsupportedPlatform."""
        import fcntl

        self._channel, theirs = channel.pair()
        low = theirs.detach()
        given = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, ABOVE_CHANNEL)
        os.close(low)
        words = [sys.executable, "-I", "-B", "-c", START, library or "", program, PACKAGES]
        try:
            self.pid = self._spawn(words, given, own_session=own_session)
        except OSError as error:
            self._channel.close()
            raise UnsupportedPlatform(
                f"The supervisor cannot be started ({error.strerror}).",
                advice="Look whether this Python can start itself, and how many processes there may be.",
            ) from None
        finally:
            os.close(given)
        self._reaped = False

    @staticmethod
    def _spawn(words: list[str], given: int, *, own_session: bool) -> int:
        actions: list[tuple[int, int] | tuple[int, int, int] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),  # whoever reads the wrapper's must see an end when the wrapper ends
            (os.POSIX_SPAWN_DUP2, 0, 2),
            (os.POSIX_SPAWN_DUP2, given, 3),
        ]
        if own_session:
            return os.posix_spawn(words[0], words, {}, file_actions=actions, setsid=True, setsigmask=())
        return os.posix_spawn(words[0], words, {}, file_actions=actions, setpgroup=0, setsigmask=())

    def fileno(self) -> int:
        """To poll for reading; -1 when it is closed."""
        return self._channel.fileno()

    @property
    def over(self) -> bool:
        """It has hung up: done, or killed."""
        return self._channel.over

    def launch(self, fds: Sequence[int], request: Mapping[str, object], block: bytes) -> None:
        """Asks for one job. Raises SetupFailed."""
        try:
            self._channel.send_with(fds, {"kind": "launch", "bytes": len(block), **request}, block)
        except OSError as error:
            raise self._gone(str(error.strerror)) from None

    def finish(self, proof: Mapping[str, object], any_fd: int) -> None:
        """Asks for the end of a recorded job. Raises SetupFailed."""
        try:
            self._channel.send_with([any_fd], {"kind": "finish", "proof": proof}, b"")
        except OSError as error:
            raise self._gone(str(error.strerror)) from None

    def order(self, order: str, **more: object) -> None:
        """One order; a supervisor that is gone is noticed by who listens to it."""
        try:
            self._channel.send({"order": order, **more})
        except OSError:
            pass

    def answer(self, wait_s: float = ANSWER_S) -> dict[str, object]:
        """The next message. Raises SetupFailed for a supervisor that is gone or says nothing."""
        found = self._channel.receive(time.monotonic() + wait_s)
        if found is None:
            raise self._gone("it is gone" if self.over else f"it said nothing for {wait_s:g} s")
        return found

    def said(self) -> dict[str, object] | None:
        """A message that has come; never waits."""
        return self._channel.receive(0.0)

    def _gone(self, why: str) -> SetupFailed:
        return SetupFailed(
            f"The supervisor (pid {self.pid}) does not answer ({why}).",
            step="supervisor",
            advice="Ask again; if it stays so, look what ends or stops it.",
        )

    def retire(self) -> None:
        """Its job is over, and it is our child: nothing else knows of it."""

    def close(self) -> None:
        """Hangs up, at which it ends its job, and reaps it where that is at once; it never waits for a job's end."""
        self._channel.close()
        until_s = time.monotonic() + CLOSE_S
        while not self._reap() and time.monotonic() < until_s:
            time.sleep(0.002)

    def _reap(self) -> bool:
        if not self._reaped:
            try:
                self._reaped = os.waitpid(self.pid, os.WNOHANG)[0] != 0
            except OSError as error:
                if error.errno != errno.ECHILD:
                    raise
                self._reaped = True  # a host that waits for whatever comes
        return self._reaped

    def abandon(self) -> None:
        """In a forked child: closes its copy."""
        self._channel.close()


def proof_of(message: Mapping[str, object]) -> Anchor:
    """The proof that ``ready`` brings."""
    from receipts import Anchor, decode

    return decode(Anchor, message["proof"], "proof")
