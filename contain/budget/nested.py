"""Requests from inside a job that has a permit: they run under that permit, and never queue behind themselves.

Recognised by asking, since a variable can be copied anywhere: each wrapper that holds a permit listens on a socket, and
judges whether who asks lives in its own containment. The socket has two names: the permit's id, which the job's
environment tells, and the number of its containment (the PID namespace; on Darwin the anchor's), which a job finds
without being told.

    asks      {"draws": [["gpu", 1]]}      and keeps the connection for as long as it runs
    answers   {"answer": "mine", "permit": ID, "units": 2, "registry": NAME}, or "not-mine", or "unclear" or "refused"
              with "why"
"""

from __future__ import annotations

import os
from _socket import (
    AF_UNIX,
    SOCK_STREAM,
    socket,
)  # ``socket`` itself is slow: ADR 0007

from contain.errors import NestedRefused, NestedUnanswered
from receipts import Record, Unreadable, check_id, decode_proof, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from contain.backend import Backend, Shortcut
    from receipts import Proof

    Draws = tuple[tuple[str, int], ...]

FOLDER = "nested"
VARIABLE = "CONTAIN_PERMIT"
"""Says whom to ask, and proves nothing."""

PATIENCE_S = 2.0
MOST_BYTES = 4096
BACKLOG = 64
LONGEST_ADDRESS = 100
"""sun_path of unix(7) has 108 bytes, on Darwin 104."""


class Outer(Record):
    """The permit under which a nested request runs."""

    permit_id: str
    units: int
    registry: str
    """The outer registry's folder, by its name: its rows can be looked at from inside, and not judged."""
    path: str
    """The socket that answered."""


class Answerer:
    """A wrapper's ear. Nothing here waits; ``turn`` is called when one of ``fds`` is readable."""

    def __init__(
        self,
        root: str,
        registry: str,
        permit_id: str,
        backend: Backend,
        extra: Callable[[Draws], tuple[str, str]],
    ) -> None:
        """Listens under the permit's id. ``extra`` draws more for a nested request: (its id, "") or ("", why not).

        Raises OSError.
        """
        self._registry = registry
        self._folder = os.path.join(root, FOLDER)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._permit_id = permit_id
        self._backend = backend
        self._extra = extra
        self._proof: Proof | None = None
        self._names = [permit_id]
        self._asking: dict[int, socket] = {}
        self._drawn: dict[int, str] = {}
        self.units = 0
        self._socket = socket(AF_UNIX, SOCK_STREAM)
        self._socket.settimeout(0)
        with _Address(backend, self._folder, permit_id) as address:
            self._socket.bind(address)
        self._socket.listen(BACKLOG)

    def prove(self, proof: Proof) -> None:
        """From now on it can answer: called before the gate opens, so no command ever asks too early."""
        self._proof = proof
        self._names.append(name_again(self._folder, self._permit_id, proof))

    def fds(self) -> Sequence[int]:
        """What to poll for reading."""
        return (self._socket.fileno(), *self._asking)

    def turn(self, ready: Iterable[int]) -> list[str]:
        """Answers whoever has asked; returns the ids of what is not drawn any more, since who drew it has ended."""
        over = []
        for fd in ready:
            if fd == self._socket.fileno():
                self._accept()
            elif fd in self._asking and not self._hear(self._asking[fd]):
                self._asking.pop(fd).close()
                over += [self._drawn.pop(fd)] if fd in self._drawn else []
        return over

    def _accept(self) -> None:
        try:
            fd, _ = self._socket._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - what socket.accept() calls
        except OSError:
            return  # it has gone again, or we have no descriptor left: then it is not answered, and refuses itself
        connection = socket(AF_UNIX, SOCK_STREAM, 0, fd)
        connection.settimeout(0)
        self._asking[fd] = connection

    def _hear(self, connection: socket) -> bool:
        """False when the other side is over. A request comes in one piece: it is far smaller than the buffer."""
        try:
            data = connection.recv(MOST_BYTES)
            if not data:
                return False
            connection.sendall(f"{jsontext.dumps(self._answer(connection, data))}\n".encode("ascii"))
        except BlockingIOError:
            return True
        except OSError:
            return False
        return True

    def _answer(self, connection: socket, data: bytes) -> Mapping[str, object]:
        try:
            asked = jsontext.loads(data.decode("ascii"))
            draws = tuple((str(pool), int(count)) for pool, count in asked["draws"])
        except (ValueError, TypeError, KeyError):
            return {"answer": "refused", "why": "the request cannot be read"}
        mine = self._backend.contains(self._proof, connection) if self._proof is not None else None
        if mine is None:
            return {"answer": "unclear", "why": "it could not be seen who asks"}
        if not mine:
            return {"answer": "not-mine"}
        if draws:
            extra, why = self._extra(draws)
            if not extra:
                return {"answer": "refused", "why": why}
            self._drawn[connection.fileno()] = extra
        return {
            "answer": "mine",
            "permit": self._permit_id,
            "units": self.units,
            "registry": self._registry,
        }

    def close(self) -> None:
        """Nobody inside is left to ask."""
        for connection in self._asking.values():
            connection.close()
        self._asking.clear()
        self._socket.close()
        for name in reversed(self._names):
            _unlink(os.path.join(self._folder, name))


