"""Limits of a whole tree: which of them something here can enforce, and what does. docs/LIMITS.md has the table.

Only jobs that ask for such a limit come here. Never a silent weaker mode: what nothing enforces is called
``not-applied``, with the reason, or is refused.
"""

from __future__ import annotations

import os
import resource

from contain.errors import ImpossibleRequest, LimitsDenied
from contain.linux import cgroup, hierarchy, host, procfs
from contain.linux.leaf import Leaf, name_of, write
from contain.linux.unified import NoPlace, place
from receipts import LimitsInForce

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contain.job import Job, Limits
    from contain.linux.hierarchy import Group

CONTROLLERS = {"memory_bytes": "memory", "cpus": "cpu", "pids": "pids"}
WORDS = {"memory_bytes": "memoryBytes", "cpus": "cpus", "pids": "pids"}
CLOSE_S = 0.05
"""For an init that was let go a moment ago, and holds the leaf until it has ended."""
PERIOD_US = 100_000
LEAST_QUOTA_US = 1000
MOST_PIDS = 4_194_304
"""PID_MAX_LIMIT of the kernel: more cannot be counted, and cannot be there."""

OWN_COUNT = (5, 14)
"""From this Linux on a user namespace counts its own processes against RLIMIT_NPROC (kernel/ucount.c)."""

ADVICE = (
    "Start contain in a cgroup that is delegated to it (systemd-run --scope -p Delegate=yes; with --user for a plain"
    " user), or as root, or do without the limit."
)


class TreeLimits:
    """What holds one job's tree. Owns the leaf; ``close`` removes it."""

    def __init__(self, job: Job, followers: Sequence[int]) -> None:
        """Makes the leaf. Raises LimitsDenied and ImpossibleRequest; then nothing is left.

        ``followers``: pids of our own children that must be where this process is (see unified.place).
        """
        self.rlimits: dict[int, tuple[int, int]] = {}
        self.memory: cgroup.MemoryKills | None = None
        self._peak: str | None = None
        self.killed = False
        self._leaf = Leaf(name_of(job.id))
        self._found: dict[str, str] = {}
        _refuse_nothing(job.limits)
        try:
            self._apply(job.limits, followers)
            self.in_force = LimitsInForce().replace(**self._found)
            if job.require_limits:
                self._require()
        except BaseException:
            self.close()
            raise

    @property
    def cgroups(self) -> tuple[str, ...]:
        """The directories of the leaf that are there."""
        return tuple(self._leaf.paths)

    def enter_fds(self) -> list[int]:
        """See Leaf."""
        return self._leaf.enter_fds()

    def peak_bytes(self) -> int | None:
        """The most memory that the tree had at one time; None where no leaf counts it."""
        text = None if self._peak is None else procfs.glance(self._peak)
        return int(text) if text and text.isdigit() else None

    def remove(self) -> tuple[str, ...]:
        """Removes the leaf; returns what of it could not be removed."""
        return self._leaf.remove()

    def close(self) -> None:
        """Removes the leaf, or lets it go: it is litter once it is empty. ``killed`` then tells of its kills."""
        if self._leaf.paths:
            self.killed = (
                self.memory is not None and self.memory.count() > 0
            )  # the counter goes with the leaf
            self._leaf.remove(CLOSE_S)
        self._leaf.close()

    def abandon(self) -> None:
        """In a forked child: lets its copies go. The leaf is the parent's, and stays."""
        self._leaf.close()

    def _apply(self, limits: Limits, followers: Sequence[int]) -> None:
        asked = [name for name in CONTROLLERS if getattr(limits, name) is not None]
        groups = _own_groups()
        parents = _parents({CONTROLLERS[name] for name in asked}, groups, followers)
        for name in asked:
            controller = CONTROLLERS[name]
            group, parent = (
                groups.get(controller),
                parents.get(controller, "no cgroup has this controller here"),
            )
            if group is None or not parent.startswith("/"):
                why = parent
            else:
                try:
                    self._set(name, getattr(limits, name), self._leaf.make(parent), group.version)
                    self._found[name] = f"cgroup-v{group.version}"
                    continue
                except OSError as error:
                    why = f"the cgroup {parent} refuses it ({error.strerror})"
            if name == "pids" and _counts_its_own():
                most = min(limits.pids + 1, resource.getrlimit(resource.RLIMIT_NPROC)[1] % 2**64)  # type: ignore[operator]
                self.rlimits[resource.RLIMIT_NPROC] = (most, most)
                self._found[name] = "rlimit"
            else:
                self._found[name] = f"not-applied: {why}"

    def _set(self, name: str, value: float, leaf: str, version: int) -> None:
        """Writes one limit. Raises OSError."""
        if name == "memory_bytes":
            self._set_memory(int(value), leaf, version)
        elif name == "pids":
            # The init is one, and a limit of N is N for the command and what it starts.
            write(f"{leaf}/pids.max", str(int(value) + 1) if value < MOST_PIDS else "max")
        else:
            quota_us = max(int(value * PERIOD_US), LEAST_QUOTA_US)
            if version == hierarchy.V2:
                write(f"{leaf}/cpu.max", f"{quota_us} {PERIOD_US}")
                return
            write(f"{leaf}/cpu.cfs_period_us", str(PERIOD_US))
            try:
                write(f"{leaf}/cpu.cfs_quota_us", str(quota_us))
            except OSError:
                # EINVAL: a v1 group may not ask for more than the group around it has. That holds for the leaf too.
                if not _has_less(os.path.dirname(leaf), quota_us):
                    raise

    def _set_memory(self, most_bytes: int, leaf: str, version: int) -> None:
        if version == hierarchy.V2:
            write(f"{leaf}/memory.max", str(most_bytes))
            _write_if_there(f"{leaf}/memory.swap.max", "0")
            self.memory = cgroup.MemoryKills(f"{leaf}/memory.events")
            self._peak = f"{leaf}/memory.peak"
        else:
            write(f"{leaf}/memory.limit_in_bytes", str(most_bytes))
            _write_if_there(f"{leaf}/memory.memsw.limit_in_bytes", str(most_bytes))
            self.memory = cgroup.MemoryKills(f"{leaf}/memory.oom_control")
            self._peak = f"{leaf}/memory.max_usage_in_bytes"

    def _require(self) -> None:
        missing = {WORDS[name]: why for name, why in self._found.items() if why.startswith("not-applied")}
        if missing:
            raise LimitsDenied(
                "; ".join(f"{name} is {why}" for name, why in missing.items()) + ".",
                advice=ADVICE,
                detail=",".join(missing),
            )


