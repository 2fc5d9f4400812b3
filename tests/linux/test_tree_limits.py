"""Limits of the whole tree: each one holds, what enforces it is said, and what nothing enforces is never silent."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contain.errors import ImpossibleRequest, LimitsDenied
from tests.cgroups import divisible, leaves_of, own
from tests.ground import AS_NOBODY, PYTHON, UID, ground_of
from tests.programs import shared_programs
from tests.session import WAIT_S, Session, in_namespace, inspect, run_job, wait_file, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ground import Ground

MIB = 2**20
HOG = "x = bytearray({} << 20); print(len(x))"
COUNT_FORKS = """
import os, signal
count = 1
try:
    while count < 60:
        if os.fork() == 0:
            signal.pause()
        count += 1
except OSError as error:
    print(count, error.errno, flush=True)
"""
"""Prints how many processes there were when fork failed, itself among them, and why."""

ASKED: dict[str, dict[str, Any]] = {
    "memoryBytes": {"memoryBytes": 256 * MIB},
    "cpus": {"cpus": 0.5},
    "pids": {"pids": 20},
}
CONTROLLERS = {"memoryBytes": "memory", "cpus": "cpu", "pids": "pids"}


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """The user nobody, with a copy of the product that everybody may read."""
    with ground_of("nobody", shared_programs(tmp_path_factory)) as made:
        yield made


def python(receipts: Path, code: str, **extra: object) -> tuple[dict[str, Any], str]:
    """A job of this Python: the last reply, and what it printed."""
    last, session = run_job(receipts, PYTHON, "-c", code, **extra)
    assert (last["event"], last["empty"]) == ("released", True)
    assert leaves_of(session.id) == set(), "its cgroups are removed before released is said"
    assert "cgroups" not in last
    return last, session.errors().decode()


def test_memory(receipts: Path) -> None:
    """A tree stays below it whatever it asks for, and is told that it was killed for memory."""
    group = divisible("memory")
    last, text = python(receipts, HOG.format(200), limits={"memoryBytes": 64 * MIB})
    assert last["limits"] == {"memoryBytes": group.word}
    assert (last["outcome"]["cause"], text) == ("out-of-memory", "")
    assert 32 * MIB < last["usage"]["peakMemoryBytes"] <= 64 * MIB
    assert last["usage"]["memorySource"] == "cgroup"


def test_memory_is_of_the_tree(receipts: Path) -> None:
    """Four processes that have enough for one each, and not together: the limit is of them all."""
    divisible("memory")
    each = f"{PYTHON} -c 'import time; x = bytearray(40 << 20); time.sleep(1)' & "
    last, _ = run_job(receipts, "sh", "-c", each * 4 + "wait", limits={"memoryBytes": 100 * MIB})
    assert "killed" in last["outcome"]["detail"]
    last, _ = run_job(
        receipts, "sh", "-c", each * 4 + "wait", limits={"memoryBytes": 400 * MIB}
    )  # the control
    assert "detail" not in last["outcome"]
    assert last["usage"]["peakMemoryBytes"] > 150 * MIB
    assert last["usage"]["maxRssBytes"] < 100 * MIB


def test_enough_memory_is_enough(receipts: Path) -> None:
    """The control: the same command with room ends well."""
    last, text = python(receipts, HOG.format(100), limits={"memoryBytes": 256 * MIB})
    assert (last["outcome"]["cause"], last["outcome"]["code"], text) == ("exited", 0, f"{100 * MIB}\n")


BUSY = "import os, time\nend = time.monotonic() + {}\nfor _ in range({}): os.fork()\nwhile time.monotonic() < end: pass"


@pytest.mark.parametrize("forks", [0, 2])
def test_cpus(receipts: Path, forks: int) -> None:
    """Of a busy tree, one process or four, no more than the asked part of a core is used; without it, more is."""
    group = divisible("cpu")
    last, _ = python(receipts, BUSY.format(2, forks), limits={"cpus": 0.05})
    usage = last["usage"]
    assert last["limits"] == {"cpus": group.word}
    assert usage["userUs"] + usage["systemUs"] < 0.05 * usage["wallUs"] * 1.25 + 100_000
    free, _ = python(receipts, BUSY.format(2, forks))
    assert free["usage"]["userUs"] + free["usage"]["systemUs"] > 0.15 * free["usage"]["wallUs"], "the control"


def test_pids(receipts: Path) -> None:
    """Exactly as many processes as asked for: the init is not one of them."""
    group = divisible("pids")
    last, text = python(receipts, COUNT_FORKS, limits={"pids": 7}, graceMs=0)
    assert last["limits"] == {"pids": group.word}
    assert text.split() == ["7", "11"]


def test_one_process_is_enough_for_a_command(receipts: Path) -> None:
    """``pids`` 1 is a command that cannot fork; threads count as well."""
    divisible("pids")
    code = (
        "import threading\ntry: threading.Thread(target=print).start()\nexcept RuntimeError: print('refused')"
    )
    _, text = python(receipts, code, limits={"pids": 1})
    assert text.strip() == "refused"


def test_pids_of_a_plain_user(nobody: Ground) -> None:
    """By RLIMIT_NPROC in the job's own user namespace: exact, though the same user has other processes."""
    with (
        Session(nobody.receipts, program=nobody.contain) as other,
        Session(nobody.receipts, program=nobody.contain) as session,
    ):
        other.start("sh", "-c", "sleep 60 & sleep 60 & sleep 60 & sleep 60 & sleep 60 & wait", graceMs=0)
        session.start(PYTHON, "-c", COUNT_FORKS, limits={"pids": 7}, graceMs=0)
        last = session.finish()
        other.cancel(graceMs=0).finish()
    assert last["limits"] == {"pids": "rlimit"}
    assert session.errors().decode().split() == ["7", "11"]


