"""The only importer of the native parts: the cffi module ``_native``, and the path of contain-init.

Messages of ``init/wire.h`` become plain tuples and bytes here, so that nothing above knows of C.
"""

from __future__ import annotations

import os

from contain.errors import UnsupportedPlatform
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

try:
    from contain.linux._native import ffi, lib
except ImportError as error:
    raise UnsupportedPlatform(
        f"The native part of contain is missing ({error}).",
        advice="Install it with a compiler and Python's headers: apt install gcc python3-dev, then pip install.",
    ) from None

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "contain-init")

STEPS: Mapping[int, str] = {
    value: name.removeprefix("STEP_").lower().replace("_", "-")
    for value, name in ffi.typeof("enum step").elements.items()
}
"""Words for the step numbers of ``wire.h``, made from their own names."""

READY: int = lib.REPORT_READY
ARMED: int = lib.REPORT_ARMED
FAILED: int = lib.REPORT_FAILED
EXITED: int = lib.REPORT_EXITED
SENT_TERM: int = lib.REPORT_TERM
SENT_KILL: int = lib.REPORT_KILL
STOPPED: int = lib.REPORT_STOPPED
EMPTY: int = lib.REPORT_EMPTY
STEP_EXEC: int = lib.STEP_EXEC
MOST_KEPT: int = lib.MOST_KEPT
MOST_WATCHED: int = lib.MOST_WATCHED
SHARED_SESSION: int = lib.SHARED_SESSION
NO_NEW_PRIVS: int = lib.NO_NEW_PRIVS
NEW_NETWORK: int = lib.NEW_NETWORK

GATE_BYTE = bytes([lib.GATE_OPEN])
KEEPER_FDS: tuple[int, int, int] = (lib.KEEPER_REQUESTS, lib.KEEPER_WRAPPER, lib.KEEPER_WRAPPER_LIFE)
# Looked up once, at import: a type that is named by text is parsed at its first use, in the middle of a launch.
_REQUEST = ffi.typeof("struct launch_request *")
_BLOCK = ffi.typeof("struct command_block *")
_ORDER = ffi.typeof("struct order *")
_REPORT = ffi.typeof("struct report *")
_REPLY = ffi.typeof("struct launch_reply *")
REPORT_BYTES: int = ffi.sizeof("struct report")
REPLY_BYTES: int = ffi.sizeof("struct launch_reply")


class Extras(Record):
    """What few jobs ask for. ``drop_capabilities``: a bit for each number; ``keep``: numbers in the command."""

    flags: int = 0
    drop_capabilities: int = 0
    cgroups: int = 0
    keep: tuple[int, ...] = ()


_NO_EXTRAS = Extras()


def launch_request(
    leftovers_ms: int,
    kill_ms: int,
    umask: int,
    nice: int | None,
    limits: Mapping[int, tuple[int, int]],
    extras: Extras = _NO_EXTRAS,
) -> bytes:
    """A launch_request. ``limits``: resource number -> (soft, hard)."""
    request = ffi.new(_REQUEST)
    request.version = lib.WIRE_VERSION
    request.leftovers_ms = leftovers_ms
    request.kill_ms = kill_ms
    request.umask = umask
    request.nice = lib.NICE_KEEP if nice is None else nice
    request.flags = extras.flags
    request.drop_capabilities = extras.drop_capabilities
    request.cgroups = extras.cgroups
    request.kept = len(extras.keep)
    for index, number in enumerate(extras.keep):
        request.keep[index] = number
    for number, (soft, hard) in limits.items():
        request.limits_set |= 1 << number
        request.limits[number].soft = soft
        request.limits[number].hard = hard
    return bytes(ffi.buffer(request))


def command_block(paths: list[bytes], args: list[bytes], variables: list[bytes]) -> bytes:
    """The content of the sealed memfd: head, then every string with its NUL."""
    head = ffi.new(_BLOCK, (lib.WIRE_VERSION, len(paths), len(args), len(variables)))
    return b"\0".join([bytes(ffi.buffer(head)) + paths[0], *paths[1:], *args, *variables, b""])


def launch_reply(data: bytes) -> tuple[int, str, int]:
    """(errno, step, pid) of a launch_reply."""
    reply: Any = ffi.from_buffer(_REPLY, data)
    return int(reply.error), STEPS.get(reply.step, "unknown"), int(reply.pid)


def report(data: bytes) -> Any:
    """A report of the init, as a C struct."""
    return ffi.from_buffer(_REPORT, data)


def arm_order() -> bytes:
    """The proof is taken: become undumpable."""
    return _order(lib.ORDER_ARM, 0, 0)


def signal_order(number: int) -> bytes:
    """A signal to the command's process alone."""
    return _order(lib.ORDER_SIGNAL, number, 0)


def cancel_order(grace_ms: int) -> bytes:
    """TERM and CONT to the tree, KILL after ``grace_ms``."""
    return _order(lib.ORDER_CANCEL, 0, grace_ms)


def _order(kind: int, signal: int, grace_ms: int) -> bytes:
    return bytes(ffi.buffer(ffi.new(_ORDER, (kind, signal, grace_ms, 0))))


def pidfs_handle(pidfd: int) -> str | None:
    """The pidfs file handle of a process, as ``type:hex``; None before Linux 6.14."""
    data, kind = ffi.new("unsigned char[32]"), ffi.new("int *")
    count = lib.pidfs_handle(pidfd, data, kind)
    return f"{kind[0]:x}:{bytes(data[0:count]).hex()}" if count > 0 else None


def pidfs_open(any_pidfd: int, handle: str) -> int:
    """A new pidfd of the process that ``handle`` names, or -errno. Raises ValueError for no handle of ours."""
    kind, _, digits = handle.partition(":")
    data = bytes.fromhex(digits)
    return int(lib.pidfs_open(any_pidfd, data, len(data), int(kind, 16)))


def file_system_magic(fd: int) -> int:
    """f_type of statfs(2). Raises OSError."""
    found = int(lib.file_system_magic(fd))
    if found < 0:
        raise OSError(-found, os.strerror(-found))
    return found


def signal_fd(numbers: Iterable[int]) -> int:
    """A signalfd of blocked signals. Raises OSError."""
    fd = int(lib.signal_fd(sum(1 << (number - 1) for number in numbers)))
    if fd < 0:
        raise OSError(-fd, os.strerror(-fd))
    return fd


def is_pidfs(fd: int) -> bool:
    """True where a pidfd's inode number is an identity (Linux 6.9): before, all pidfds share one inode."""
    return bool(file_system_magic(fd) == lib.PIDFS_MAGIC)
