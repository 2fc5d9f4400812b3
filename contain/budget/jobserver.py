"""A private GNU make jobserver for one permit: children share the granted units, and follow them up and down.

One byte in a pipe is one token; a client takes one for every worker beyond its first and puts it back.

    fifo    named in MAKEFLAGS; GNU make 4.4, ninja 1.13 and cargo open it. make 4.3 dies of the name. Tokens that come
            back are in the same pipe, so a hungry client is often faster than we are when they should be fewer.
    pipe    two kept descriptors, numbered in MAKEFLAGS; every make, cargo; ninja 1.13 of some builders. They are the
            ends of two pipes, with us between: what comes back is handed on only if it is still to be had.

What the children read is a FIFO in both forms, so that ours is a description of its own: non-blocking, while theirs
stays as make expects.

See "POSIX Jobserver Interaction" in the GNU make manual, and pipe(7).
"""

from __future__ import annotations

import fcntl
import os
import sys
import termios

from contain.errors import SetupFailed

FIFO, PIPE = "fifo", "pipe"
TOKEN = b"+"

MOST_UNITS = 4096
"""One page: the least that a pipe holds when a user's pipe buffers are used up (pipe(7), pipe-user-pages-soft). So no
put of a token ever finds it full, ours or a client's."""

FD_SETSIZE = 1024
"""GNU make waits with pselect(2), which knows no descriptor from here on."""

PIECE_BYTES = 4096

FIRST_WITH_FIFO = (4, 4)
"""GNU make: older ones call a name in --jobserver-auth an internal error and end."""


def form_for(make: tuple[int, ...] | None) -> str:
    """The form that no tool of this machine dies of. ``make``: the version of its GNU make, None if it has none."""
    return PIPE if make is not None and make < FIRST_WITH_FIFO else FIFO


def make_version(banner: str) -> tuple[int, ...] | None:
    """(4, 3) from the first line of ``make --version``; None for what is not GNU make."""
    words = banner.split("\n", 1)[0].split()
    if words[:2] != ["GNU", "Make"] or len(words) < len(("GNU", "Make", "4.3")):
        return None
    return tuple(int(part) for part in words[2].split(".") if part.isascii() and part.isdigit())


def _refused(why: str | None) -> SetupFailed:
    return SetupFailed(
        f"The jobserver of the permit could not be made ({why}).",
        step="jobserver",
        advice="Run it without one: the hints still hold. Or free descriptors and space.",
    )


def path_of(directory: str, name: str) -> str:
    """Where the FIFO of a permit is; what a killed wrapper left there may be unlinked by whoever proves it gone."""
    return os.path.join(directory, f"jobserver-{name}")


