"""A FIFO for each waiter. A socket's path may have 107 bytes, and a signal says nothing about who is gone."""

from __future__ import annotations

import errno
import os
import time

from contain.errors import RegistryDamaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

FOLDER = "wake"
OLD_S = 60.0
"""A FIFO is opened in the moment after it is made: one so old that nobody has open is nobody's."""


def path_of(registry_folder: str, name: str) -> str:
    """Where a waiter's FIFO is."""
    return os.path.join(registry_folder, FOLDER, name)


class Bell:
    """This process's own FIFO: opened before the ticket is committed, so that no wake-up is lost."""

    def __init__(self, registry_folder: str, ticket_id: str, *, again: bool = False) -> None:
        """Makes it, or (``again``) takes up the one that this process has made before. Raises RegistryDamaged."""
        folder = os.path.join(registry_folder, FOLDER)
        self.name = ticket_id
        self._path = path_of(registry_folder, ticket_id)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            try:
                os.mkfifo(self._path, 0o600)
            except FileExistsError:
                if not again:
                    raise
            # Both ends: with the writing one only in others' hands, each of their closes would read as an end.
            self.fd = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise RegistryDamaged(
                f"No FIFO can be made in {folder} ({error.strerror}).",
                advice="Move away what is there instead, or make room; or run without a permit: --no-budget.",
            ) from None

    def silence(self) -> None:
        """Takes what has rung."""
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Removes it."""
        os.close(self.fd)
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            pass


def forget(registry_folder: str, name: str) -> None:
    """Removes the FIFO of a waiter who is gone."""
    try:
        os.unlink(path_of(registry_folder, name))
    except FileNotFoundError:
        pass


def listens(registry_folder: str, name: str) -> bool:
    """Whether a process has this bell now. Never waits: it is asked under the registry's lock.

    False is no proof that the waiter is gone, only a reason to look.
    """
    fd = _open(registry_folder, name)
    if fd is not None:
        os.close(fd)
    return fd is not None


def ring(registry_folder: str, name: str) -> bool:
    """Wakes a waiter; False when nobody listens there any more, which is no proof of anything."""
    fd = _open(registry_folder, name)
    if fd is None:
        return False
    try:
        os.write(fd, b"!")
    except BlockingIOError:
        return True  # it has more than enough to read
    except BrokenPipeError:
        return False  # it closed between our open and our write
    finally:
        os.close(fd)
    return True


def _open(registry_folder: str, name: str) -> int | None:
    """The writing end; None where there is no reading one (ENXIO)."""
    try:
        return os.open(
            path_of(registry_folder, name), os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        )
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENOENT):
            return None
        raise


def sweep(registry_folder: str, rows: Collection[str]) -> None:
    """Removes the FIFOs of those who were killed before they had a ticket: no row tells of them.

    ``rows``: the ids that one does; theirs go with it.
    """
    try:
        names = os.listdir(os.path.join(registry_folder, FOLDER))
    except OSError:
        return  # nobody has waited here yet, or nobody can
    for name in set(names).difference(rows):
        path = path_of(registry_folder, name)
        try:
            old = time.time() - os.stat(path).st_mtime > OLD_S
        except FileNotFoundError:
            continue
        if old and not listens(registry_folder, name):
            forget(registry_folder, name)
