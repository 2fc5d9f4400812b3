"""Births on Linux: taking one when an init starts, and looking for it again later.

Fails closed: what cannot be seen is ``unknown``, never ``gone``. The order of observation is DESIGN section 5's.
"""

from __future__ import annotations

import errno
import os
import select

from contain.backend import Birth, Observation
from contain.errors import SetupFailed
from contain.linux import native, procfs
from receipts import KERNEL, MOUNTED, Anchor, NamespaceInit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from receipts import Proof

LIVE, GONE, UNKNOWN = "live", "gone", "unknown"

NO_SUCH_PROCESS = (errno.ESRCH, errno.ENOENT, errno.EINVAL)
"""pidfd_open(2): no such process, or (EINVAL) the number is a mere thread's now. In its own namespace: gone."""

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def _namespace(path: str) -> int:
    return os.stat(path).st_ino


class Here:
    """Where this process looks from. None of it can change while a process lives, so it is read once."""

    def __init__(self) -> None:
        """Raises OSError where /proc does not show it."""
        self.boot_id = procfs.read(BOOT_ID).strip()
        if not self.boot_id:
            raise OSError(errno.ENODATA, f"{BOOT_ID} is empty")
        # systemd-nspawn mounts an invented id over it: one that differs then says nothing about the machine's boot.
        own = os.stat(BOOT_ID).st_dev == os.stat("/proc/self").st_dev
        self.boot_id_source = KERNEL if own else MOUNTED
        self.pid_namespace = _namespace("/proc/self/ns/pid")
        try:
            self.time_namespace: int | None = _namespace("/proc/self/ns/time")
        except OSError:
            self.time_namespace = None  # a kernel without time namespaces: ticks are the same for everyone
        mine = os.pidfd_open(os.getpid())
        self.pidfs = native.is_pidfs(mine)
        os.close(mine)


_here: list[Here] = []


def here() -> Here:
    """The one Here of this process. Raises OSError."""
    if not _here:
        _here.append(Here())
    return _here[0]


def _fdinfo(pidfd: int) -> tuple[int, list[int]]:
    """(pid as this /proc numbers it, NSpid) of a pidfd's process; pid -1 when it is gone.

    Asked of our own pidfd and not of /proc/PID/status: it cannot be another process's, and it gives the number
    under which this very /proc knows the process, even where /proc belongs to an outer namespace.
    """
    pid, chain = -1, []
    for line in procfs.read(f"/proc/self/fdinfo/{pidfd}").splitlines():
        name, _, rest = line.partition(":")
        if name == "Pid":
            pid = int(rest)
        elif name == "NSpid":
            chain = [int(number) for number in rest.split()]
    return pid, chain


def proc_pid(pidfd: int) -> int:
    """Under which number our /proc shows the process of ``pidfd``; -1 when it is gone. Raises OSError."""
    return _fdinfo(pidfd)[0]


def _leads_a_namespace(chain: list[int]) -> bool:
    """NSpid, outermost first: a process of an inner namespace, and PID 1 there."""
    return len(chain) > 1 and chain[-1] == 1


def _start_ticks(proc_pid: int) -> int:
    """Field 22 of proc_pid_stat(5); the name in field 2 may hold spaces and parentheses."""
    return int(procfs.read(f"/proc/{proc_pid}/stat").rpartition(")")[2].split()[19])


