"""The wrapper's loop: one host on two descriptors, one containment, signals, and the time; no thread, no busy wait."""

from __future__ import annotations

import os
import select
import time

from contain.backend import Deadline
from contain.csignal import csignal as signal
from contain.csignal import name_of
from contain.errors import ProtocolViolation
from contain.job import Abort
from contain.lifecycle.host import Ended, Violated, host_event
from contain.protocol import LONGEST_MS, LineReader, reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from contain.backend import Containment, Event
    from contain.lifecycle.life import Life
    from contain.protocol import Request

READ_BYTES = 65536
WRITE_S = 5.0
"""A host that does not read for so long is taken for gone; a reply is never waited for without an end."""

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """INT, TERM and HUP as events: a handler writes to a pipe, and the poll sees it."""

    def __init__(self) -> None:
        """Also undoes what the caller may have left: a blocked mask, and SIGCHLD ignored, which loses exits."""
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in ENDING_SIGNALS:
            # nohup: a caller that ignores HUP wants the job to outlive its terminal.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._noted)
        self.first: int | None = None

    @staticmethod
    def _noted(number: int, frame: object) -> None:
        """The wake-up descriptor already has the number."""

    def read(self) -> list[Event]:
        """The signals that came."""
        try:
            numbers = os.read(self.fd, 64)
        except BlockingIOError:
            return []
        ending = [number for number in numbers if number in ENDING_SIGNALS]
        self.first = self.first or next(iter(ending), None)
        return [Ended(abort=Abort(cause="canceled", by=name_of(number))) for number in ending]


class Host:
    """The two ends of the protocol: lines in, replies out. Its end, on either side, is an event."""

    def __init__(self, input_fd: int = 0, output_fd: int = 1) -> None:
        """Borrows both descriptors."""
        self.fd = input_fd
        self.gone = False
        self._output = output_fd
        self._reader = LineReader()
        self._lines: list[bytes] = []
        self._lost: list[Event] = []
        self.request: Request | None = None

    def _end(self, by: str) -> Event:
        self.gone = True
        return Ended(abort=Abort(cause="canceled", by=by))

    def read_line(self) -> bytes | None:
        """One line, when a whole one is there; None when not yet. Sets ``gone`` at EOF. Raises ProtocolViolation."""
        if self._lines:
            return self._lines.pop(0)
        try:
            data = os.read(self.fd, READ_BYTES)
        except OSError:
            data = b""  # a terminal that hung up, a directory: nothing more will come
        self.gone = not data
        self._lines += self._reader.feed(data)
        if self.gone and self._reader.unfinished:
            raise ProtocolViolation(
                "The input ended inside a line.", advice="End every message with a line feed."
            )
        return self._lines.pop(0) if self._lines else None

    def pending(self) -> bool:
        """Events wait that no descriptor will announce."""
        return bool(self._lost or self._lines)

    def events(self, *, readable: bool) -> list[Event]:
        """What the host said. Never blocks when ``readable`` is true only after a poll said so."""
        assert self.request is not None  # set before the loop starts
        found, self._lost = self._lost, []
        if readable and not self.gone:
            try:
                data = os.read(self.fd, READ_BYTES)
                self._lines += self._reader.feed(data)
                if not data:
                    found.append(self._end("eof"))
            except ProtocolViolation as error:
                found.append(Violated(error=error))
                self.gone = True
            except OSError:
                found.append(self._end("eof"))
        lines, self._lines = self._lines, []
        return [host_event(text, self.request) for text in lines] + found

    def say(self, message: Mapping[str, object], spelled_id: str | None) -> None:
        """One reply; ``event`` and ``id`` come first. A host that reads no more is an EOF, and nothing is raised."""
        data = memoryview(reply(message, spelled_id))
        poll = select.poll()
        poll.register(self._output, select.POLLOUT)
        deadline_s = time.monotonic() + WRITE_S
        while data:
            try:
                if not poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
                    break
                # A pipe that polls writable takes PIPE_BUF at once; more could block.
                data = data[os.write(self._output, data[: select.PIPE_BUF]) :]
            except OSError:
                break
        if data:
            self._lost.append(self._end("reader-gone"))


def carry(life: Life, host: Host, signals: Signals) -> None:
    """Runs a life to its end. Everything that happens reaches it in the order in which the descriptors are polled."""
    way = life.run()
    try:
        wait_until_s = next(way)
        while True:
            for event in _happened(host, signals, life.containment, wait_until_s):
                wait_until_s = way.send(event)
    except StopIteration:
        return


def _happened(host: Host, signals: Signals, containment: Containment, until_s: float | None) -> list[Event]:
    poll = select.poll()
    for fd in (signals.fd, *containment.fds()):
        poll.register(fd, select.POLLIN)
    if not host.gone:
        poll.register(host.fd, select.POLLIN)
    wait_ms = None if until_s is None else min(max(0.0, until_s - time.monotonic()) * 1000, LONGEST_MS)
    ready = {fd for fd, _ in poll.poll(0 if host.pending() else wait_ms)}
    found: list[Event] = []
    # The containment first: how the command ended is the truth, even if somebody asks for its end in the same moment.
    if ready.intersection(containment.fds()):
        found += containment.events()
    if signals.fd in ready:
        found += signals.read()
    found += host.events(readable=host.fd in ready)
    if not found and until_s is not None and time.monotonic() >= until_s:
        found.append(Deadline())
    return found
