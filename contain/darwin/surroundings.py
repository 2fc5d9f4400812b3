"""What kind of Mac this is, in words for doctor. Nothing is decided by them."""

from __future__ import annotations

import os

from contain.darwin import exact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.darwin.libproc import Libproc

STANDING = "from source: written from XNU's sources and run on a fake XNU, never on a Mac by its authors"


def described(libproc: Libproc) -> dict[str, object]:
    """Name -> what was found."""
    names = os.uname()
    return {
        "system": f"{names.sysname} {names.release} ({names.machine})",
        "user": f"uid {os.geteuid()}",
        "standing": STANDING,
        "signals": exact.way(libproc),
        "inheritedFileIsSeen": libproc.handle.has("proc_listpidspath"),
    }