def ask(root: str, environ: Mapping[str, str], backend: Backend, draws: Draws) -> tuple[Outer, socket] | None:
    """The permit inside whose job this process runs, with a connection to be kept; None: inside nobody's.

    Raises NestedUnanswered where somebody who should know does not say, and NestedRefused: never queued, since the
    place that it would wait for is the one that it holds.
    """
    folder = os.path.join(root, FOLDER)
    names = [str(number) for number in backend.own_namespaces()]
    try:
        names.append(check_id(environ.get(VARIABLE, "")))
    except ValueError:
        pass  # none, or not of ours
    for name in names:
        found = _ask(backend, folder, name, draws)
        if found is not None:
            return found
    return None


def _ask(backend: Backend, folder: str, name: str, draws: Draws) -> tuple[Outer, socket] | None:
    connection = socket(AF_UNIX, SOCK_STREAM)
    kept = False
    try:
        connection.settimeout(PATIENCE_S)
        try:
            with _Address(backend, folder, name) as address:
                connection.connect(address)
        except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
            return None  # its wrapper is gone, and so is everything inside it: we are not
        connection.sendall(f"{jsontext.dumps({'draws': [list(one) for one in draws]})}\n".encode("ascii"))
        said = jsontext.loads(_line(connection))
        answer = said["answer"]
        if answer == "not-mine":
            return None
        if answer == "mine":
            outer = Outer(
                permit_id=str(said["permit"]),
                units=int(said["units"]),
                registry=os.path.basename(str(said["registry"])),
                path=os.path.join(folder, name),
            )
            kept = True
            return outer, connection
        if answer == "refused":
            raise NestedRefused(
                f"This runs inside a job that has a permit, and cannot have more ({said['why']}).",
                advice="Ask for it with the outer contain exec, or release what holds it.",
            )
        raise _unanswered(str(said.get("why", answer)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unanswered(str(error) or type(error).__name__) from None
    finally:
        if not kept:
            connection.close()


def _line(connection: socket) -> str:
    data = b""
    while not data.endswith(b"\n") and len(data) < MOST_BYTES:
        piece = connection.recv(MOST_BYTES)
        if not piece:
            raise ConnectionResetError("it hung up")
        data += piece
    return data.decode("ascii")


def _unanswered(why: str) -> NestedUnanswered:
    return NestedUnanswered(
        f"The wrapper whose permit this may run under does not answer ({why}).",
        advice="Look whether it is stopped (state T); or run without a permit: --no-budget.",
    )


def name_again(folder: str, name: str, proof: Proof) -> str:
    """Gives a socket the job's namespace as one more name, and returns that; a dead job may have left it behind.

    A symbolic link, since not every file system gives a socket a second hard one.
    """
    number = str(proof.namespace)
    _unlink(os.path.join(folder, number))
    try:
        os.symlink(name, os.path.join(folder, number))
    except OSError:
        pass  # the other name is enough for whoever keeps its environment
    return number


def forget(root: str, permit_id: str, proof: str | None) -> None:
    """Removes the names that a killed wrapper has left. ``proof`` is the permit's, as JSON."""
    named = os.path.join(root, FOLDER, permit_id)
    try:
        again = os.path.join(root, FOLDER, str(decode_proof(jsontext.loads(proof or "{}")).namespace))
        # Only if it still is this socket's: the kernel uses such a number again.
        if os.readlink(again) == permit_id:
            _unlink(again)
    except (OSError, ValueError, Unreadable):
        pass  # it had no second name
    _unlink(named)


def forget_name(folder: str, name: str) -> None:
    """Takes one name away."""
    _unlink(os.path.join(folder, name))


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


class _Address:
    """A socket's address below a folder whose path may be too long for one."""

    def __init__(self, backend: Backend, folder: str, name: str) -> None:
        self._backend, self._folder, self._name = backend, folder, name
        self._shortcut: Shortcut | None = None

    def __enter__(self) -> str:
        path = os.path.join(self._folder, self._name)
        if len(os.fsencode(path)) <= LONGEST_ADDRESS:
            return path
        self._shortcut = self._backend.shortcut(self._folder)
        return os.path.join(self._shortcut.path, self._name)

    def __exit__(self, *_: object) -> None:
        if self._shortcut is not None:
            self._shortcut.close()
