"""Signals of this process as data, each with whether the kernel itself (a terminal) sent it. See signalfd(2)."""

from __future__ import annotations

import os

from contain.backend import Caught
from contain.csignal import csignal as signal
from contain.linux import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

SIGINFO_BYTES = 128
CODE_AT = 8
"""Of ssi_code in struct signalfd_siginfo: after ssi_signo and ssi_errno."""
SI_KERNEL = 0x80


class SignalSource:
    """Blocks ``numbers`` in this thread for good; ``fd`` is readable when one has come."""

    def __init__(self, numbers: Iterable[int]) -> None:
        """Also unblocks every other signal, as a caller's mask is none of the wrapper's."""
        wanted = set(numbers)
        signal.pthread_sigmask(signal.SIG_SETMASK, wanted)
        self.fd = native.signal_fd(wanted)

    def read(self) -> list[Caught]:
        """What has come; never blocks."""
        try:
            data = os.read(self.fd, SIGINFO_BYTES * 16)
        except BlockingIOError:
            return []
        found = []
        for at in range(0, len(data), SIGINFO_BYTES):
            number = int.from_bytes(data[at : at + 4], "little")
            code = int.from_bytes(data[at + CODE_AT : at + CODE_AT + 4], "little", signed=True)
            found.append(Caught(number=number, by_terminal=code == SI_KERNEL))
        return found