def test_a_plain_user_cannot_widen_it_by_another_namespace(nobody: Ground) -> None:
    """What a nested user namespace starts counts for the outer one too, and the hard limit stays."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))"
    with Session(nobody.receipts, program=nobody.contain) as session:
        nested = f"{PYTHON} -c '{code}' 2>&1 | tail -n 1; unshare -Ur {PYTHON} -c '{COUNT_FORKS}'"
        session.start("sh", "-c", nested, limits={"pids": 9}, graceMs=0)
        session.finish()
    refused, counted = session.errors().decode().strip().splitlines()
    assert counted.split() == ["8", "11"]  # and the shell
    assert "not allowed to raise" in refused


@pytest.mark.parametrize("name", ASKED)
def test_requirements_are_refused_before_anything_runs(name: str, nobody: Ground) -> None:
    """A plain user without a cgroup of its own: refused with the field's name and advice; nothing is left."""
    witness = nobody.file()
    with Session(nobody.receipts, program=nobody.contain) as session:
        session.request("touch", str(witness), limits=ASKED[name], requireLimits=True)
        first = session.read()
        assert first is not None
        if name == "pids":
            assert (first["event"], first["limits"]) == ("prepared", {"pids": "rlimit"})
            return
        session.finish()
    assert session.events() == ["refused"]
    assert (first["reason"], first["detail"]) == ("limits-denied", name)
    assert session.process.returncode == LimitsDenied.exit_code
    assert "Delegate=yes" in first["advice"]
    assert not witness.exists()
    assert inspect(nobody.receipts, session.id)[1] == []


@pytest.mark.parametrize("name", ["memoryBytes", "cpus"])
def test_what_is_not_applied_is_said(name: str, nobody: Ground) -> None:
    """Without the requirement the job runs, and reply and receipt give the reason."""
    with Session(nobody.receipts, program=nobody.contain) as session:
        prepared = session.start("true", limits=ASKED[name])
        last = session.finish()
    reason = "the cgroup " if own(CONTROLLERS[name]) else "no cgroup has this controller here"
    assert prepared["limits"][name].startswith(f"not-applied: {reason}")
    assert last["limits"] == prepared["limits"]


@pytest.mark.parametrize("name", ASKED)
def test_what_can_be_had_is_not_refused(name: str, receipts: Path) -> None:
    """The control: where this process can make a cgroup with that limit, the requirement is met."""
    group = divisible(CONTROLLERS[name])
    last, _ = run_job(receipts, "true", limits=ASKED[name], requireLimits=True)
    assert last["limits"] == {name: group.word}


def test_all_three_together(receipts: Path) -> None:
    """One leaf in each hierarchy, and nothing in the other ones."""
    groups = {name: divisible(CONTROLLERS[name]) for name in ASKED}
    with Session(receipts) as session:
        prepared = session.start(
            "cat", "/proc/self/cgroup", limits=ASKED["pids"] | ASKED["cpus"] | ASKED["memoryBytes"]
        )
        session.finish()
    assert prepared["limits"] == {name: group.word for name, group in groups.items()}
    places = {str(group.path / f"contain-{session.id}") for group in groups.values()}
    assert set(prepared["cgroups"]) == places
    inside = [text for text in session.errors().decode().splitlines() if f"contain-{session.id}" in text]
    assert len(inside) == len(places)


def test_a_job_without_limits_has_no_cgroup(receipts: Path) -> None:
    """It costs nothing, and nothing is said."""
    last, session = run_job(receipts, "cat", "/proc/self/cgroup")
    assert "limits" not in last
    assert b"contain-" not in session.errors()


