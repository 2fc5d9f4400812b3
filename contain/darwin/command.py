"""The command as the anchor will get it, over a socket: its paths, arguments and environment are never on disk."""

from __future__ import annotations

import os
import resource

from contain.darwin import wire
from contain.errors import ImpossibleRequest, LimitsDenied
from contain.job import Limits, check_bytes
from receipts import LimitsInForce, fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from contain.job import Job

DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
MOST_BYTES = 1024 * 1024
"""ARG_MAX, which on Darwin is a constant."""

RESOURCES = {
    "open_files": resource.RLIMIT_NOFILE,
    "file_bytes": resource.RLIMIT_FSIZE,
    "core_bytes": resource.RLIMIT_CORE,
    "cpu_s": resource.RLIMIT_CPU,
    "address_space_bytes": resource.RLIMIT_AS,
    "stack_bytes": resource.RLIMIT_STACK,
}
INHERITED = ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")
"""Resources whose limits any child of this process would have."""

TREE_LIMITS = ("memory_bytes", "cpus", "pids")
NOT_APPLIED = "not-applied: macOS limits no tree without an entitlement"


def inherited() -> list[bytes]:
    """This process's variables. What it began with is nowhere to be read: a C locale's own LC_CTYPE stays."""
    return [name + b"=" + text for name, text in os.environb.items()]


def block(job: Job, umask: int, open_files: tuple[int, int] | None = None) -> bytes:
    """As the anchor reads it. Raises ImpossibleRequest for what execve(2) would refuse.

    ``open_files``: this process's limit before it was raised, for jobs that ask for none.
    """
    if job.env is None:
        variables = inherited()
        path = os.environ.get("PATH")
    else:
        variables = [check_bytes(f"{name}={text}", "A variable of env") for name, text in job.env.items()]
        path = job.env.get("PATH")
    args = [check_bytes(text, "An argument") for text in (job.command, *job.args)]
    total_bytes = sum(len(text) + 9 for text in args + variables)  # its NUL, and its pointer
    if total_bytes > MOST_BYTES:
        raise ImpossibleRequest(
            f"Arguments and environment take {total_bytes} bytes; the kernel takes {MOST_BYTES}.",
            advice="Pass them through files.",
        )
    limits = _resource_limits(job.limits)
    if open_files is not None:
        limits.setdefault(resource.RLIMIT_NOFILE, open_files)
    paths = _paths(job.command, path or DEFAULT_PATH)
    return wire.block(paths, args, variables, umask=umask, nice=job.limits.nice, limits=limits)


def _paths(command: str, path: str) -> list[bytes]:
    """Where to look for the command, in turn: along the PATH that the job will have, as execvp(3) does."""
    if "/" in command:
        return [os.fsencode(command)]
    return [os.fsencode(os.path.join(folder or ".", command)) for folder in path.split(":")]


def _resource_limits(limits: Limits) -> dict[int, tuple[int, int]]:
    """Resource number -> (soft, hard). Raises ImpossibleRequest for what this process may not raise."""
    found = {}
    for name in fields(Limits):
        asked = getattr(limits, name)
        if asked is None or name not in RESOURCES:
            continue
        hard = resource.getrlimit(RESOURCES[name])[1]
        if hard != resource.RLIM_INFINITY and asked > hard:
            raise ImpossibleRequest(
                f"The limit {name} of {asked} is above this process's own hard limit of {hard}.",
                advice="Ask for less, or raise the hard limit where contain is started.",
            )
        # CPU time: the soft limit sends SIGXCPU, which names the cause; the hard one a second later kills.
        found[RESOURCES[name]] = (asked, asked + 1 if name == "cpu_s" and asked != hard else asked)
    return found


def refuse_impossible(job: Job) -> None:
    """Raises ImpossibleRequest for what Linux can and Darwin cannot: it is never left out in silence."""
    asked = {
        "network none": job.network == "none",
        "no_new_privs": job.no_new_privs,
        "drop_capabilities": bool(job.drop_capabilities),
    }
    for name, wanted in asked.items():
        if wanted:
            raise ImpossibleRequest(f"macOS has no {name}.", advice="Ask without it.")


def limits_in_force(job: Job) -> LimitsInForce | None:
    """What enforces the limits of the tree: nothing. Raises LimitsDenied where the job requires them."""
    asked = [name for name in TREE_LIMITS if getattr(job.limits, name) is not None]
    if not asked:
        return None
    if job.require_limits:
        raise LimitsDenied(
            f"Nothing here can enforce {', '.join(asked)} for a tree of processes.",
            detail=",".join(asked),
            advice="Ask without requireLimits, or run it on Linux.",
        )
    return LimitsInForce().replace(**dict.fromkeys(asked, NOT_APPLIED))


def inheritance() -> dict[str, Any]:
    """This process's own limits and nice value: a command that launchd's child starts would have launchd's."""
    numbers = [getattr(resource, f"RLIMIT_{name}") for name in INHERITED]
    return {
        "limits": [[number, *resource.getrlimit(number)] for number in numbers],
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
    }


def adopt(inherited: Any) -> None:
    """Makes those this process's own, as far as its hard limits go."""
    for number, *wanted in inherited["limits"]:
        most = resource.getrlimit(number)[1]
        soft, hard = (_least(value, most) for value in wanted)
        try:
            resource.setrlimit(number, (soft, hard))
        except (OSError, ValueError):
            pass  # one that this system bounds otherwise
    try:
        os.setpriority(os.PRIO_PROCESS, 0, inherited["nice"])
    except OSError:
        pass  # a higher priority than launchd gives


def _least(one: int, other: int) -> int:
    if resource.RLIM_INFINITY in (one, other):
        return other if one == resource.RLIM_INFINITY else one
    return min(one, other)
