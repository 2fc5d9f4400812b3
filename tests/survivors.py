"""Is anything left? An answer that does not depend on what contain says, and from which nothing can hide.

While ``adopting``, this process is what orphans are given to: whatever lost its parent is then still found below it,
were it in a session, an environment or a namespace of its own. Births that were recorded before, and the job's PID
namespace, are two further looks at the same question.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import time
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

from tests.session import alive, descendants, in_namespace, keeper_of, kill, pids, stat_fields, wait_until

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

PR_SET_CHILD_SUBREAPER = 36
SCALE = float(os.environ.get("CONTAIN_TEST_SLOW", "1"))
GONE_S = 2.0
"""Nothing of a job lives so long after its containment was killed."""

NO_SUCH_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)
"""pidfd_open(2): nobody has the number, or a mere thread has it now."""

HERE_NAMESPACE = Path("/proc/self/ns/pid").stat().st_ino


@contextlib.contextmanager
def adopting() -> Iterator[None]:
    """Orphans below this process come to it; at the end none may be alive, and the dead ones are reaped."""
    before = set(descendants(os.getpid()))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    assert prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        left = [describe(pid) for pid in descendants(os.getpid()) if pid not in before]
        end_all(before)
        assert prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0
    assert left == []


EMPTY_LOOKS = 3


def end_all(but: Collection[int] = ()) -> None:
    """Ends and reaps everything below this process, until nothing is left: a relay may need some rounds.

    One empty look is no proof: who is handed to another parent in that moment is in no list of children.
    """
    empty_looks = 0

    def nothing_left() -> bool:
        nonlocal empty_looks
        found = [pid for pid in descendants(os.getpid()) if pid not in but]
        for pid in found:
            end(pid)
        reap(but)
        empty_looks = 0 if found else empty_looks + 1
        return empty_looks >= EMPTY_LOOKS

    wait_until(nothing_left, what="what a test started has ended")
    reap(but)


def end(pid: int) -> None:
    """SIGKILL to what is below this process. A number that has become a stranger's since it was read is left alone.

    The look comes after the pidfd: whoever has the number then is the process that is held, or one that got it after
    the death of that one, and a signal to the dead harms nobody.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in NO_SUCH_PROCESS:
            return
        raise
    try:
        if is_below(pid, os.getpid()):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    finally:
        os.close(pidfd)


def is_below(pid: int, root: int) -> bool:
    """Whether ``root`` is an ancestor; not so while one between them is dying, whose child is about to be another's."""
    while (found := stat_fields(pid)) is not None:
        pid = int(found[1])
        if pid == root:
            return True
    return False


def reap(but: Collection[int] = ()) -> None:
    """Reaps adopted zombies. Children that a Popen waits for must have been waited for before."""
    for pid in pids():
        found = stat_fields(pid)
        if found is not None and found[0] == "Z" and int(found[1]) == os.getpid() and pid not in but:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)


def describe(pid: int) -> str:
    """Number, name, state, parent and place of waiting of a process, for whoever reads a failure."""
    try:
        proc = Path(f"/proc/{pid}")
        name, where = ((proc / file).read_text().strip() for file in ("comm", "wchan"))
        state, parent = (proc / "stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return f"{pid} (gone meanwhile)"
    return f"{pid} {name} {state}, child of {parent}, in {where}"


class Watch:
    """What belongs to one wrapper. Look before the kill, then ask for survivors."""

    def __init__(self, root: int, but: Collection[int] = ()) -> None:
        """``root`` is the wrapper; ``but`` may outlive it (and nothing that already ran counts)."""
        self.root = root
        self.births: dict[int, int] = {}
        self.namespaces: set[int] = set()
        self._others = {pid for pid in descendants(os.getpid()) if pid != root} - set(descendants(root))
        self._others |= set(but)

    def look(self) -> Watch:
        """Records the births and the PID namespaces of all that is below the wrapper now."""
        for pid in (self.root, *descendants(self.root)):
            found = stat_fields(pid)
            if found is not None:
                self.births[pid] = int(found[19])
            with contextlib.suppress(OSError):
                inode = Path(f"/proc/{pid}/ns/pid").stat().st_ino
                if inode != HERE_NAMESPACE and inode not in self.namespaces:
                    # Held open: the kernel gives the inode of a namespace that is gone to the next one.
                    weakref.finalize(self, os.close, os.open(f"/proc/{pid}/ns/pid", os.O_RDONLY))
                    self.namespaces.add(inode)
        return self

    def survivors(self) -> list[str]:
        """Everything alive of the wrapper: by descent, by recorded birth, by PID namespace."""
        found = set(descendants(os.getpid())) - self._others
        found |= {pid for pid, ticks in self.births.items() if alive(pid, ticks) and pid not in self._others}
        for inode in self.namespaces:
            found |= set(in_namespace(inode))
        return [describe(pid) for pid in sorted(found)]

    def assert_gone(self, gone_s: float = GONE_S) -> None:
        """Nothing is alive ``gone_s`` from now; returns as soon as that is so."""
        deadline_s = time.monotonic() + gone_s * SCALE
        while left := self.survivors():
            assert time.monotonic() < deadline_s, f"alive {gone_s} s later: {left}"
            select.select([], [], [], 0.01)


def keeper_and_init(wrapper: int) -> tuple[int, int]:
    """The keeper and the (one) init of a wrapper whose job is prepared."""
    keeper = keeper_of(wrapper)
    inits = [pid for pid in descendants(keeper) if (stat_fields(pid) or ["", "0"])[1] == str(keeper)]
    assert len(inits) == 1, [describe(pid) for pid in inits]
    return keeper, inits[0]


def below(root: int) -> list[int]:
    """Descendants by /proc/PID/task/*/children: a few small reads, for a moment that will not last."""
    found: list[int] = []
    todo = [root]
    while todo:
        for file in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                children = [int(text) for text in file.read_text().split()]
                found += children
                todo += children
    return found


def waiting_at_step(root: int) -> int | None:
    """The process of ours below ``root`` that is in the wait of a test's hook: polling nothing (see init/main.c)."""
    for pid in below(root):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith("contain-"):
                call = Path(f"/proc/{pid}/syscall").read_text().split()
                if call[1:3] == ["0x0", "0x0"]:
                    return pid
    return None


def stop(pid: int) -> None:
    """SIGSTOP, and waits until it is stopped."""
    kill(pid, signal.SIGSTOP)
    wait_until(lambda: (stat_fields(pid) or ["X"])[0] in "TtXZ", what=f"{pid} is stopped")