class Jobserver:
    """The tokens of one permit. Nothing here ever waits.

    ``out`` never exceeds the units that were ever in force less one: tokens are put only for units, and a token that a
    killed client took along is put again only when too few processes are left to hold it (``audit``).
    """

    def __init__(self, directory: str, name: str, units: int, *, form: str = FIFO) -> None:
        """Makes it, with ``units - 1`` tokens: the first unit is the one that every client has already.

        ``directory`` is private to the account. Raises SetupFailed; then nothing is left.
        """
        path = path_of(directory, name)
        # Blanks and backslashes end a word of MAKEFLAGS, and descriptors have neither.
        self.form = PIPE if form == PIPE or any(mark in path for mark in " \t\n\\") else FIFO
        self.keep_fds: tuple[int, ...] = ()
        """For Job.keep_fds: the read and the write end, blocking; () in the form of a FIFO."""
        self._path: str | None = None
        self._fd = -1
        self._to_clients = -1
        self._returns = -1
        self._target = max(1, min(units, MOST_UNITS))
        self._put = 0
        self._suspected = 0
        self.lost = 0
        """Tokens that were put again since, because their takers were killed."""
        try:
            os.mkfifo(path, 0o600)
            self._path = path
            # One for each direction: of one with both, FIONREAD counts nothing on Darwin (from source).
            self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._to_clients = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if self.form == PIPE:
                self.keep_fds = (os.open(path, os.O_RDONLY | os.O_CLOEXEC),)
                self._returns, back = os.pipe()
                self.keep_fds += (back,)
                os.set_blocking(self._returns, False)
                self._unlink()
        except OSError as error:
            self.close()
            raise _refused(error.strerror) from None
        if max(self.keep_fds, default=0) >= FD_SETSIZE:
            self.close()
            raise _refused(f"make takes no descriptor above {FD_SETSIZE - 1}")
        self.settle()

    @property
    def auth(self) -> str:
        """What stands behind ``--jobserver-auth=``."""
        return f"fifo:{self._path}" if self.form == FIFO else ",".join(map(str, self.keep_fds))

    @property
    def units(self) -> int:
        """Units that the children may be using now: the target, and what has not come back since it fell."""
        return self._put + 1

    @property
    def target(self) -> int:
        """Units that were asked for last."""
        return self._target

    @property
    def settled(self) -> bool:
        """Everything above the target has come back, and everything below it was put."""
        return self.units == self._target

    @property
    def out(self) -> int:
        """Tokens that clients hold now, or took along when they were killed."""
        return max(0, self._put - self.idle)

    @property
    def idle(self) -> int:
        """Tokens that nobody has."""
        return _waiting_bytes(self._fd) + (_waiting_bytes(self._returns) if self._returns >= 0 else 0)

    def fds(self) -> tuple[int, ...]:
        """What to poll for reading, then ``settle``. A FIFO only while tokens are to come back, else it is readable."""
        if self._returns >= 0:
            return (self._returns,)
        return (self._fd,) if self.units > self._target else ()

    def resize(self, units: int) -> None:
        """Moves to another target: up at once, down as tokens come back. At least 1, at most ``MOST_UNITS``."""
        self._target = max(1, min(units, MOST_UNITS))
        self.settle()

    def settle(self) -> bool:
        """Puts what is missing, takes what is too much and can be had. True when nothing is left to do.

        Call this as soon as ``fds`` are readable: in the form of a pipe nobody gets a returned token before it, and in
        that of a FIFO we are one reader among others. Each step of the client that ends is another chance.
        """
        if self._returns >= 0:
            self._hand_on()
        missing = self._target - self.units
        if missing > 0:
            self._put += self._write(missing)
        elif missing < 0:
            self._put -= self._read(-missing)
        # More in the pipe than was ever put: a taker believed lost was alive, or a client counts badly.
        surplus = self.idle - self._put
        if surplus > 0:
            self._read(surplus)
            self.lost = max(0, self.lost - surplus)
        return self.settled

    def _hand_on(self) -> None:
        """What came back: out of the world if there are too many, else to whoever wants it next."""
        with_clients = self._put - _waiting_bytes(self._fd)
        back = 0
        while piece := self._read_from(self._returns, PIECE_BYTES):
            back += piece
        # More than was out: a taker believed lost was alive, or a client counts badly.
        surplus = max(0, back - with_clients)
        self.lost = max(0, self.lost - surplus)
        back -= surplus
        dropped = min(back, max(0, self.units - self._target))
        self._put += self._write(back - dropped) - back

    def audit(self, tasks: int) -> int:
        """Puts again what killed clients took along; returns how many tokens that was.

        ``tasks``: processes and threads of the tree now; one token has at least one of them, and one task more has the
        unit that needs no token. What is missing beyond that is lost, once two audits in a row have said so: between a
        client's read and its fork a token has nobody. Call it about once a second. A wrong guess corrects itself, since
        the token that comes back after all is taken out.
        """
        self.settle()
        missing = max(0, self.out - max(0, tasks - 1))
        gone = min(missing, self._suspected)
        self._suspected = missing - gone
        if gone:
            self._put -= gone
            self.lost += gone
            self.settle()
        return gone

    def close(self) -> None:
        """Lets go of everything. Clients that still read see the end of the pipe; the tree is to be gone by now."""
        for fd in (self._fd, self._to_clients, self._returns, *self.keep_fds):
            if fd >= 0:
                os.close(fd)
        self._fd, self._to_clients, self._returns, self.keep_fds = -1, -1, -1, ()
        self._unlink()

    def _unlink(self) -> None:
        if self._path is not None:
            try:
                os.unlink(self._path)
            except FileNotFoundError:
                pass
        self._path = None

    def _write(self, count: int) -> int:
        """How many tokens the pipe took. Never more than a page, so a write is whole or refused (PIPE_BUF)."""
        try:
            return os.write(self._to_clients, TOKEN * count)
        except BlockingIOError:
            return 0  # a client has filled it with what is not ours: the next settle tries again

    def _read(self, most: int) -> int:
        return self._read_from(self._fd, most)

    @staticmethod
    def _read_from(fd: int, most: int) -> int:
        try:
            return len(os.read(fd, most))
        except BlockingIOError:
            return 0


def _waiting_bytes(fd: int) -> int:
    """What can be read. See FIONREAD in tty_ioctl(4) and pipe(7)."""
    return int.from_bytes(fcntl.ioctl(fd, termios.FIONREAD, bytes(4)), sys.byteorder)
