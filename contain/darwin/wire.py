"""The messages of ``anchor/wire.h`` as bytes; a test compares every size and offset with the compiler's."""

from __future__ import annotations

import struct

from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION = 2
NICE_KEEP = 100
MOST_LIMITS = 16
READY, BROKE, STARTED, ENDED, STOPPED = 1, 2, 3, 4, 5
STEPS = ("none", "directory", "limits", "fork", "exec")
STEP_EXEC = 4

_HEAD = struct.Struct("=IIIIIIiI")
_LIMIT = struct.Struct("=IIQQ")
_REPORT = struct.Struct("=IiIiiiQQQ")
HEAD_BYTES = _HEAD.size + MOST_LIMITS * _LIMIT.size
REPORT_BYTES = _REPORT.size


class Report(Record):
    """What the anchor says."""

    kind: int
    status: int
    step: str
    error: int
    pid: int
    group: int
    user_us: int
    system_us: int
    max_rss_bytes: int


def block(
    paths: Sequence[bytes],
    args: Sequence[bytes],
    variables: Sequence[bytes],
    *,
    umask: int,
    nice: int | None,
    limits: Mapping[int, tuple[int, int]],
) -> bytes:
    """A command_block and its strings. ``limits``: resource number -> (soft, hard)."""
    strings = b"".join(text + b"\0" for text in (*paths, *args, *variables))
    head = _HEAD.pack(
        VERSION,
        len(strings),
        len(paths),
        len(args),
        len(variables),
        umask,
        NICE_KEEP if nice is None else nice,
        len(limits),
    )
    table = b"".join(_LIMIT.pack(number, 0, soft, hard) for number, (soft, hard) in limits.items())
    return (head + table).ljust(HEAD_BYTES, b"\0") + strings


def open_order(*, foreground: bool) -> bytes:
    """The gate. ``foreground``: the command takes the terminal."""
    return bytes((ord("G"), foreground))


def signal_order(number: int, *, everybody: bool) -> bytes:
    """To the command's process alone, or to its whole group."""
    return bytes((ord("P" if everybody else "S"), number))


def report(data: bytes) -> Report:
    """The report in REPORT_BYTES bytes."""
    kind, status, step, error, pid, group, user_us, system_us, max_rss_bytes = _REPORT.unpack(data)
    return Report(
        kind=kind,
        status=status,
        step=STEPS[step] if step < len(STEPS) else "unknown",
        error=error,
        pid=pid,
        group=group,
        user_us=user_us,
        system_us=system_us,
        max_rss_bytes=max_rss_bytes,
    )
