"""Ways to be refused by the kernel: seccomp filters, a changed root, no room for a process. ``python -m tests.denied``.

``denied.py CALL=ERRNO... -- COMMAND`` executes a command under a seccomp filter in which the named system calls fail,
as containers' profiles make them fail. ``clone:namespaces`` stands for clone(2) with any namespace flag.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

X86 = platform.machine() == "x86_64"
NUMBERS = {
    "clone": 56 if X86 else 220,
    "unshare": 272 if X86 else 97,
    "clone3": 435,
    "pidfd_open": 434,
    "pidfd_send_signal": 424,
}
ARCHITECTURE = 0xC000003E if X86 else 0xC00000B7
NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEW*: ns, cgroup, uts, ipc, user, pid, net, time

LOAD, EQUAL, AND_SET, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT, FIRST_ARGUMENT_AT = 0, 4, 16
SET_NO_NEW_PRIVS, SET_SECCOMP, MODE_FILTER = 38, 22, 2


def _statement(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _program(denials: dict[str, int]) -> bytes:
    """A classic BPF program; see seccomp(2)."""
    found = (
        _statement(LOAD, ARCHITECTURE_AT) + _statement(EQUAL, ARCHITECTURE, 1, 0) + _statement(RETURN, ALLOW)
    )
    for name, number in denials.items():
        call, _, only = name.partition(":")
        refuse = _statement(RETURN, ERRNO | number)
        found += _statement(LOAD, NUMBER_AT)
        if only:
            found += _statement(EQUAL, NUMBERS[call], 0, 3) + _statement(LOAD, FIRST_ARGUMENT_AT)
            found += _statement(AND_SET, NAMESPACE_FLAGS, 0, 1) + refuse
        else:
            found += _statement(EQUAL, NUMBERS[call], 0, 1) + refuse
    return found + _statement(RETURN, ALLOW)


def deny(denials: dict[str, int]) -> None:
    """From now on, and in every child, these calls fail with these numbers."""
    program = _program(denials)
    kept = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(kept))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for arguments in (
        (SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (SET_SECCOMP, MODE_FILTER, ctypes.c_char_p(head), 0, 0),
    ):
        if prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def chrooted(folder: Path, *places: Path) -> tuple[str, ...]:
    """Words in front of a command, for root: its root is a plain directory in ``folder``, with these places inside.

    The directory is no mount point, as in a tree that somebody has unpacked; the mounts are of a namespace of its own.
    """
    root = folder / "root"
    bound = [f'mkdir -p "{root}{place}" && mount --rbind "{place}" "{root}{place}"' for place in places]
    steps = (
        f'mount -t tmpfs -o mode=755 none "{folder}"',
        f'mkdir "{root}"',
        *bound,
        f'exec chroot "{root}" "$@"',
    )
    return ("unshare", "-m", "sh", "-c", " && ".join(steps), "-")


def with_room_for(processes: int, user: int) -> tuple[str, ...]:
    """Words in front of a command, for root: it is this user's, who may have so many processes. See setrlimit(2)."""
    drop = (f"--reuid={user}", f"--regid={user}", "--clear-groups")
    return ("prlimit", f"--nproc={processes}", "setpriv", *drop)


def main(words: list[str]) -> None:
    """Denies and executes."""
    split = words.index("--")
    deny(
        {
            name: int(getattr(errno, number))
            for name, _, number in (word.partition("=") for word in words[:split])
        }
    )
    os.execvp(words[split + 1], words[split + 1 :])  # noqa: S606 - it becomes the command


if __name__ == "__main__":
    main(sys.argv[1:])
