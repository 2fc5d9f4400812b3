"""The file that a command inherits open, so that who has it open is a descendant. Its name tells whose it is.

A supervisor removes its own; one that was killed leaves it, and whoever inspects everything sweeps it away.
"""

from __future__ import annotations

import errno
import os
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.darwin.libproc import Libproc

PREFIX = "contain-mark-"
BOOT_DIGITS = 8
FOLDER = "/tmp"  # noqa: S108 - private files in it, by a name that nobody can foresee, and the same for every process


def of_this_boot(libproc: Libproc, prefix: str) -> str:
    """How the names of this boot begin: in another one unique ids mean nothing, and macOS clears /tmp as it boots.

    Raises OSError.
    """
    return f"{prefix}{libproc.boot_session()[:BOOT_DIGITS]}-"


def make(libproc: Libproc) -> tuple[str, int]:
    """(path, descriptor) of a private file that nobody else has open. Raises OSError."""
    mine = libproc.identity(os.getpid()).unique_id
    fd, path = tempfile.mkstemp(dir=FOLDER, prefix=f"{of_this_boot(libproc, PREFIX)}{os.getpid()}-{mine}-")
    return path, fd


def sweep(libproc: Libproc) -> None:
    """Removes the marks of supervisors that are gone. What cannot be told stays."""
    try:
        prefix = of_this_boot(libproc, PREFIX)
    except OSError:
        return
    for name in os.listdir(FOLDER):
        path = os.path.join(FOLDER, name)
        if name.startswith(prefix) and is_orphan(libproc, name.removeprefix(prefix)):
            try:
                if os.lstat(path).st_uid == os.geteuid():
                    os.unlink(path)
            except FileNotFoundError:
                continue  # somebody else swept


def is_orphan(libproc: Libproc, name: str) -> bool:
    """Whether whose ``PID-UNIQUEID-...`` begins the name is surely gone."""
    pid, _, rest = name.partition("-")
    unique_id = rest.partition("-")[0]
    if not pid.isdigit() or not unique_id.isdigit():
        return False
    try:
        return libproc.identity(int(pid)).unique_id != int(unique_id)
    except OSError as error:
        return error.errno == errno.ESRCH
