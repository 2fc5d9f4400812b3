"""What must be answered, and truly, before a job may run: else a job would start whose end nobody could ever see.

Asked of this process alone, whose answers we know. A sandbox, another layout or a missing call is a refusal.
"""

from __future__ import annotations

import os

from contain.darwin import birth, layout
from contain.errors import SetupFailed, UnsupportedPlatform

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.darwin.libproc import Libproc

NEEDED = (
    "proc_pidinfo",
    "proc_listpids",
    "sysctl",
    "sysctlbyname",
    "kevent",
    "kqueue",
    "kill",
    "killpg",
    "getsid",
)


def check(libproc: Libproc) -> None:
    """Raises UnsupportedPlatform for calls that there are not, SetupFailed for answers that are denied or wrong."""
    missing = [name for name in NEEDED if not libproc.handle.has(name)]
    if missing:
        raise UnsupportedPlatform(
            f"This system has no {', '.join(missing)}.", advice="Report which version of macOS this is."
        )
    mine = birth.mine(libproc)
    try:
        wrong = _wrong(libproc, mine.pid)
    except OSError as error:
        wrong = f"it is not told ({error.strerror})"
    seen = birth.sight(libproc, mine)
    if wrong is None and seen.state != birth.LIVE:
        wrong = f"its own birth is {seen.state}: {seen.why}"
    if wrong is not None:
        raise SetupFailed(
            f"This process cannot see itself as it is: {wrong}.",
            step="probe",
            advice="Run contain outside of a sandbox that hides processes.",
        )


def _wrong(libproc: Libproc, pid: int) -> str | None:
    """What a census of this very process would get wrong. Raises OSError."""
    if pid not in libproc.listed(layout.ALL_PIDS):
        return "it is not among all processes"
    if pid not in libproc.listed(layout.PGRP_ONLY, os.getpgrp()):
        return "it is not in its own group"
    if libproc.session(pid) != os.getsid(0):
        return "it is not in its own session"
    return None
