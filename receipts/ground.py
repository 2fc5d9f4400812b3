"""The checks behind `place`: owner, mode, parent and file system, each with its refusal and its way out."""

from __future__ import annotations

import os
import stat

from receipts.filesystem import look

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from receipts.filesystem import StatfsType

ELSEWHERE: Final = "or name a directory of your own on a local disk"
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OVERFLOW_UID: Final = 65534
_EVERY_UID: Final = ["0", "0", "4294967295"]


class Unsafe(Exception):
    """The place is refused. `reason` is one word for programs, `advice` what to do, for people.

    Reasons: symlink, not-a-directory, owner, mode, parent, file-system, file-system-unknown, missing,
    unwritable.
    """

    def __init__(self, reason: str, message: str, advice: str) -> None:
        """Take the three parts."""
        super().__init__(reason, message, advice)
        self.reason = reason
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.message}: {self.advice}"


def file_system(fd: int, path: str, proc: str, statfs_type: StatfsType | None) -> str:
    """Return the name of the file system under a descriptor; `Unsafe` where it is refused or unknown."""
    found = look(fd, proc, statfs_type)
    if found is None:
        raise Unsafe(
            "file-system-unknown",
            f"the file system of {path} cannot be told",
            # With a call that failed nothing is missing but the answer; without one the table would help.
            f"make {proc}/self/mountinfo readable {ELSEWHERE}"
            if statfs_type is None
            else "name a directory of your own on a local disk",
        )
    if found.refusal is not None:
        raise Unsafe(
            "file-system",
            f"{path} is on {found.name}, {found.refusal}",
            "name a directory on a local file system",
        )
    return found.name


def check_directory(found: os.stat_result, path: str) -> None:
    """Refuse a directory that is not ours alone."""
    me = os.geteuid()
    if found.st_uid != me:
        raise Unsafe(
            "owner", f"{path} belongs to uid {found.st_uid}, not to uid {me}", "name a directory of your own"
        )
    if found.st_mode & 0o777 != stat.S_IRWXU:
        raise Unsafe("mode", f"{path} has mode {found.st_mode & 0o777:04o}, not 0700", f"chmod 700 {path}")


def check_parent(found: os.stat_result, above: str, proc: str) -> None:
    """Refuse a parent in which somebody else could put another directory under our name.

    We would go on with the one that we hold, and the next process would find other receipts and other locks.
    """
    owner = found.st_uid
    if owner not in (0, os.geteuid()) and not (owner == _OVERFLOW_UID and _some_uids_are_hidden(proc)):
        raise Unsafe(
            "parent",
            f"{above} belongs to uid {owner}, who can replace what is in it",
            f"name a directory below one of your own or of root's {ELSEWHERE}",
        )
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        raise Unsafe("parent", f"others may replace what is in {above}", f"chmod go-w {above} {ELSEWHERE}")


def check_writable(fd: int, path: str) -> None:
    """Refuse a read-only file system before a job is made, not at its first receipt."""
    if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
        raise Unsafe("unwritable", f"{path} is on a read-only file system", f"make it writable {ELSEWHERE}")


def home_trouble(home: str, uid: int, proc: str, statfs_type: StatfsType | None) -> str | None:
    """Return why an account's home cannot hold its root, or None where it can."""
    if not home.startswith("/"):
        return "the account has no home"
    try:
        fd = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        return f"the home {home} cannot be opened ({error.strerror})"
    try:
        owner = os.fstat(fd).st_uid
        if owner != uid:
            return f"the home {home} belongs to uid {owner}"
        found = look(fd, proc, statfs_type)
        if found is None:
            return f"the file system of the home {home} cannot be told"
        return None if found.refusal is None else f"the home {home} is on {found.name}, {found.refusal}"
    finally:
        os.close(fd)


def _some_uids_are_hidden(proc: str) -> bool:
    """Say whether this user namespace maps not every uid: then root of the outside looks like nobody.

    So it is inside a job of ours (one uid is mapped), where `/tmp` and `/home` belong to 65534.
    """
    try:
        fd = os.open(f"{proc}/self/uid_map", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(fd, 4096).decode().split() != _EVERY_UID
        finally:
            os.close(fd)
    except OSError:
        return False
