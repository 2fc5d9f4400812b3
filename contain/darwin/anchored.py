"""The supervisor's side of the anchor: spawn it as a leader, tell it the command, open its gate, hear its reports."""

from __future__ import annotations

import errno
import os

from contain.backend import birth_of
from contain.darwin import birth, census, channel, exact, wire
from receipts import Anchor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from contain.darwin.libproc import Libproc

WITNESS = "PROC_PIDUNIQIDENTIFIERINFO"


class Leader:
    """A spawned anchor. Until ``reap`` it pins its number, dead or alive."""

    def __init__(
        self, program: str, fds: Sequence[int], kept: Sequence[tuple[int, int]], *, session: bool
    ) -> None:
        """``fds``: 0, 1 and 2 of the job and its directory; ``kept``: (ours, the command's). Raises OSError."""
        self._channel, theirs = channel.pair()
        control = theirs.detach()
        directory = fds[3]
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, fd, to) for to, fd in enumerate(fds[:3])]
        actions += [(os.POSIX_SPAWN_DUP2, ours, to) for ours, to in kept]
        for fd in (control, directory):
            os.set_inheritable(fd, True)
        leading: Any = {"setsid": True} if session else {"setpgroup": 0}
        try:
            self.pid = os.posix_spawn(
                program,
                ["contain-anchor", str(control), str(directory)],
                {},
                file_actions=actions,
                setsigmask=(),
                **leading,
            )
        finally:
            os.close(control)
        self.fd = self._channel.fileno()
        self.reaped = False

    def prove(self, libproc: Libproc, *, session: bool, service: str | None) -> Anchor:
        """Its birth: it is our unreaped child, so the number is surely its. Raises OSError.

        ``service``: what launchd knows this supervisor as; then the anchor shares our coalition.
        """
        born = birth.take(libproc, self.pid)
        assert born.unique_id is not None  # ``take`` has read it
        proof = Anchor(
            pid=self.pid,
            uid=os.getuid(),
            boot_id=born.boot_id,
            unique_id=born.unique_id,
            start_us=born.start_ticks,
            scope=census.SESSION if session else census.GROUP,
            signal=exact.way(libproc),
            witness=WITNESS,
            coalition=None if service is None else libproc.coalition(self.pid),
            service=service,
        )
        if proof.coalition is not None and proof.coalition != libproc.coalition(os.getpid()):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        assert birth_of(proof) == born
        return proof

    def tell(self, block: bytes) -> None:
        """The command. Raises OSError."""
        self._channel.send_bytes(block)

    def open(self, *, foreground: bool) -> bool:
        """The gate; False where the anchor is gone. ``foreground``: the command takes the terminal."""
        return self._order(wire.open_order(foreground=foreground))

    def signal(self, number: int, *, everybody: bool) -> bool:
        """To the command's process alone, or to its whole group."""
        return self._order(wire.signal_order(number, everybody=everybody))

    def _order(self, order: bytes) -> bool:
        try:
            self._channel.send_bytes(order)
        except OSError:
            return False
        return True

    def report(self) -> wire.Report | None:
        """The next report; None: it is gone. Waits: call it when its end can be read."""
        data = self._channel.receive_bytes(wire.REPORT_BYTES)
        return wire.report(data) if len(data) == wire.REPORT_BYTES else None

    def readable(self, until_s: float) -> bool:
        """Whether there is a report, or its end."""
        return self._channel.readable(until_s)

    def reap(self) -> None:
        """Takes its status: from now on the number may be another's. It must be dead, or this waits for ever."""
        if not self.reaped:
            os.waitpid(self.pid, 0)
            self.reaped = True

    def hang_up(self) -> None:
        """The anchor kills its group at that, and itself."""
        self._channel.close()
