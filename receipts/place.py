"""Which directory holds receipts and registry, and whether it may. Fails closed, with the command that helps.

The answer is a descriptor: what was judged is what is used, whatever happens to the path afterwards.
"""

from __future__ import annotations

import os
import pwd
import stat

from receipts.ground import (
    ELSEWHERE,
    Unsafe,
    check_directory,
    check_parent,
    check_writable,
    file_system,
    home_trouble,
)
from receipts.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Final, Self

    from receipts.filesystem import StatfsType

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# A parent may be searchable and not readable (0711). Darwin has no O_PATH and needs the read bit.
_PASSAGE: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


class Place(Record):
    """An open directory that was found safe.

    `note`, where there is one, is to be said once: when the directory was `made` by this very call.
    """

    fd: int
    path: str
    filesystem: str
    note: str | None
    made: bool = False

    def stands(self) -> bool:
        """Say whether the path still leads here, and the directory is still nobody else's."""
        try:
            named, held = os.stat(self.path, follow_symlinks=False), os.fstat(self.fd)
        except OSError:
            return False
        same = (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino)
        return same and held.st_uid == os.geteuid() and not stat.S_IMODE(held.st_mode) & 0o077

    def close(self) -> None:
        """Close the descriptor, after the stores and locks that borrow it."""
        os.close(self.fd)

    def __enter__(self) -> Self:
        """Return the place itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


def default_root(
    uid: int, *, proc: str = "/proc", statfs_type: StatfsType | None = None
) -> tuple[str, str | None]:
    """Return the account's own root, and a note where it is not in the account's home.

    The home comes from the account database, never from HOME: an environment must not choose another
    registry. Whether the answer is safe is for `open_place` to say.
    """
    try:
        home = pwd.getpwuid(uid).pw_dir
    except KeyError:
        home = ""
    trouble = home_trouble(home, uid, proc, statfs_type)
    if trouble is None:
        return f"{home.rstrip('/')}/.contain", None
    path = f"/var/tmp/contain-{uid}"  # noqa: S108 - the owner, mode and link checks of open_place are the point
    return path, f"receipts are in {path}: {trouble}"


def open_place(
    path: str | None, *, proc: str = "/proc", statfs_type: StatfsType | None = None, create: bool = True
) -> Place:
    """Open the directory of `path`, or the default root, and return it; `Unsafe` where it may not be used.

    With `create` a missing last component is made (0700, durable), and a read-only file system is refused;
    without, a missing one is `Unsafe("missing")`. `proc` is where /proc is. `statfs_type` adds what the
    standard library lacks.
    """
    note = None
    if path is None:
        path, note = default_root(os.geteuid(), proc=proc, statfs_type=statfs_type)
    if not path or "\0" in path:
        raise Unsafe("missing", f"{path!r} is not a path", "name a directory")
    # Not normalised: `link/..` means to the kernel what it means. Without slashes at the end, which would
    # follow a link.
    path = _absolute(path).rstrip("/") or "/"
    above, base = os.path.split(path)
    parent = _open_parent(above)
    try:
        fd = _open_last(parent, base or ".", path)
        made = fd is None and create
        if made:
            # Judged before anything is made: nothing of ours is left in a place that is refused.
            file_system(parent, above, proc, statfs_type)
            check_parent(os.fstat(parent), above, proc)
            _make(parent, base, path)
            fd = _open_last(parent, base, path)
        if fd is None:
            raise Unsafe("missing", f"{path} does not exist", f"mkdir -m 700 {path}")
        try:
            # The file system first: a Windows drive shows 0777, and chmod would be the wrong advice.
            kind = file_system(fd, path, proc, statfs_type)
            check_directory(os.fstat(fd), path)
            check_parent(os.fstat(parent), above, proc)
            if create:
                check_writable(fd, path)
        except BaseException:
            os.close(fd)
            raise
    finally:
        os.close(parent)
    return Place(fd=fd, path=path, filesystem=kind, note=note, made=made)


def _absolute(path: str) -> str:
    if path.startswith("/"):
        return path
    try:
        return f"{os.getcwd()}/{path}"
    except FileNotFoundError:
        raise Unsafe("missing", "the working directory is gone", "name an absolute path") from None


def _open_parent(above: str) -> int:
    try:
        return os.open(above, _PASSAGE)
    except FileNotFoundError:
        raise Unsafe("missing", f"{above} does not exist", f"mkdir -p {above} {ELSEWHERE}") from None
    except NotADirectoryError:
        raise Unsafe("not-a-directory", f"{above} is not a directory", "name another path") from None
    except OSError as error:
        raise Unsafe(
            "unwritable", f"{above} cannot be entered ({error.strerror})", f"open it {ELSEWHERE}"
        ) from error


def _open_last(parent: int, base: str, path: str) -> int | None:
    """Return the directory's descriptor, None where nothing has that name; a link is never followed."""
    try:
        return os.open(base, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    except FileNotFoundError:
        return None
    except OSError as error:
        # With O_DIRECTORY a link is ENOTDIR on Linux and ELOOP elsewhere: look what it is.
        try:
            mode = os.stat(base, dir_fd=parent, follow_symlinks=False).st_mode
        except OSError:
            mode = 0
        if stat.S_ISLNK(mode):
            raise Unsafe(
                "symlink", f"{path} is a symbolic link", "name the directory that it leads to"
            ) from None
        if mode and not stat.S_ISDIR(mode):
            raise Unsafe("not-a-directory", f"{path} is not a directory", "name another path") from None
        raise Unsafe(
            "unwritable", f"{path} cannot be opened ({error.strerror})", f"chmod 700 {path} {ELSEWHERE}"
        ) from error


def _make(parent: int, base: str, path: str) -> None:
    """Make the directory and its name durable: its receipts would go with it."""
    try:
        try:
            os.mkdir(base, 0o700, dir_fd=parent)
            # The umask may have taken our own bits. By name, as a directory without them cannot be opened: nobody
            # else can have changed the name, the parent was judged.
            os.chmod(base, 0o700, dir_fd=parent)
        except FileExistsError:
            return  # somebody was faster; what they made is judged like any other
        fd = os.open(".", _DIRECTORY, dir_fd=parent)  # fsync refuses an O_PATH descriptor
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise Unsafe(
            "unwritable", f"{path} cannot be made ({error.strerror})", f"mkdir -m 700 {path} {ELSEWHERE}"
        ) from error
