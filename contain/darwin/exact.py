"""A signal to exactly one birth: by audit token (macOS 14.2), before that to a number that is checked around it."""

from __future__ import annotations

import errno

from contain.darwin import birth, layout
from contain.darwin.handle import failed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.backend import Birth
    from contain.darwin.libproc import Libproc

SENT, DENIED = "sent", "denied"

EXACT, CHECKED = "exact", "checked-pid"
"""How it is signalled: the kernel compares, or we compare just before and just after."""

MOST_TRIES = 8
"""An exec changes the version between the reading and the signal; one that always does is no accident."""


def way(libproc: Libproc) -> str:
    """EXACT or CHECKED, as this system has it."""
    return EXACT if libproc.handle.has("proc_signal_with_audittoken") else CHECKED


def send(libproc: Libproc, born: Birth, number: int) -> str:
    """SENT, DENIED, or the state of a birth that is not live (see contain.darwin.birth)."""
    by_token = way(libproc) == EXACT
    for _ in range(MOST_TRIES):
        seen = birth.sight(libproc, born)
        if seen.state != birth.LIVE:
            return seen.state
        try:
            error = _by_token(libproc, born, number) if by_token else _by_number(libproc, born, number)
        except OSError as unseen:
            error = unseen.errno or errno.EIO
        if error == 0:
            return SENT
        if error == errno.EPERM:
            return DENIED
        if error != errno.ESRCH:
            raise failed(error)
    return birth.UNKNOWN


def _by_token(libproc: Libproc, born: Birth, number: int) -> int:
    """The errno; ESRCH when it is not that process, or has executed something since it was read."""
    found = libproc.identity(born.pid)
    if found.unique_id != born.unique_id:
        return errno.ESRCH
    token = libproc.handle.ffi.new("audit_token_t *")
    token.val[layout.TOKEN_PID] = born.pid
    token.val[layout.TOKEN_VERSION] = found.version & 0xFFFFFFFF
    error, _ = libproc.handle.call("proc_signal_with_audittoken", token, number)
    return error


def _by_number(libproc: Libproc, born: Birth, number: int) -> int:
    """The errno. A number changes hands after some 100,000 forks, and here within microseconds."""
    if libproc.identity(born.pid).unique_id != born.unique_id:
        return errno.ESRCH
    result, error = libproc.handle.call("kill", born.pid, number)
    return error if result != 0 else 0
