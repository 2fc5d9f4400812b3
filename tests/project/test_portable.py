"""What only Linux has is in contain/linux: a call of it elsewhere would fail on a Mac, and on no machine of ours."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from tests.project.tree import SHIPPED, parsed, python

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("source")  # one worker parses every file, and not each of them

LINUX = "contain/linux/"

FOLDERS = ("/proc", "/sys/", "/dev/shm", "/run/")
NAMES = frozenset(
    """
    AF_NETLINK AF_VSOCK CLOCK_BOOTTIME CLONE_NEWPID EFD_CLOEXEC EPOLLIN F_ADD_SEALS F_GETPIPE_SZ F_OFD_SETLK
    F_SETPIPE_SZ F_SETSIG IN_CREATE MFD_CLOEXEC MSG_CMSG_CLOEXEC MSG_NOSIGNAL O_DIRECT O_LARGEFILE O_NOATIME O_PATH
    O_TMPFILE PIDFD_NONBLOCK PR_SET_NAME RTLD_DEEPBIND SCHED_BATCH SCHED_IDLE SCM_CREDENTIALS SFD_CLOEXEC SIGPWR
    SIGRTMIN SIGSTKFLT SOCK_CLOEXEC SOCK_NONBLOCK SOCK_SEQPACKET SO_PASSCRED SO_PEERCRED SO_PEERPIDFD P_PIDFD
    RLIMIT_NICE RLIMIT_RTPRIO RLIMIT_SIGPENDING
    accept4 copy_file_range epoll eventfd fallocate fdatasync getrandom getresgid getresuid inotify_init memfd_create
    openat2 pidfd_getfd pidfd_open pidfd_send_signal pipe2 posix_fadvise posix_fallocate prctl prlimit process_vm_readv
    pyroute2 renameat2 sched_getaffinity sched_setaffinity sched_setscheduler sendfile setns setresgid setresuid
    setxattr signalfd sigtimedwait sigwaitinfo splice statx timerfd_create unshare
    """.split()  # noqa: SIM905 - a list to read
)
"""Of os, socket, signal, select, time, fcntl, resource and of modules; the C library's too, as ctypes would name it."""

REASONS = {
    (
        "receipts/place.py",
        "/proc",
    ): "where the mount table is; on Darwin nothing is there, and statfs(2) decides",
    ("receipts/place.py", "O_PATH"): "with what Darwin has in its place",
    ("contain/budget/classes/launchers.py", "prlimit"): "the name of a program in front of a command",
}
"""(file, what) that is only reached on Linux, or does no harm elsewhere."""


def strings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Every text, those inside of f-strings too, but for docstrings and other sentences that stand alone."""
    alone = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and node not in alone:
            yield node


def of_linux(tree: ast.Module) -> set[str]:
    """What a file uses that only Linux has."""
    found = set()
    for text in strings(tree):
        value = text.value if isinstance(text.value, bytes) else str(text.value).encode()
        found |= {folder for folder in FOLDERS if value.startswith(folder.encode())}
        if value.startswith(b"\0") and value.strip(b"\0"):
            found.add("an abstract socket")
        if value.decode("latin-1") in NAMES:
            found.add(value.decode("latin-1"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found |= {node.attr} & NAMES
        elif isinstance(node, ast.Name):
            found |= {node.id} & NAMES
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            words = {module, *(alias.name for alias in node.names)}
            found |= {word for name in words for word in name.split(".")} & NAMES
    return found


def test_what_only_linux_has_is_in_its_backend() -> None:
    """Elsewhere it has a reason, by file; and a reason whose use is gone is gone as well."""
    used = {
        (path, what)
        for path in python(*SHIPPED)
        if not path.startswith(LINUX)
        for what in of_linux(parsed(path))
    }
    assert used == set(REASONS)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("open(f'/proc/{pid}/stat')", "/proc"),
        ("def read(proc='/proc'): ...", "/proc"),
        ("paths = {'a': b'/sys/fs/cgroup'}", "/sys/"),
        ("listener.bind('\\0contain')", "an abstract socket"),
        ("os.pidfd_open(pid)", "pidfd_open"),
        ("from _socket import SO_PEERCRED", "SO_PEERCRED"),
        ("import prctl", "prctl"),
        ("getattr(os, 'O_TMPFILE')", "O_TMPFILE"),
        ("time.clock_gettime(time.CLOCK_BOOTTIME)", "CLOCK_BOOTTIME"),
        ("select.epoll()", "epoll"),
        ("found = memfd_create('x')", "memfd_create"),
    ],
)
def test_each_kind_of_use_is_noticed(source: str, what: str) -> None:
    """The control: one of each way to use it; a sentence that speaks of it uses nothing."""
    assert of_linux(ast.parse(source)) == {what}
    assert of_linux(ast.parse(f'"""/proc is not read. {what}"""')) == set()
