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

FROM_TERMINAL = (signal.SIGTSTP, signal.SIGWINCH)
"""Besides INT and QUIT. Handed on where the job is not in our group, and so does not hear them from the terminal."""

WANTS_TERMINAL = (signal.SIGTTIN, signal.SIGTTOU)
"""What stops a command that reads, or changes the terminal, without having the keyboard."""


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
        self._apart = terminal_fd is not None and not backend.shares_group
        wanted = (*FORWARDED, *FROM_TERMINAL) if self._apart else FORWARDED
        ignored = {number for number in wanted if signal.getsignal(number) == signal.SIG_IGN}
        if self._apart:
            ignored.discard(signal.SIGCONT)  # it tells us that we were stopped
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # the job has the keyboard, and our words go out
        self._source = backend.catch({signal.SIGTERM, *wanted} - ignored)
        self._terminal_fd = terminal_fd
        self._has_terminal = terminal_fd is not None and terminal.in_foreground(terminal_fd)
        self._reader: int | None = None  # the group inside that is to have the keyboard when we are given it
        self._cancel_ms = cancel_ms
        self.fd = self._source.fd
        self.first: int | None = None

    def asked(self) -> str | None:
        """While there is no job yet: the name of a signal that ends the wait for it, or None."""
        for caught in self._source.read():
            if caught.number in ENDING:
                self.first = self.first or caught.number
                return name_of(caught.number)
            if caught.number == signal.SIGTSTP:
                _stop_by(signal.SIGTSTP, everybody=False)
        return None

    def stopped(self) -> str | None:
        """The same, and still the name when it is asked again: where the wait's own end would wait as well."""
        return self.asked() or (name_of(self.first) if self.first is not None else None)

    def events(self) -> list[Event]:
        """What came, as events of the job. What a terminal sent to our group has reached the job by itself."""
        found: list[Event] = []
        for caught in self._source.read():
            if caught.number == signal.SIGTERM:
                found.append(self._end("SIGTERM"))
            elif self._terminal_fd is None or not caught.by_terminal:
                found.append(caught)
            if caught.number == signal.SIGCONT:
                self._continued()
        return found

    def _end(self, by: str) -> Ended:
        return Ended(abort=Abort(cause="canceled", by=by, grace_ms=self._cancel_ms))

    def _continued(self) -> None:
        """By ``fg`` or ``bg``. What had the keyboard inside gets it back, if we are in the foreground again."""
        fd = self._terminal_fd
        if fd is None:
            return
        self._has_terminal = terminal.in_foreground(fd)
        if self._has_terminal and self._reader is not None:
            reader, self._reader = self._reader, None
            terminal.give(fd, reader)

    def stop(self, how: CommandStopped) -> list[Event]:
        """Stops this process, as its command has stopped, so that the caller's shell takes the terminal back.

        Returns what came when somebody continued us; the CONT that did it is then the command's too. A command that
        stopped because it wants the keyboard, and may have it, is lent it instead.
        """
        fd = self._terminal_fd
        if fd is None:
            return []
        number, reader = how.number or signal.SIGSTOP, terminal.group(fd)
        is_ours = reader == os.getpgrp()
        if is_ours and number in WANTS_TERMINAL and how.group is not None:
            self._has_terminal = True
            terminal.give(fd, how.group)
            return [_handed(signal.SIGCONT)]
        if self._has_terminal and not is_ours:
            self._reader = reader
            terminal.give(fd, os.getpgrp())
        # What was typed while the job had the keyboard has not reached those who are in our group with us.
        _stop_by(number, everybody=number != signal.SIGSTOP and not is_ours)
        found = self.events()
        if number == signal.SIGSTOP or any(map(_is_cont, found)):
            return found
        # Nobody could continue us (an orphaned group), so we were not stopped: nor may the job be. If it waits for the
        # terminal, nobody can ever give it that: bare its read would fail, which is not ours to do.
        self._continued()
        return [*found, self._end(name_of(number)) if number in WANTS_TERMINAL else _handed(signal.SIGCONT)]

    def leave(self, died_of: int | None) -> None:
        """The job is over: the terminal is the caller's again."""
        fd = self._terminal_fd
        if fd is None or not self._has_terminal or terminal.in_foreground(fd):
            return
        terminal.give(fd, os.getpgrp())
        if not self._apart:
            return
        if died_of in (signal.SIGINT, signal.SIGQUIT):
            # As a shell takes it that has given its terminal away: whoever typed this meant the script around us too.
            signal.signal(died_of, signal.SIG_IGN)
            os.killpg(0, died_of)
        os.killpg(0, signal.SIGCONT)  # a pager that wanted the keyboard meanwhile was stopped


def _handed(number: int) -> Caught:
    return Caught(number=number, by_terminal=False)


def _is_cont(event: Event) -> bool:
    return isinstance(event, Caught) and event.number == signal.SIGCONT


def _stop_by(number: int, *, everybody: bool) -> None:
    """Stops this process, or its whole group, as if it did not know the signal. Returns when it is continued."""
    if number == signal.SIGSTOP:
        os.kill(os.getpid(), number)
        return
    before = signal.signal(number, signal.SIG_DFL)
    try:
        os.kill(0 if everybody else os.getpid(), number)
    finally:
        signal.signal(number, before)


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
        outcome = life.receipt.outcome if life.receipt is not None else None
        front.leave(outcome.signal if outcome is not None else None)


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
    stop = next((event for event in found if isinstance(event, CommandStopped)), None)
    # Looked at after a stop in any case: the poll may have returned before we were stopped, and be told of now.
    if front.fd in ready or stop is not None:
        found += front.events()
    # After Ctrl-Z both of us were stopped, and the CONT that woke us has woken the command: that stop is over.
    if stop is not None and not any(map(_is_cont, found)):
        found += front.stop(stop)
    return found or [Deadline()]
