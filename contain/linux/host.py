"""What kind of Linux this is: WSL or not, and which rule it was that refused the namespaces."""

from __future__ import annotations

import errno
import os

from contain.errors import ContainError, NamespacesDenied, SetupFailed, WslRefused
from contain.linux import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.linux.keeper import Denied

NAMESPACE_STEPS = ("clone", "setgroups", "uid-map", "gid-map", "mounts")
CAP_SYS_ADMIN = 21

NO_ROOM = (errno.EAGAIN, errno.ENOMEM)
NO_ROOM_WHY = "no more processes or memory"
NO_ROOM_ADVICE = "Raise ulimit -u or the pids limit of this cgroup, or free memory."


def _read(path: str) -> str:
    return procfs.glance(path) or ""


def refuse_wsl(proc: str = "/proc") -> None:
    """Raises WslRefused on a kernel of Microsoft's, in a distribution of WSL and in a container inside one.

    The text comes from /proc and only then from uname(2): it is the same text, and a test can lay its own over it.
    """
    text = _read(f"{proc}/sys/kernel/osrelease") or os.uname().release
    version = _read(f"{proc}/version")
    interop = [
        name
        for name in ("WSLInterop", "WSLInterop-late")
        if os.path.exists(f"{proc}/sys/fs/binfmt_misc/{name}")
    ]
    if "microsoft" in (text + version).lower() or interop or os.path.isdir("/run/WSL"):
        raise WslRefused(
            f"This is WSL (kernel {text}): a Windows program started from here is in no Linux containment.",
            advice="Use a real Linux machine, or a virtual machine with its own kernel.",
        )


def has_capability(number: int) -> bool:
    """This process has it in effect. See capabilities(7)."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _seccomp() -> bool:
    return "Seccomp:\t2" in _read("/proc/self/status")


def _in_chroot() -> bool:
    """A root that is no mount point: create_user_ns (kernel/user_namespace.c) refuses a changed root."""
    mounts = _read("/proc/self/mountinfo").splitlines()
    return bool(mounts) and not any(line.split()[4] == "/" for line in mounts)


def explain(denied: Denied) -> ContainError:
    """The sentence for a launch that the kernel refused: which rule it was, and the narrowest way out."""
    if denied.step == "directory":
        return SetupFailed(
            f"The working directory cannot be entered ({os.strerror(denied.errno)}).",
            step=denied.step,
            advice="Give another cwd, or the permission to enter it.",
        )
    if denied.step not in NAMESPACE_STEPS:
        return SetupFailed(
            f"Launching failed at step {denied.step} ({os.strerror(denied.errno)}).",
            step=denied.step,
            detail=errno.errorcode.get(denied.errno, str(denied.errno)),
            advice=NO_ROOM_ADVICE
            if denied.errno in NO_ROOM
            else "The step and the reason say what this machine refuses.",
        )
    detail, why, advice = _which_rule(denied.errno)
    return NamespacesDenied(
        f"The namespaces of the job were refused at step {denied.step} ({os.strerror(denied.errno)}): {why}.",
        step=denied.step,
        detail=detail,
        advice=advice,
    )


def _which_rule(number: int) -> tuple[str, str, str]:
    """(detail word, what it was, advice). The errno narrows it down, the settings decide."""
    if number == errno.ENOSPC:
        return (
            "limit",
            "a limit on namespaces is reached, or they are nested 32 deep",
            "Raise user.max_user_namespaces and user.max_pid_namespaces (sysctl).",
        )
    if number in NO_ROOM:
        return "limit", NO_ROOM_WHY, NO_ROOM_ADVICE
    if _read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return (
            "sysctl",
            "kernel.unprivileged_userns_clone is 0",
            "Set it to 1 (sysctl -w kernel.unprivileged_userns_clone=1), or run contain as root.",
        )
    if number == errno.EACCES or _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        return (
            "apparmor",
            "a security module (AppArmor or SELinux) forbids user namespaces to this program",
            "Load an AppArmor profile that allows `userns` to contain-init, or run contain as root.",
        )
    if _seccomp():
        return (
            "seccomp",
            "a seccomp filter forbids them, as a container's default profile does",
            "Start the container with --cap-add SYS_ADMIN, or with --security-opt seccomp=unconfined.",
        )
    if _in_chroot():
        return (
            "chroot",
            "user namespaces are refused in a chroot",
            "Enter the tree by pivot_root, or run contain as root.",
        )
    if os.geteuid() == 0 and not has_capability(CAP_SYS_ADMIN):
        return (
            "capability",
            "this root has no CAP_SYS_ADMIN",
            "Give it CAP_SYS_ADMIN, or allow user namespaces.",
        )
    return (
        "unknown",
        "the kernel does not say by which rule",
        "Try as root; see docs/SAFETY.md for what the launch needs.",
    )
