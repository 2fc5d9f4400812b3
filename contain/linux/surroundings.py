"""What kind of place this Linux is, in words for doctor. Nothing is decided by them: jobs go by what they try."""

from __future__ import annotations

import os

from contain.linux import hierarchy, host, procfs

STATUS = "/proc/self/status"
MASKED = "/proc/kcore"
"""A character device or an empty file system over it: the sign of a container's masked /proc."""
HIDING = (
    "hidepid=1",
    "hidepid=2",
    "hidepid=4",
    "hidepid=noaccess",
    "hidepid=invisible",
    "hidepid=ptraceable",
)


def described() -> dict[str, object]:
    """Name -> what was found; None for what cannot be read here."""
    status = procfs.glance(STATUS) or ""
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    names = os.uname()
    return {
        "system": f"{names.sysname} {names.release} ({names.machine})",
        "user": f"uid {os.geteuid()}",
        "capSysAdmin": host.has_capability(host.CAP_SYS_ADMIN),
        "seccomp": {"0": "none", "1": "strict", "2": "filter"}.get(fields.get("Seccomp", "").strip()),
        "noNewPrivs": fields.get("NoNewPrivs", "").strip() == "1" if fields else None,
        "securityModules": _line("/sys/kernel/security/lsm"),
        "userNamespaces": _line("/proc/sys/user/max_user_namespaces"),
        "unprivilegedUserNamespaces": _line("/proc/sys/kernel/unprivileged_userns_clone"),
        "apparmorRestriction": _line("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        "cgroups": _cgroups(),
        "proc": _proc(),
    }


def _line(path: str) -> str | None:
    text = procfs.glance(path)
    return None if text is None else text.strip()


def _cgroups() -> str | None:
    """``v1``, ``v2``, ``hybrid`` or ``none``."""
    try:
        versions = {group.version for _, group in hierarchy.every()}
    except OSError:
        return None
    return {(): "none", (1,): "v1", (2,): "v2", (1, 2): "hybrid"}[tuple(sorted(versions))]


def _proc() -> str | None:
    """``open``, ``hidepid``, ``pids only`` or ``masked``."""
    mounts = procfs.glance("/proc/self/mountinfo")
    if mounts is None:
        return None
    entries = [line.partition(" - ") for line in mounts.splitlines()]
    points = [before.split(" ")[4] for before, _, _ in entries]
    own = [after for before, _, after in entries if before.split(" ")[4] == "/proc"]
    if own and "subset=pid" in own[-1]:
        return "pids only"
    if own and any(word in own[-1] for word in HIDING):
        return "hidepid"
    return "masked" if MASKED in points else "open"