def _refuse_nothing(limits: Limits) -> None:
    if limits.pids == 0 or limits.memory_bytes == 0:
        raise ImpossibleRequest(
            "A tree with no process or no memory at all cannot run.", advice="Ask for more than 0."
        )


def _own_groups() -> Mapping[str, Group]:
    try:
        return hierarchy.own()
    except OSError:
        return {}


def _parents(asked: set[str], groups: Mapping[str, Group], followers: Sequence[int]) -> Mapping[str, str]:
    """Controller -> the directory that the leaf goes in, or why there is none."""
    found = {name: groups[name].path for name in asked if name in groups}
    unified = frozenset(name for name in found if groups[name].version == hierarchy.V2)
    if unified:
        try:
            where = place(groups[next(iter(unified))].path, unified, followers)
        except NoPlace as error:
            where = str(error)
        found |= dict.fromkeys(unified, where)
    return found


def _write_if_there(path: str, text: str) -> None:
    """Swap is counted only where the kernel was built and booted so. Raises OSError for any other refusal."""
    try:
        write(path, text)
    except FileNotFoundError:
        pass


def _has_less(group: str, quota_us: int) -> bool:
    """A v1 group, or one around it, that has less cpu than this."""
    while os.path.exists(f"{group}/cpu.cfs_quota_us"):
        text = procfs.glance(f"{group}/cpu.cfs_quota_us") or "-1"
        period = procfs.glance(f"{group}/cpu.cfs_period_us") or str(PERIOD_US)
        if int(text) > 0 and int(text) / int(period) <= quota_us / PERIOD_US:
            return True
        group = os.path.dirname(group)
    return False


def _counts_its_own() -> bool:
    """RLIMIT_NPROC counts the job alone: it gets a user namespace of its own, and its user is not root.

    The keeper decides the same way (may_make_namespaces in keeper.c); copy_process in kernel/fork.c exempts root.
    """
    release = os.uname().release.split("-")[0].split(".")
    new_enough = tuple(int(part) for part in release[:2] if part.isdigit()) >= OWN_COUNT
    return new_enough and os.geteuid() != 0 and not host.has_capability(host.CAP_SYS_ADMIN)
