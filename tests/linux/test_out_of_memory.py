"""Out of memory in a leaf of the job's own: whose kill it was, and that the cause stays the command's own."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cgroups import divisible
from tests.ground import PYTHON
from tests.session import WAIT_S, Session, kill, new_id, run_job, wait_file, wait_until

if TYPE_CHECKING:
    from typing import Any

LIMIT = {"memoryBytes": 64 << 20}
HOG = f"{PYTHON} -c 'x = bytearray(200 << 20)'"


def outcome(receipts: Path, text: str, **extra: object) -> dict[str, Any]:
    """Of a shell job with 64 MiB."""
    divisible("memory")
    last, _ = run_job(receipts, "sh", "-c", text, **{"limits": LIMIT, **extra})
    found: dict[str, Any] = last["outcome"]
    return found


def test_the_command_itself(receipts: Path) -> None:
    """SIGKILL by the kernel is out-of-memory, with its signal."""
    found = outcome(receipts, f"exec {HOG}")
    assert (found["cause"], found["signal"]) == ("out-of-memory", signal.SIGKILL)


def test_a_child_that_its_shell_passes_on(receipts: Path) -> None:
    """137 of a shell is the same."""
    found = outcome(receipts, f"{HOG}; exit $?")
    assert (found["cause"], found["code"]) == ("out-of-memory", 137)


@pytest.mark.skipif(shutil.which("make") is None, reason="capability: make")
def test_make_whose_compiler_was_killed(receipts: Path, tmp_path: Path) -> None:
    """Make ends with 2: that is the cause, and the detail tells of the kill."""
    (tmp_path / "Makefile").write_text(f"all:\n\t@{HOG}\n")
    found = outcome(receipts, f"exec make -C {tmp_path}")
    assert (found["cause"], found["code"]) == ("exited", 2)
    assert found["detail"] == "the kernel killed 1 of its processes for memory"


def test_a_command_that_gets_over_it(receipts: Path) -> None:
    """A job that ends well has a detail, and no other cause."""
    found = outcome(receipts, f"{HOG} || exit 0")
    assert (found["cause"], found["code"]) == ("exited", 0)
    assert "killed 1" in found["detail"]


def test_an_end_that_was_asked_for_keeps_its_cause(receipts: Path) -> None:
    """A timeout after a kill for memory is a timeout."""
    found = outcome(receipts, f"{HOG}; exec sleep 60", timeoutMs=int(WAIT_S * 100), graceMs=0)
    assert (found["cause"], found["by"]) == ("timed-out", "timeoutMs")
    assert "killed 1" in found["detail"]


def test_the_init_as_the_victim(receipts: Path, tmp_path: Path) -> None:
    """Where the kernel chooses the init, the job is gone with it: out-of-memory, and nobody saw a status."""
    divisible("memory")
    # Memory that no process has: the one with the worst score is then the init, which a test may make so.
    file = Path(f"/dev/shm/contain-test-{new_id()}")
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    text = f"echo up > {tmp_path}/up; {wait}; head -c 200M /dev/zero > {file}"
    try:
        with Session(receipts) as session:
            init = session.start("sh", "-c", text, limits=LIMIT)["namespaceInit"]["pid"]
            wait_file(tmp_path / "up")
            try:
                Path(f"/proc/{init}/oom_score_adj").write_text("1000")
            except OSError:
                pytest.skip("capability: to make an init the victim")
            (tmp_path / "go").touch()
            last = session.finish()
    finally:
        file.unlink(missing_ok=True)
    assert (last["event"], last["empty"]) == ("released", True)
    assert last["outcome"] == {
        "cause": "out-of-memory",
        "core": False,
        "detail": "the kernel killed the job's init for memory",
    }


def test_a_kill_by_somebody_is_not_blamed_on_memory(receipts: Path, tmp_path: Path) -> None:
    """The control: SIGKILL in a job with a memory limit is signaled."""
    divisible("memory")
    with Session(receipts) as session:
        init = session.start("sh", "-c", f"echo up > {tmp_path}/up; exec sleep 60", limits=LIMIT)[
            "namespaceInit"
        ]["pid"]
        wait_file(tmp_path / "up")
        kill(int(Path(f"/proc/{init}/task/{init}/children").read_text().split()[0]))
        last = session.finish()
    assert (last["outcome"]["cause"], last["outcome"].get("detail")) == ("signaled", None)


def test_a_neighbours_kill_is_not_this_jobs(receipts: Path, tmp_path: Path) -> None:
    """Two jobs of one wrapper's cgroup: what one's leaf counts, the other's does not."""
    divisible("memory")
    with Session(receipts) as session:
        started = session.start("sh", "-c", f"echo up > {tmp_path}/up; exec sleep 60", limits=LIMIT)
        wait_file(tmp_path / "up")
        assert outcome(receipts, f"exec {HOG}")["cause"] == "out-of-memory"
        init = started["namespaceInit"]["pid"]
        kill(int(Path(f"/proc/{init}/task/{init}/children").read_text().split()[0]))
        last = session.finish()
    assert last["outcome"]["cause"] == "signaled"


# -- how much memory ---------------------------------------------------------------------------------------------------

TREE = f"{PYTHON} -c 'import time; x = bytearray(40 << 20); time.sleep(2.5)' & "


def test_memory_is_sampled_where_it_is_asked_for(receipts: Path) -> None:
    """The tree's resident sets, summed: two processes of 40 MiB are more than the largest one."""
    last, _ = run_job(receipts, "sh", "-c", TREE * 2 + "wait", sampleMemory=True)
    usage = last["usage"]
    assert usage["memorySource"] == "sampled"
    assert 80 << 20 <= usage["peakMemoryBytes"] < 160 << 20
    assert usage["maxRssBytes"] < 70 << 20


def test_memory_is_of_the_largest_process_where_nobody_looked(receipts: Path) -> None:
    """The control: without a limit and without the question."""
    last, _ = run_job(receipts, "sh", "-c", TREE + "wait")
    assert last["usage"]["memorySource"] == "largest-process"
    assert last["usage"]["peakMemoryBytes"] == last["usage"]["maxRssBytes"]


def test_a_cgroup_counts_better_than_samples(receipts: Path) -> None:
    """A leaf for memory is asked, and nobody looks at processes."""
    divisible("memory")
    last, _ = run_job(
        receipts, "sh", "-c", TREE + "wait", sampleMemory=True, limits={"memoryBytes": 200 << 20}
    )
    assert last["usage"]["memorySource"] == "cgroup"
    assert last["usage"]["peakMemoryBytes"] > 40 << 20


def test_a_sample_finds_children_of_every_thread(receipts: Path, tmp_path: Path) -> None:
    """A child belongs to the thread that forked it: proc_tid_children(5)."""
    child = f"import time; x = bytearray(60 << 20); open('{tmp_path}/up', 'w').write('up'); time.sleep(2.5)"
    code = (
        "import subprocess, threading, sys, time\n"
        "def other():\n"
        f"    subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "    time.sleep(3)\n"
        "t = threading.Thread(target=other); t.start(); t.join()"
    )
    with Session(receipts) as session:
        session.start(PYTHON, "-c", code, sampleMemory=True)
        wait_until((tmp_path / "up").exists, what="the child is there")
        last = session.finish()
    assert last["usage"]["peakMemoryBytes"] > 60 << 20
    assert last["usage"]["memorySource"] == "sampled"
