"""Leaves in a real v2 hierarchy: where one may be made, who steps aside, and whose litter is cleared away.

A hybrid machine's v2 hierarchy has at least one controller that v1 does not use (hugetlb, say); which one is all the
same to the rules that are tested. Each case runs in a process of its own, which it moves.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from contain.linux import leaf, unified
from tests.cgroups import leaves_of, own, unified_group
from tests.ground import PYTHON, UID, USERS, ground_of
from tests.programs import shared_programs
from tests.session import ROOT, WAIT_S, Session, inspect, new_id, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ground import Ground

ENTER = "open('{}/cgroup.procs', 'w').write('0'); "
COUNTERS = ("memory", "hugetlb")
"""Controllers whose limit is a number of bytes."""
PLACE = (
    "import os, subprocess, sys\n"
    "from contain.linux import unified\n"
    "group, controller, *followers = sys.argv[1:]\n"
    "open(group + '/cgroup.procs', 'w').write('0')\n"
    "child = subprocess.Popen(['sleep', '60']) if followers else None\n"
    "try: print(unified.place(group, frozenset([controller]), [child.pid] if child else []))\n"
    "except unified.NoPlace as error: print('none:', error)\n"
    "print(open('/proc/self/cgroup').read().partition('0::')[2].split()[0])\n"
    "if child:\n"
    "    print(open(f'/proc/{child.pid}/cgroup').read().partition('0::')[2].split()[0])\n"
    "    child.kill(); child.wait()\n"
)


class V2(NamedTuple):
    """A v2 group with a controller that it may give on."""

    path: Path
    controller: str

    @property
    def name(self) -> str:
        """As /proc/PID/cgroup calls it."""
        return f"/{self.path.name}"


@pytest.fixture
def v2() -> Iterator[V2]:
    """A fresh one; gone afterwards, and the root of the hierarchy is as it was."""
    with unified_group() as path:
        root = path.parent
        here = (root / "cgroup.controllers").read_text().split()
        if not here:
            pytest.skip("capability: a controller in the v2 hierarchy")
        here.sort(key=lambda name: name not in COUNTERS)
        before = (root / "cgroup.subtree_control").read_text().split()
        (root / "cgroup.subtree_control").write_text(f"+{here[0]}")
        try:
            yield V2(path, here[0])
        finally:
            wait_until(lambda: not (path / "cgroup.procs").read_text(), what="the group is empty")
            with contextlib.suppress(OSError):
                (path / "cgroup.subtree_control").write_text(f"-{here[0]}")
            if here[0] not in before:
                with contextlib.suppress(OSError):
                    (root / "cgroup.subtree_control").write_text(f"-{here[0]}")


def placed(v2: V2, *words: str, group: Path | None = None) -> list[str]:
    """The lines of PLACE."""
    done = subprocess.run(
        [sys.executable, "-c", PLACE, str(group or v2.path), v2.controller, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    return done.stdout.splitlines()


def delegate(group: Path) -> None:
    """What systemd's Delegate=yes leaves on a group."""
    try:
        os.setxattr(group, unified.DELEGATED[1], b"1")
    except OSError:
        pytest.skip("capability: trusted attributes on a cgroup")


def test_a_group_with_processes_gives_nothing_on(v2: V2) -> None:
    """It is not delegated, so nobody steps aside; root's way is beside it, where the controller is on already."""
    where, mine = placed(v2)
    assert (where, mine) == (str(v2.path.parent), v2.name)


def test_a_delegated_group_is_divided(v2: V2) -> None:
    """The process steps into a group below it, its followers too, and the leaf goes beside that."""
    delegate(v2.path)
    where, mine, follower = placed(v2, "with a follower")
    assert where == str(v2.path)
    assert mine.startswith(f"{v2.name}/contain-wrapper-")
    assert follower == mine
    assert v2.controller in (v2.path / "cgroup.subtree_control").read_text()


def test_a_stranger_in_the_group_is_not_moved(v2: V2) -> None:
    """Delegated or not: then there is no place, the reason is said, and everybody is where he was."""
    delegate(v2.path)
    with running(v2.path) as stranger:
        where, mine = placed(v2)
        assert where.startswith("none:")
        assert "not ours to move" in where
        assert mine == v2.name
        assert group_of(stranger) == v2.name
        assert [path.name for path in v2.path.iterdir() if path.is_dir()] == []


