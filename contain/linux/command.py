"""The command as execve(2) will get it, in a memfd: its paths, arguments and environment are never on disk."""

from __future__ import annotations

import fcntl
import os
import resource

from contain.errors import ImpossibleRequest
from contain.job import check_bytes
from contain.linux import native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from contain.job import Job

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
COERCED = (b"C.UTF-8", b"C.utf8", b"UTF-8")
UNLIMITED = 2**64 - 1
MOST_ARGUMENT_BYTES = 6 * 1024 * 1024
LEAST_ARGUMENT_BYTES = 128 * 1024
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def _is_pythons_own(locale: bytes) -> bool:
    """Python gives itself an LC_CTYPE in a C locale (PEP 538). A job gets its caller's variables, and no more."""
    return locale in COERCED and not _was_given_a_locale()


_given: list[bool] = []


def _was_given_a_locale() -> bool:
    """Whether LC_CTYPE was in the environment with which this process began, which never changes."""
    if not _given:
        try:
            with open("/proc/self/environ", "rb") as begun:
                _given.append(any(one.startswith(b"LC_CTYPE=") for one in begun.read().split(b"\0")))
        except OSError:
            return True
    return _given[0]


def inherited() -> list[bytes]:
    """This process's variables, ``NAME=VALUE``, without what Python has given itself."""
    return [
        name + b"=" + text
        for name, text in os.environb.items()
        if name != b"LC_CTYPE" or not _is_pythons_own(text)
    ]


def block(job: Job, limits: Mapping[int, tuple[int, int]]) -> bytes:
    """The command as the kernel will get it. Raises ImpossibleRequest when execve(2) could only say E2BIG."""
    if job.env is None:
        variables = inherited()
        path = os.environ.get("PATH")
    else:
        variables = [check_bytes(f"{name}={text}", "A variable of env") for name, text in job.env.items()]
        path = job.env.get("PATH")
    args = [check_bytes(text, "An argument") for text in (job.command, *job.args)]
    total_bytes = sum(len(text) + 9 for text in args + variables)  # its NUL, and its pointer
    stack_bytes = limits.get(resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK))[0]
    if stack_bytes in (resource.RLIM_INFINITY, UNLIMITED):
        stack_bytes = 4 * MOST_ARGUMENT_BYTES
    # bprm_stack_limits in fs/exec.c: a quarter of the stack limit, at most 6 MiB, at least 128 KiB.
    room_bytes = max(min(stack_bytes // 4, MOST_ARGUMENT_BYTES), LEAST_ARGUMENT_BYTES)
    if total_bytes > room_bytes:
        raise ImpossibleRequest(
            f"Arguments and environment take {total_bytes} bytes; with this stack limit the kernel takes {room_bytes}.",
            advice="Pass them through files, or raise limits.stackBytes.",
        )
    return native.command_block(_paths(job.command, path or DEFAULT_PATH), args, variables)


def _paths(command: str, path: str) -> list[bytes]:
    """Where to look for the command, in turn: along the PATH that the job will have, as execvp(3) does."""
    if "/" in command:
        return [os.fsencode(command)]
    return [os.fsencode(os.path.join(folder or ".", command)) for folder in path.split(":")]


def sealed(data: bytes) -> int:
    """A memfd that nobody can change any more; it is never on disk."""
    fd = os.memfd_create("contain-command", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd
