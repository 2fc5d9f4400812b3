"""Where a wrapper meets the supervisor that launchd has started: a Unix socket in a private folder.

Each looks who is at the other end: the kernel tells the uid and the pid, and the pid's birth is compared. The folder's
name tells whose it is: what a killed wrapper has left is swept by whoever
inspects everything, and the job that is described in it is removed from launchd, unless its supervisor still lives.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import tempfile
from _socket import AF_UNIX, SOCK_STREAM, socket

from contain.darwin import birth, launchd, mark
from contain.darwin.channel import Channel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.backend import Birth
    from contain.darwin.libproc import Libproc

PREFIX = "contain-launchd-"
BOOT_DIGITS = 8
SOCKET = "socket"
CONNECT_S = 5.0


class Meeting:
    """The wrapper's side: it waits for the one that comes."""

    def __init__(self, libproc: Libproc) -> None:
        """Makes the folder (0700), and listens. Raises OSError."""
        self._libproc = libproc
        self._mine = birth.take(libproc, os.getpid())
        owner = f"{self._mine.pid}-{self._mine.unique_id}"
        self.folder = tempfile.mkdtemp(dir=mark.FOLDER, prefix=f"{_of_this_boot(libproc)}{owner}-")
        self.path = os.path.join(self.folder, SOCKET)
        self._socket = socket(AF_UNIX, SOCK_STREAM, 0)
        try:
            self._socket.bind(self.path)
            self._socket.listen(1)
            self._socket.settimeout(0)
        except OSError:
            self.close()
            raise

    def words(self) -> tuple[str, ...]:
        """What ``come`` is to be given."""
        return (self.path, str(self._mine.pid), str(self._mine.unique_id))

    def accept(self, wait_s: float) -> tuple[Channel, Birth] | None:
        """The channel to who has come, and its birth; None where nobody has, or somebody else. Raises OSError."""
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        if not poll.poll(wait_s * 1000):
            return None
        try:
            fd, _ = self._socket._accept()  # type: ignore[attr-defined] # noqa: SLF001 - accept is of a heavy module
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.ECONNABORTED):
                return None
            raise
        os.set_inheritable(fd, False)
        end = socket(AF_UNIX, SOCK_STREAM, 0, fd)
        end.settimeout(None)
        try:
            uid, pid = self._libproc.peer(end.fileno())
            born = birth.take(self._libproc, pid)
        except OSError:
            end.close()  # gone again, or not to be seen
            return None
        # Whoever we had started is younger than we are.
        if uid != os.geteuid() or (born.unique_id or 0) <= (self._mine.unique_id or 0):
            end.close()
            return None
        return Channel(end), born

    def over(self) -> None:
        """Nobody can come any more; what launchd was told stays."""
        self._socket.close()

    def close(self) -> None:
        """The same, and the folder goes."""
        self.over()
        remove(self.folder)


def come(libproc: Libproc, path: str, wrapper: Birth) -> Channel | None:
    """The supervisor's side. None: the wrapper is gone, or it is somebody else who listens there."""
    end = socket(AF_UNIX, SOCK_STREAM, 0)
    end.settimeout(CONNECT_S)
    try:
        end.connect(path)
        uid, pid = libproc.peer(end.fileno())
        if (uid, pid) == (os.geteuid(), wrapper.pid) and birth.sight(libproc, wrapper).state == birth.LIVE:
            end.settimeout(None)
            return Channel(end)
    except OSError:
        pass  # nobody is there
    end.close()
    return None


def remove(folder: str) -> None:
    """Removes such a folder; what somebody else has removed, or put there, is no error: nothing depends on it."""
    for name in (SOCKET, launchd.PLIST):
        try:
            os.unlink(os.path.join(folder, name))
        except FileNotFoundError:
            pass
    try:
        os.rmdir(folder)
    except OSError:
        pass


def hold(folder: str) -> int:
    """The supervisor's: while the descriptor is open nobody takes its job for one that nothing is left of."""
    fd = os.open(os.path.join(folder, launchd.PLIST), os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return fd


def sweep(libproc: Libproc, launchctl: str) -> None:
    """Removes folders whose wrapper and supervisor are gone, and from launchd what they describe.

    What cannot be told stays.
    """
    try:
        prefix = _of_this_boot(libproc)
    except OSError:
        return
    for name in os.listdir(mark.FOLDER):
        if not name.startswith(prefix) or not _is_orphan(libproc, name.removeprefix(prefix)):
            continue
        folder = os.path.join(mark.FOLDER, name)
        try:
            if os.lstat(folder).st_uid == os.geteuid():
                _clear(folder, launchctl)
        except OSError:
            continue  # its supervisor lives, or somebody else swept


def _of_this_boot(libproc: Libproc) -> str:
    """How the names of this boot begin: in another one unique ids mean nothing, and macOS clears /tmp as it boots.

    Raises OSError.
    """
    return f"{PREFIX}{libproc.boot_session()[:BOOT_DIGITS]}-"


def _is_orphan(libproc: Libproc, name: str) -> bool:
    """Whether whose ``PID-UNIQUEID-...`` begins the name is surely gone."""
    pid, _, rest = name.partition("-")
    unique_id = rest.partition("-")[0]
    if not pid.isdigit() or not unique_id.isdigit():
        return False
    try:
        return libproc.identity(int(pid)).unique_id != int(unique_id)
    except OSError as error:
        return error.errno == errno.ESRCH


def _clear(folder: str, launchctl: str) -> None:
    try:
        held = hold(folder)
    except FileNotFoundError:
        remove(folder)  # launchd was never told of it
        return
    try:
        target = _described(folder)
        if target is not None:
            launchd.bootout(launchctl, target)
        remove(folder)
    finally:
        os.close(held)


def _described(folder: str) -> str | None:
    """The service in the folder's file; None where there is none."""
    import plistlib

    try:
        with open(os.path.join(folder, launchd.PLIST), "rb") as file:
            job = plistlib.load(file)
        target = job["ProgramArguments"][-1]
    except (OSError, ValueError, LookupError, TypeError, plistlib.InvalidFileException):
        return None
    return target if isinstance(target, str) and target.endswith(f"/{job.get('Label')}") else None