def test_a_limit_of_our_own_is_not_escaped(v2: V2) -> None:
    """No leaf beside a group that has a limit of any controller; without the limit there is a place (see above)."""
    knob = next(iter(sorted(v2.path.glob(f"{v2.controller}*.max"))), None)
    if knob is None:
        pytest.skip(f"capability: a limit of the controller {v2.controller}")
    assert placed(v2)[0] == str(v2.path.parent)
    knob.write_text(str(2**30))
    assert placed(v2)[0].startswith("none:")


@contextlib.contextmanager
def running(group: Path) -> Iterator[int]:
    """A process in a group."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENTER.format(group) + "print(flush=True); import time; time.sleep(60)"],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def group_of(pid: int) -> str:
    """Of v2."""
    with open(f"/proc/{pid}/cgroup") as text:  # noqa: PTH123 - a line of /proc
        return text.read().partition("0::")[2].split()[0]


# -- litter ------------------------------------------------------------------------------------------------------------


def make(parent: Path, name: str) -> leaf.Leaf:
    """A leaf of ours."""
    made = leaf.Leaf(name)
    made.make(str(parent))
    return made


def test_a_living_wrappers_empty_leaf_is_no_litter(v2: V2) -> None:
    """It is locked: a sweep leaves it, and takes it once its maker has let go."""
    made = make(v2.path, leaf.name_of(new_id()))
    path = Path(*made.paths)
    leaf.sweep(str(v2.path))
    assert path.is_dir()
    made.close()
    leaf.sweep(str(v2.path))
    assert not path.is_dir()


def test_a_leaf_with_a_process_is_never_removed(v2: V2) -> None:
    """Not by a sweep, not by a recorded path; both say so by leaving it."""
    name = leaf.name_of(new_id())
    path = v2.path / name
    path.mkdir()
    with running(path):
        leaf.sweep(str(v2.path))
        assert leaf.remove(name, [str(path)], 0.05) == (str(path),)
        assert path.is_dir()
    assert leaf.remove(name, [str(path)]) == ()
    assert not path.exists()


@pytest.mark.parametrize(
    "name", ["contain-test", "contain-", "contain-wrapper-x", "other", "contain-" + "z" * 36]
)
def test_other_groups_are_not_ours(name: str, v2: V2) -> None:
    """Whatever else somebody calls contain-something is left alone."""
    (v2.path / name).mkdir()
    leaf.sweep(str(v2.path))
    assert (v2.path / name).is_dir()
    assert leaf.remove("contain-other", [str(v2.path / name)]) == ()
    assert (v2.path / name).is_dir()


def test_a_mere_directory_of_that_name_is_left_alone(tmp_path: Path) -> None:
    """A recorded path that is no cgroup: nothing is removed, and nothing is in the way."""
    name = leaf.name_of(new_id())
    (tmp_path / name).mkdir()
    assert leaf.remove(name, [str(tmp_path / name)]) == ()
    leaf.sweep(str(tmp_path))
    assert (tmp_path / name).is_dir()


def test_groups_below_a_leaf_go_with_it(v2: V2) -> None:
    """Deepest first."""
    name = leaf.name_of(new_id())
    (v2.path / name / "a" / "b").mkdir(parents=True)
    assert leaf.remove(name, [str(v2.path / name)]) == ()
    assert not (v2.path / name).exists()


def test_a_removal_waits_for_the_last_process_and_not_for_ever(v2: V2) -> None:
    """It tries again while it may, and then says what is left."""
    name = leaf.name_of(new_id())
    path = v2.path / name
    path.mkdir()
    with running(path):
        began_s = time.monotonic()
        assert leaf.remove(name, [str(path)], 0.2) == (str(path),)
        assert 0.2 <= time.monotonic() - began_s < 1.0


def test_a_wrapper_that_died_before_its_first_receipt(receipts: Path) -> None:
    """Its leaf is nobody's: the next look at all receipts clears it away, and no living job's."""
    group = own("pids")
    if group is None or not os.access(group.path, os.W_OK):
        pytest.skip("capability: a pids cgroup that may be divided")
    job_id = new_id()
    orphan = group.path / f"contain-{job_id}"
    orphan.mkdir()
    with Session(receipts) as session:
        session.start("sleep", "60", limits={"pids": 9})
        inspect(receipts)
        assert leaves_of(job_id) == set()
        assert len(leaves_of(session.id)) == 1
        session.cancel(graceMs=0).finish()


# -- a whole job, where v2 has memory, cpu and pids (ci/cgroup2) -------------------------------------------------------

TREE = ("memory", "cpu", "pids")


@pytest.fixture(params=USERS)
def delegated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Ground, Path]]:
    """A user, and a group that systemd would have delegated to him, with the words that start a command in it."""
    with ground_of(request.param, shared_programs(tmp_path_factory)) as ground, unified_group() as group:
        if not set(TREE) <= set((group.parent / "cgroup.controllers").read_text().split()):
            pytest.skip("capability: memory, cpu and pids in the v2 hierarchy")
        (group.parent / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in TREE))
        if ground.user == "nobody":
            for path in (group, group / "cgroup.procs", group / "cgroup.subtree_control"):
                os.chown(path, UID, UID)
        yield ground, group


def session_in(group: Path, ground: Ground) -> Session:
    """A wrapper that is alone in a group."""
    return Session(
        ground.receipts,
        program=("sh", "-c", f'echo 0 > {group}/cgroup.procs; exec "$@"', "-", *ground.contain),
    )


@pytest.mark.slow
def test_a_delegated_group_limits_a_whole_job(delegated: tuple[Ground, Path]) -> None:
    """Root's and nobody's: all three hold by the leaf, a kill for memory is its own count, and nothing is left."""
    ground, group = delegated
    os.setxattr(group, "user.delegate", b"1")
    with session_in(group, ground) as session:
        limits = {"memoryBytes": 64 << 20, "cpus": 0.5, "pids": 9}
        prepared = session.start(PYTHON, "-c", "x = bytearray(200 << 20)", limits=limits, requireLimits=True)
        last = session.finish()
    assert prepared["limits"] == dict.fromkeys(("memoryBytes", "cpus", "pids"), "cgroup-v2")
    assert prepared["cgroups"] == [f"{group}/contain-{session.id}"]
    assert last["outcome"]["cause"] == "out-of-memory"
    assert leaves_of(session.id) == set()


@pytest.mark.slow
def test_the_second_job_of_the_group_finds_its_place(delegated: tuple[Ground, Path]) -> None:
    """A killed wrapper leaves what it stepped into; the next one is limited all the same, and clears it away."""
    ground, group = delegated
    os.setxattr(group, "user.delegate", b"1")
    with session_in(group, ground) as first:
        first.start("sleep", "60", limits={"pids": 9})
        first.process.kill()
        first.process.wait()
        wait_until(lambda: not any(text for text in map(Path.read_text, group.glob("*/cgroup.procs"))))
    assert len(list(group.glob("contain-*"))) == 2
    # The group gives controllers on now, so nobody may enter it: the next one starts in a group below, as root would.
    inner = group / "contain-test-inner"
    inner.mkdir()
    os.chown(inner / "cgroup.procs", ground.receipts.stat().st_uid, -1)
    with session_in(inner, ground) as second:
        prepared = second.start("true", limits={"pids": 9}, requireLimits=True)
        second.finish()
    assert prepared["cgroups"] == [f"{group}/contain-{second.id}"]
    assert [path.name for path in group.glob("contain-*")] == [inner.name]


@pytest.mark.slow
def test_a_group_that_nobody_delegated(delegated: tuple[Ground, Path]) -> None:
    """The control: a plain user's memory is not limited, and he is told; root's leaf goes beside the group."""
    ground, group = delegated
    with session_in(group, ground) as session:
        prepared = session.start("true", limits={"memoryBytes": 64 << 20})
        session.finish()
    if ground.user == "root":
        assert prepared["cgroups"] == [f"{group.parent}/contain-{session.id}"]
    else:
        assert "is not delegated" in prepared["limits"]["memoryBytes"]