def ended(pidfd: int, wait_s: float = 0.0) -> bool:
    """True when the process of ``pidfd`` has ended; for an init that means that its namespace is empty."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))


def take(pid: int, pidfd: int) -> NamespaceInit:
    """The proof of a fresh init, seen from outside while it is still dumpable; ``proc`` is yet to be said by the init.

    Raises SetupFailed when it is not PID 1 of a namespace of its own, or is gone already.
    """
    try:
        observer = here()
        number, chain = _fdinfo(pidfd)
        ticks = _start_ticks(number)
        uid = os.stat(f"/proc/{number}").st_uid
        namespace = _namespace(f"/proc/{number}/ns/pid")
    except OSError as error:
        raise _unproven(f"/proc did not show it ({error.strerror})") from None
    if not _leads_a_namespace(chain) or namespace == observer.pid_namespace:
        raise _unproven(f"it is not PID 1 of a namespace of its own (NSpid {chain})")
    if ended(pidfd):
        raise _unproven("it ended while it was being looked at")  # and what was read may be another's
    return NamespaceInit(
        pid=pid,
        uid=uid,
        boot_id=observer.boot_id,
        boot_id_source=observer.boot_id_source,
        start_ticks=ticks,
        namespace=namespace,
        observer_namespace=observer.pid_namespace,
        time_namespace=observer.time_namespace,
        pidfs_id=os.fstat(pidfd).st_ino if observer.pidfs else None,
        pidfs_handle=native.pidfs_handle(pidfd),
        witness="NSpid of /proc/self/fdinfo/PIDFD",
        proc="unknown",
    )


def _unproven(why: str) -> SetupFailed:
    return SetupFailed(
        f"The init could not be proven: {why}.",
        step="ready",
        advice="Ask again; contain doctor may say more.",
    )


def mine() -> Birth:
    """The birth of this process. Raises SetupFailed where /proc does not show it."""
    try:
        observer = here()
        pidfd = os.pidfd_open(os.getpid())
        try:
            return Birth(
                boot_id=observer.boot_id,
                boot_id_source=observer.boot_id_source,
                observer_namespace=observer.pid_namespace,
                time_namespace=observer.time_namespace,
                pid=os.getpid(),
                start_ticks=_start_ticks(proc_pid(pidfd)),
                pidfs_id=os.fstat(pidfd).st_ino if observer.pidfs else None,
                pidfs_handle=native.pidfs_handle(pidfd),
            )
        finally:
            os.close(pidfd)
    except OSError as error:
        raise SetupFailed(
            f"This process cannot tell its own birth ({error.strerror}).",
            advice="Mount /proc of this PID namespace.",
        ) from None


class Found:
    """An observation, and the pidfd of the process while it is live. ``close`` after use."""

    def __init__(self, state: str, why: str, pidfd: int = -1) -> None:
        """Owns ``pidfd``."""
        self.observation = Observation(state=state, why=why)
        self.pidfd = pidfd

    @property
    def fd(self) -> int:
        """For contain.backend.Watched."""
        return self.pidfd

    def close(self) -> None:
        """Lets go of the pidfd."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def look(proof: Proof | Birth) -> Found:
    """A fresh look at a recorded birth."""
    if isinstance(proof, Anchor):
        return Found(UNKNOWN, "recorded on a Mac")
    try:
        if here().boot_id != proof.boot_id:
            if here().boot_id_source != KERNEL:
                return Found(
                    UNKNOWN, f"another boot id was recorded, but {BOOT_ID} is not the kernel's own here"
                )
            if proof.boot_id_source == MOUNTED:
                return Found(
                    UNKNOWN, "recorded under a boot id that is not the kernel's own, in a container perhaps"
                )
            return Found(GONE, "recorded in another boot")
        if here().pid_namespace != proof.observer_namespace:
            return Found(UNKNOWN, "recorded in another PID namespace, where its number means something else")
        return _by_handle(proof) or _by_number(proof)
    except OSError as error:
        return Found(UNKNOWN, f"it could not be looked at ({error.strerror})")
    except ValueError as error:
        return Found(UNKNOWN, f"its record makes no sense here ({error})")


def _judge(pidfd: int, why: str) -> Found:
    if ended(pidfd):
        os.close(pidfd)
        return Found(GONE, f"it has ended, and its namespace with it ({why})")
    return Found(LIVE, why, pidfd)


def _by_handle(proof: NamespaceInit | Birth) -> Found | None:
    """The exact process by its pidfs handle (Linux 6.14); None where that cannot decide."""
    if proof.pidfs_handle is None:
        return None
    mine = os.pidfd_open(os.getpid())
    try:
        pidfd = native.pidfs_open(mine, proof.pidfs_handle)
    finally:
        os.close(mine)
    if pidfd >= 0:
        return _judge(pidfd, "pidfs handle")
    # ESTALE also answers for a live process of another PID namespace; that was excluded before.
    return Found(GONE, "its pidfs handle is stale") if pidfd == -errno.ESTALE else None


def _by_number(proof: NamespaceInit | Birth) -> Found:
    try:
        pidfd = os.pidfd_open(proof.pid)
    except OSError as error:
        if error.errno in NO_SUCH_PROCESS:
            return Found(GONE, f"no process has its number ({errno.errorcode[error.errno]})")
        raise
    try:
        verdict, why = _compare(proof, pidfd)
    except BaseException:
        os.close(pidfd)
        raise
    if verdict == LIVE:
        return _judge(pidfd, why)
    # Whoever has the number now is not ours, or has ended meanwhile; either way ours is not there any more.
    gone = verdict == GONE or ended(pidfd)
    os.close(pidfd)
    return Found(GONE if gone else UNKNOWN, why)


def _compare(proof: NamespaceInit | Birth, pidfd: int) -> tuple[str, str]:
    """Is the process of ``pidfd`` the recorded one? LIVE: yes; GONE: no, the number was used again."""
    if proof.pidfs_id is not None and here().pidfs:
        same = os.fstat(pidfd).st_ino == proof.pidfs_id
        return (LIVE, "pidfs id") if same else (GONE, "its number belongs to another process now (pidfs id)")
    number, chain = _fdinfo(pidfd)
    if proof.time_namespace is not None and here().time_namespace != proof.time_namespace:
        return UNKNOWN, "recorded in another time namespace, where start times differ"
    try:
        ticks = _start_ticks(number)
    except FileNotFoundError:
        return UNKNOWN, "/proc hides the process that has its number"
    if ticks != proof.start_ticks or (isinstance(proof, NamespaceInit) and not _leads_a_namespace(chain)):
        return GONE, "its number belongs to another process now (start time)"
    return LIVE, "start time and NSpid"