@pytest.mark.parametrize("limits", [{"pids": 0}, {"memoryBytes": 0}, {"memoryBytes": 4096}])
def test_what_cannot_run_at_all_is_refused(limits: dict[str, int], receipts: Path) -> None:
    """No process, no memory, or too little for the init."""
    if limits.get("memoryBytes"):
        divisible("memory")
    with Session(receipts) as session:
        last = session.request("true", limits=limits).finish()
    assert (last["event"], last["reason"]) == ("refused", "impossible")
    assert session.process.returncode == ImpossibleRequest.exit_code
    assert leaves_of(session.id) == set()


def test_a_fork_bomb_is_held_and_ended(receipts: Path) -> None:
    """It has its processes and no more, the machine goes on, and the job ends by its timeout."""
    divisible("pids")
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    with Session(receipts) as session:
        prepared = session.start(
            PYTHON, "-c", bomb, limits={"pids": 50, "cpus": 0.5}, timeoutMs=int(WAIT_S * 100), graceMs=200
        )
        inode = prepared["namespaceInit"]["namespace"]
        wait_until(lambda: len(in_namespace(inode)) > 40, what="it has forked")
        seen = max(len(in_namespace(inode)) for _ in range(5))
        began_s = time.monotonic()
        run_job(receipts, "true")
        assert time.monotonic() - began_s < WAIT_S / 6, "another job still runs at once"
        last = session.finish()
    assert seen <= 51
    assert (last["outcome"]["cause"], last["empty"]) == ("timed-out", True)


def test_a_fork_bomb_of_a_plain_user(nobody: Ground) -> None:
    """The same by RLIMIT_NPROC, ended by a cancel."""
    bomb = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    with Session(nobody.receipts, program=nobody.contain) as session:
        prepared = session.start("nice", PYTHON, "-c", bomb, limits={"pids": 30})
        inode = prepared["namespaceInit"]["namespace"]
        wait_until(lambda: len(in_namespace(inode)) > 20, what="it has forked")
        assert max(len(in_namespace(inode)) for _ in range(5)) <= 31
        last = session.cancel(graceMs=100).finish()
    assert (last["outcome"]["cause"], last["empty"]) == ("canceled", True)


def test_a_dead_wrapper_leaves_a_leaf_that_inspect_removes(receipts: Path, tmp_path: Path) -> None:
    """Kill -9 of the wrapper: the receipt says where the leaf is, and the look removes it."""
    divisible("pids")
    with Session(receipts) as session:
        text = f"echo up > {tmp_path}/up; exec sleep 60"
        prepared = session.start("sh", "-c", text, limits={"pids": 9, "cpus": 1})
        wait_file(tmp_path / "up")
        places = {Path(place) for place in prepared["cgroups"]}
        assert leaves_of(session.id) == places != set()
        session.process.kill()
        session.process.wait()
        assert leaves_of(session.id) == places, "the control: nobody else removes it"
        code, (found,) = inspect(receipts, session.id)
    assert (code, found["state"]) == (0, "released")
    assert "cgroups" not in found
    assert leaves_of(session.id) == set()


def test_groups_that_the_job_made_go_with_its_leaf(receipts: Path) -> None:
    """A job of root may divide its own cgroup; what it made below is removed with it."""
    group = divisible("pids")
    if group.word != "cgroup-v1":
        pytest.skip("capability: a v1 pids cgroup, which may have processes and groups")
    with Session(receipts) as session:
        inner = f"{group.path}/contain-{session.id}/inner"
        session.start(
            "sh",
            "-c",
            f"mkdir -p {inner}/most && echo 0 > {inner}/most/cgroup.procs && echo done",
            limits={"pids": 9},
        )
        last = session.finish()
    assert session.errors() == b"done\n"
    assert "cgroups" not in last
    assert leaves_of(session.id) == set()


def test_the_test_knows_what_a_plain_user_may_not(nobody: Ground) -> None:
    """The control of all refusals above: nobody cannot make a cgroup there by its own hands either."""
    group = own("memory")
    assert (
        group is None
        or subprocess.run(
            [*AS_NOBODY, "mkdir", f"{group.path}/x-{UID}"], capture_output=True, check=False
        ).returncode
    )
    assert nobody.user == "nobody"


@pytest.mark.parametrize("turn", range(12))
def test_a_wrapper_killed_at_any_moment_leaves_no_cgroup(turn: int, receipts: Path) -> None:
    """From before the leaf is made until after it is removed: one look at all receipts, and there is none."""
    divisible("pids")
    with Session(receipts) as session:
        session.request("sh", "-c", "sleep 0.02", limits={"pids": 9, "memoryBytes": 64 * MIB, "cpus": 1})
        session.go()
        # The wait is the case, not a hope: each turn kills a little later in the life of one short job.
        time.sleep(turn * 0.012 * max(1.0, WAIT_S / 30))
        session.process.kill()
        session.process.wait()
        # A receipt says where its leaf is. One that came to none is unlocked, and empty as soon as its init is gone.
        wait_until(
            lambda: inspect(receipts)[0] == 0 and leaves_of(session.id) == set(), what="no leaf is left"
        )
