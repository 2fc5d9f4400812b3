"""The census: who is in a containment, and what keeps each from ending. For people, so it must be true and readable."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain.linux import census
from contain.linux.backend import LinuxBackend
from receipts import loads
from tests import receipt_files
from tests.blocked import needs_root
from tests.session import Session, in_namespace, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from receipts import Blocker

V2_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))


class Tree:
    """A running job, and the census of it."""

    def __init__(self, receipts: Path) -> None:
        """Nothing runs yet."""
        self.session = Session(receipts, stderr=subprocess.DEVNULL)

    def run(self, script: str, members: int) -> Tree:
        """Runs a script, and waits until the tree has so many members, the init among them."""
        self.init = self.session.start("sh", "-c", script)["namespaceInit"]
        wait_until(lambda: len(in_namespace(self.init["namespace"])) >= members, what=f"{members} members")
        return self

    def census(self) -> list[Blocker]:
        """What the product names now."""
        return list(census.members(self.init["pid"], self.init["namespace"]))

    def named(self, name: str) -> Blocker:
        """The one member of this name, once it has it."""

        def found() -> list[Blocker]:
            return [member for member in self.census() if member.name == name]

        wait_until(lambda: len(found()) == 1, what=f"one member is named {name!r}")
        return found()[0]


@pytest.fixture
def tree(receipts: Path) -> Iterator[Tree]:
    """A job that is not started yet; ended afterwards."""
    made = Tree(receipts)
    try:
        yield made
    finally:
        made.session.close()
        if hasattr(made, "init"):
            wait_until(lambda: not in_namespace(made.init["namespace"]), what="the tree has ended")


def test_everyone_of_the_tree_is_named_and_nobody_else(tree: Tree) -> None:
    """The init first; whoever left the session or made a further PID namespace too, as the kernel lists them."""
    further = '[ "$(id -u)" = 0 ] || N=-Ur; exec unshare $N --pid --fork sh -c "sleep 1000; :"'
    tree.run(f"setsid sleep 1000 & {{ {further}; }} & wait", 6)
    found = tree.census()
    assert (found[0].pid, found[0].name, found[0].why) == (tree.init["pid"], "contain-init", "alive")
    assert sorted(member.pid for member in found) == in_namespace(tree.init["namespace"])


def test_a_name_cannot_lie_about_what_follows_it(tree: Tree) -> None:
    """A process chooses its name: parentheses, blanks and line feeds in it become no state and no parent."""
    tree.run("printf 'x) Z 1 (y\\nP:' > /proc/$$/comm; while :; do sleep 1000; done", 3)
    found = tree.named("x) Z 1 (y\\nP:")
    assert (found.state, found.why) == ("S", "alive")


def test_a_stopped_member_is_called_stopped(tree: Tree) -> None:
    """State T: it will not end by itself."""
    tree.run("sh -c 'kill -STOP $$' & wait", 3)
    wait_until(lambda: any(member.state == "T" for member in tree.census()), what="one is stopped")
    assert next(member.why for member in tree.census() if member.state == "T") == "stopped"


def test_a_zombie_of_a_member_is_not_blamed_on_the_outside(tree: Tree) -> None:
    """Its parent inside has not reaped it yet: that is all there is to it."""
    tree.run("sleep 0 & exec sleep 1000", 2)
    wait_until(lambda: any(member.state == "Z" for member in tree.census()), what="a zombie is there")
    zombie = next(member for member in tree.census() if member.state == "Z")
    assert zombie.why == "ended, and waits to be reaped"


def test_a_tracer_of_the_tree_itself_is_not_called_outside(tree: Tree) -> None:
    """A debugger inside dies with the tree and keeps nobody."""
    trace = "import ctypes, os, time; p = os.fork(); p or time.sleep(1000); "
    trace += "ctypes.CDLL(None).ptrace(0x4206, p, None, None); time.sleep(1000)"
    tree.run(f'exec python3 -c "{trace}"', 3)
    wait_until(lambda: any(member.tracer for member in tree.census()), what="one traces the other")
    [traced] = [member for member in tree.census() if member.tracer]
    assert traced.tracer in {member.pid for member in tree.census()}
    assert traced.why == "alive"


def test_one_reason_is_enough_to_act_on(tree: Tree) -> None:
    """A tree of any size names at most 64, the init among them."""
    tree.run("for i in $(seq 80); do sleep 1000 & done; wait", 82)
    found = tree.census()
    assert (len(found), found[0].pid) == (census.MOST, tree.init["pid"])


@needs_root
def test_a_frozen_v2_group_is_named(tree: Tree) -> None:
    """It would not hold a SIGKILL back, but whoever wonders why nothing moves is told."""
    mounts = [mount for mount in V2_MOUNTS if (mount / "cgroup.controllers").exists()]
    if not mounts:
        pytest.skip("capability: cgroup v2")
    tree.run("exec sleep 1000", 2)
    group = mounts[0] / f"contain-test-{tree.init['pid']}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(tree.named("sleep").pid))
        (group / "cgroup.freeze").write_text("1")
        wait_until(lambda: "frozen 1" in (group / "cgroup.events").read_text(), what="it is frozen")
        found = tree.named("sleep")
        assert found.freezer == f"cgroup2:/{group.name}"
        assert found.why == f"frozen by cgroup2:/{group.name}"
    finally:
        (group / "cgroup.freeze").write_text("0")
        tree.session.close()
        wait_until(lambda: _removed(group), what=f"{group} is removed")


def _removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


def test_a_containment_that_is_gone_names_nobody(receipts: Path, tree: Tree) -> None:
    """Whoever has its number by now is a stranger."""
    proof = loads(json.dumps(receipt_files.lost(receipts)).encode()).proof
    assert proof is not None
    stranger = tree.run("exec sleep 1000", 2).init
    assert LinuxBackend().blockers(proof.replace(pid=stranger["pid"])) == ()
    assert len(tree.census()) == 2, "the control: the stranger's tree could be named"
