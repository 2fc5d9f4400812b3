"""Signals of this process as data: a handler writes the number to a pipe. Who sent one is not known on Darwin."""

from __future__ import annotations

import os

from contain.backend import Caught
from contain.csignal import csignal as signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

READ_BYTES = 256


class SignalSource:
    """Takes ``numbers`` for good; ``fd`` is readable when one has come. For the main thread."""

    def __init__(self, numbers: Iterable[int]) -> None:
        """Also unblocks every signal, as a caller's mask is none of the wrapper's."""
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._wanted = frozenset(numbers)
        for number in self._wanted:
            signal.signal(number, self._noted)

    @staticmethod
    def _noted(number: int, frame: object) -> None:
        """The wake-up descriptor already has the number."""

    def read(self) -> list[Caught]:
        """What has come; never blocks."""
        try:
            numbers = os.read(self.fd, READ_BYTES)
        except BlockingIOError:
            return []
        return [Caught(number=number, by_terminal=False) for number in numbers if number in self._wanted]
