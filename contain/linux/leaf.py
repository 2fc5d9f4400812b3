"""The leaf of one job: cgroups of its own, made before it is launched and removed when it has drained.

Who made a leaf holds a flock on its directory for as long as he lives, so that nobody else takes an empty one for
litter. A leaf whose lock is free and that has no process is removed by whoever comes by; the kernel refuses to remove
one that has any (cgroup_destroy_locked, kernel/cgroup/cgroup.c).
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from contain.linux import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PREFIX = "contain-"
ASIDE = "wrapper-"
UUID_PARTS = [8, 4, 4, 4, 12]
MAGICS = (0x27E0EB, 0x63677270)
"""CGROUP_SUPER_MAGIC and CGROUP2_SUPER_MAGIC of linux/magic.h."""

REMOVE_S = 0.5
"""A group whose last process was reaped this moment is EBUSY for some milliseconds."""

PAUSE_S = 0.002


def name_of(job_id: str) -> str:
    """What a job's leaf is called, in every hierarchy."""
    return PREFIX + job_id


def write(path: str, text: str) -> None:
    """One setting. Raises OSError; never makes a file."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


class Leaf:
    """The directories of one leaf, and the locks on them."""

    def __init__(self, name: str) -> None:
        """Nothing is made yet."""
        self.name = name
        self.paths: list[str] = []
        self._locks: list[int] = []

    def make(self, parent: str) -> str:
        """Makes the leaf in ``parent``, and returns its directory; the same one when asked again. Raises OSError."""
        path = os.path.join(parent, self.name)
        if path in self.paths:
            return path
        deadline_s = time.monotonic() + REMOVE_S
        lock = None
        while lock is None:  # somebody may take it for litter before we have the lock
            sweep(parent)
            try:
                os.mkdir(path, 0o755)
            except FileExistsError:
                # Of an earlier wrapper with this id, which died before its first receipt; its init is dying, too.
                if time.monotonic() >= deadline_s:
                    raise
                time.sleep(PAUSE_S)
                continue
            lock = _locked(path)
        self.paths.append(path)
        self._locks.append(lock)
        return path

    def enter_fds(self) -> list[int]:
        """Descriptors that take a process in, one for each directory; the caller's to close. Raises OSError."""
        found: list[int] = []
        try:
            for path in self.paths:
                found += [os.open(f"{path}/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)]
        except OSError:
            for fd in found:
                os.close(fd)
            raise
        return found

    def remove(self, wait_s: float = REMOVE_S) -> tuple[str, ...]:
        """Removes what is empty, trying again for ``wait_s``; returns what is left."""
        self.paths = list(remove(self.name, self.paths, wait_s))
        return tuple(self.paths)

    def close(self) -> None:
        """Lets the locks go: what is left is litter, once it is empty."""
        while self._locks:
            os.close(self._locks.pop())


def _locked(path: str) -> int | None:
    """A descriptor that holds the lock of this very directory; None where it is gone or somebody's."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_ino == os.stat(path).st_ino:
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None


def _is_ours(name: str) -> bool:
    """A job's leaf, or what a wrapper stepped into: no group that somebody else calls contain-something."""
    rest = name.removeprefix(PREFIX)
    if rest == name:
        return False
    job = [len(part) for part in rest.split("-")] == UUID_PARTS and not set(rest) - set("0123456789abcdef-")
    return job or (rest.startswith(ASIDE) and rest.removeprefix(ASIDE).isdigit())


def sweep(parent: str) -> None:
    """Removes the empty leaves in ``parent`` whose makers are dead. What it may not touch, it leaves alone."""
    try:
        names = [name for name in os.listdir(parent) if _is_ours(name)]
    except OSError:
        return
    for name in names:
        path = os.path.join(parent, name)
        try:
            lock = _locked(path)
            if lock is None:
                continue
            try:
                if native.file_system_magic(lock) in MAGICS:
                    _remove_tree(path)
            finally:
                os.close(lock)
        except OSError:
            continue  # it has processes, or is another user's


def remove(name: str, paths: Iterable[str], wait_s: float = REMOVE_S) -> tuple[str, ...]:
    """Removes recorded directories of the leaf ``name``; returns those that are still there after ``wait_s``.

    Never anything but a cgroup of that very name, and never one that has a process.
    """
    left = [path for path in paths if os.path.basename(path) == name]
    deadline_s = time.monotonic() + wait_s
    while True:
        left = [path for path in left if not _gone(path)]
        if not left or time.monotonic() >= deadline_s:
            return tuple(left)
        time.sleep(PAUSE_S)


def _gone(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENODEV, errno.ENOTDIR, errno.ELOOP)
    try:
        if native.file_system_magic(fd) not in MAGICS:
            return True  # a mere directory of that name: not ours to touch
        _remove_tree(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _remove_tree(path: str) -> None:
    """A job may have made groups below its own. Raises OSError where a process is left."""
    for entry in os.scandir(path):
        if entry.is_dir(follow_symlinks=False):
            _remove_tree(entry.path)
    os.rmdir(path)
