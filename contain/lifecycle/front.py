"""The wrapper in front of one command (``contain exec``): signals go in, nothing else; the command has the rest."""

from __future__ import annotations

import os
import select
import time

from contain.backend import Caught, CommandStopped, Deadline
from contain.csignal import csignal as signal
from contain.csignal import name_of
from contain.job import Abort
from contain.lifecycle import terminal
from contain.lifecycle.host import Ended
from contain.protocol import LONGEST_MS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Protocol

    from contain.backend import Backend, Containment, Event
    from contain.lifecycle.life import Life
else:
    Protocol = object

FORWARDED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
    signal.SIGALRM,
)


class Companion(Protocol):
    """What else the wrapper does while its job runs. Nothing in it waits."""

    def fds(self) -> Sequence[int]:
        """What to poll for reading."""

    def due_s(self) -> float | None:
        """When it wants a turn in any case, monotonic."""

    def turn(self, ready: Iterable[int], containment: Containment) -> None:
        """Called after each wake-up; ``ready`` holds descriptors of others too."""


ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)


class Front:
    """What a caller's signals mean for a job. TERM asks for its end; the others are handed to the command."""

    def __init__(self, backend: Backend, *, terminal_fd: int | None, cancel_ms: int) -> None:
        """``terminal_fd``: the controlling terminal, None for a job in a session of its own."""
        signal.signal(
            signal.SIGCHLD, signal.SIG_DFL
        )  # a caller that ignores it would lose us the keeper's end
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        # nohup: a caller that ignores HUP wants the job to outlive its terminal.
        ignored = {number for number in FORWARDED if signal.getsignal(number) == signal.SIG_IGN}
        self._source = backend.catch({signal.SIGTERM, *FORWARDED} - ignored)
        self._terminal_fd = terminal_fd
        self._had_terminal = terminal_fd is not None and terminal.in_foreground(terminal_fd)
        self._cancel_ms = cancel_ms
        self.fd = self._source.fd
        self.first: int | None = None

    def asked(self) -> str | None:
        """While there is no job yet: the name of a signal that ends the wait for it, or None."""
        for caught in self._source.read():
            if caught.number in ENDING:
                self.first = self.first or caught.number
                return name_of(caught.number)
        return None

    def stopped(self) -> str | None:
        """The same, and still the name when it is asked again: where the wait's own end would wait as well."""
        return self.asked() or (name_of(self.first) if self.first is not None else None)

    def events(self) -> list[Event]:
        """What came, as events of the job. What a terminal sent to our group has reached the job by itself."""
        found: list[Event] = []
        for caught in self._source.read():
            if caught.number == signal.SIGTERM:
                found.append(Ended(abort=Abort(cause="canceled", by="SIGTERM", grace_ms=self._cancel_ms)))
            elif self._terminal_fd is None or not caught.by_terminal:
                found.append(caught)
        return found

    def stop(self) -> None:
        """Stops this process, as its command has stopped, so that the caller's shell takes the terminal back.

        Returns when somebody continues us; the CONT that did it is then the command's too. What had the keyboard
        inside gets it back, if we are in the foreground again.
        """
        fd = self._terminal_fd
        if fd is None:
            return
        group = terminal.group(fd)
        os.kill(os.getpid(), signal.SIGSTOP)
        if group is not None and terminal.in_foreground(fd):
            terminal.give(fd, group)

    def leave(self) -> None:
        """The job is over: the terminal is the caller's again."""
        fd = self._terminal_fd
        if fd is not None and self._had_terminal and not terminal.in_foreground(fd):
            terminal.give(fd, os.getpgrp())


def carry(life: Life, front: Front, beside: Companion | None = None) -> None:
    """Runs a life to its end, and whatever has to be done beside it."""
    way = life.run()
    try:
        wait_until_s = next(way)
        while True:
            for event in _happened(front, life.containment, wait_until_s, beside):
                wait_until_s = way.send(event)
    except StopIteration:
        return
    finally:
        front.leave()


def _happened(
    front: Front, containment: Containment, until_s: float | None, beside: Companion | None
) -> list[Event]:
    poll = select.poll()
    for fd in (front.fd, *containment.fds(), *(beside.fds() if beside else ())):
        poll.register(fd, select.POLLIN)
    dues_s = [at_s for at_s in (until_s, beside.due_s() if beside else None) if at_s is not None]
    wait_ms = min(max(0.0, min(dues_s) - time.monotonic()) * 1000, LONGEST_MS) if dues_s else None
    ready = {fd for fd, _ in poll.poll(wait_ms)}
    if beside is not None:
        beside.turn(ready, containment)
    # The containment first: how the command ended is the truth, even if somebody asks for its end in the same moment.
    found = containment.events() if ready.intersection(containment.fds()) else []
    stopped = any(isinstance(event, CommandStopped) for event in found)
    # Looked at after a stop in any case: the poll may have returned before we were stopped, and be told of now.
    if front.fd in ready or stopped:
        found += front.events()
    # After Ctrl-Z both of us were stopped, and the CONT that woke us has woken the command: that stop is over.
    if stopped and not any(isinstance(event, Caught) and event.number == signal.SIGCONT for event in found):
        front.stop()
        found += front.events()
    return found or [Deadline()]
