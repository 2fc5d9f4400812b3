"""Where this process's own cgroups are: one for each controller, v1 or v2. See cgroups(7)."""

from __future__ import annotations

import os

from contain.linux import procfs
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

V1, V2 = 1, 2


class Group(Record):
    """A cgroup as this process sees it: the hierarchy's version, and the directory."""

    version: int
    path: str


class _Mount(Record):
    """A mounted hierarchy. ``root``: which of its groups the mount shows at ``point``."""

    version: int
    controllers: tuple[str, ...]
    root: str
    point: str


def _unescape(text: str) -> str:
    """Blanks and the like are octal in there: proc_pid_mountinfo(5)."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def _mounts(proc: str) -> Iterator[_Mount]:
    for line in procfs.read(f"{proc}/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if kind[0] == "cgroup2":
            yield _Mount(version=V2, controllers=(), root=_unescape(fields[3]), point=_unescape(fields[4]))
        elif kind[0] == "cgroup":
            yield _Mount(
                version=V1,
                controllers=tuple(kind[2].split(",")),
                root=_unescape(fields[3]),
                point=_unescape(fields[4]),
            )


def _below(mount: _Mount, path: str) -> str | None:
    """The directory of the group ``path``; None where this mount does not show it (a cgroup namespace, a container)."""
    root = "" if mount.root == "/" else mount.root
    if path != root and not path.startswith(f"{root}/"):
        return None
    directory = (mount.point + path[len(root) :]).rstrip("/")
    # A group of another namespace is /../..: its text says nothing about a place in this mount.
    return directory if "/../" not in f"{directory}/" and os.path.isdir(directory) else None


def every(proc: str = "/proc") -> Iterator[tuple[frozenset[str], Group]]:
    """(controllers, this process's group) of each hierarchy that is mounted here; v2 also where it has no controller.

    Raises OSError where /proc does not show it.
    """
    mounts = list(_mounts(proc))
    for line in procfs.read(f"{proc}/self/cgroup").splitlines():
        _, listed, path = line.split(":", 2)
        names = set(listed.split(",")) - {""}
        for mount in mounts:
            if (mount.version == V2) != (not listed) or not names <= set(mount.controllers):
                continue
            directory = _below(mount, path)
            if directory is None:
                continue
            here = names or set((procfs.glance(f"{directory}/cgroup.controllers") or "").split())
            yield frozenset(here), Group(version=V1 if listed else V2, path=directory)
            break


def own() -> Mapping[str, Group]:
    """Controller -> this process's group in the hierarchy that has it. Raises OSError where /proc does not show it."""
    found: dict[str, Group] = {}
    for names, group in every():
        found |= {name: group for name in names if name not in found}
    return found
