"""What a host asks for, as frozen and validated records. Durations are milliseconds, sizes are bytes."""

from __future__ import annotations

import os

from contain.errors import ImpossibleRequest
from receipts import Leftovers, Outcome, Record, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import ClassVar

__all__ = [
    "DARWIN_TIERS",
    "LAUNCHD",
    "LINUX_TIERS",
    "NETWORKS",
    "TIERS",
    "Abort",
    "Job",
    "Leftovers",
    "Limits",
    "Outcome",
    "Usage",
    "check_bytes",
    "new_id",
]

NETWORKS = ("host", "none")

LINUX_TIERS = ("tree", "traced", "cgroup", "namespace")
"""Weakest first. This version has ``namespace`` only."""

LAUNCHD = "launchd"
DARWIN_TIERS = ("group", "session", LAUNCHD)
"""Weakest first. ``launchd`` is had by whoever requires it, and by nobody else."""

TIERS = LINUX_TIERS + DARWIN_TIERS
"""Every word that may be required. One system's are never another's."""

GRACE_MS = 10_000
KILL_MS = 5_000

MAX_STRING_BYTES = 131_071
"""One argument or variable: MAX_ARG_STRLEN of the kernel (32 pages), less its NUL. See execve(2)."""


def new_id() -> str:
    """A random UUID (RFC 9562, version 4). The module uuid would cost a third of a launch."""
    data = bytearray(os.urandom(16))
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class Limits(Record):
    """What a job may take. None: left as it is.

    ``memory_bytes``, ``cpus`` and ``pids`` hold for the whole tree (cgroups). The others are setrlimit(2) and nice(2):
    each holds for one process and is inherited by its children; that is all that rlimits can do.
    """

    memory_bytes: int | None = None
    cpus: float | None = None
    """Busy cores, on average; 1.5 is one and a half."""
    pids: int | None = None
    """Processes and threads at one time."""
    open_files: int | None = None
    file_bytes: int | None = None
    core_bytes: int | None = None
    cpu_s: int | None = None
    address_space_bytes: int | None = None
    stack_bytes: int | None = None
    nice: int | None = None


class Job(Record):
    """One command, to be run once in one containment. ``args`` are the arguments after the command's own name."""

    _secret: ClassVar[tuple[str, ...]] = ("args", "env")

    id: str
    permit_id: str
    command: str
    args: tuple[str, ...]
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    limits: Limits = Limits()
    grace_ms: int = GRACE_MS
    kill_ms: int = KILL_MS
    timeout_ms: int | None = None
    require_tier: str | None = None
    require_limits: bool = False
    """Refuse the job where a limit of the whole tree cannot be had."""
    no_new_privs: bool = False
    drop_capabilities: tuple[str, ...] = ()
    """Names as in capabilities(7), with or without ``CAP_``; ``all``."""
    network: str = "host"
    """``host``, or ``none``: a network of its own with nothing but the loopback."""
    stdio: tuple[int, int, int] | None = None
    """This process's descriptors for the command's 0, 1 and 2; None: as the backend was made."""
    keep_fds: tuple[int, ...] = ()
    """Further descriptors of this process that the command gets, under the same numbers."""
    sample_memory: bool = False
    """Look once a second how much memory the tree has, where no cgroup of its own counts it."""
    shared_session: bool = False
    """The job stays in this process's session and process group: for a terminal."""


class Abort(Record):
    """Somebody ended the job: ``cause`` as in an outcome, ``by`` whom; ``grace_ms`` 0 means KILL at once."""

    cause: str
    by: str
    grace_ms: int = 0


def check_bytes(text: str, what: str) -> bytes:
    """The bytes that execve(2) gets for ``text``: UTF-8, with U+DC80 to U+DCFF standing for odd bytes.

    Raises ImpossibleRequest for NUL, for other lone surrogates and for more than ``MAX_STRING_BYTES``.
    """
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ImpossibleRequest(
            f"{what} holds a lone surrogate that stands for no byte.",
            advice="Write a byte that is not UTF-8 as U+DC80 to U+DCFF (Python's surrogateescape).",
        ) from None
    if b"\0" in data:
        raise ImpossibleRequest(
            f"{what} holds a NUL, which ends a string in execve(2).", advice="Leave it out."
        )
    if len(data) > MAX_STRING_BYTES:
        raise ImpossibleRequest(
            f"{what} has {len(data)} bytes; no more than {MAX_STRING_BYTES} are taken in one string.",
            advice="Pass it through a file.",
        )
    return data
