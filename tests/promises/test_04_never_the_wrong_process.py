"""Never the wrong process. Signals go through a pidfd to what was proven, never to a number that may be another's.

Numbers are reused on purpose, in a PID namespace of the test's own; receipts are edited to what older kernels record.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.session import CONTAIN, ROOT, Session, alive, inspect, kill, stat_fields, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.session import Reply

root = pytest.mark.skipif(
    os.getuid() != 0, reason="capability: root, to steer process numbers and namespaces"
)

WITHOUT = {"handle": (), "pidfs id": ("pidfsHandle",), "start ticks": ("pidfsHandle", "pidfsId")}
"""What older kernels could not record."""


def older(kind: str, **changes: object) -> Callable[[Reply], Reply]:
    """The change of a proof to what a kernel with just this evidence would have recorded."""
    return lambda proof: {**proof, **changes, **dict.fromkeys(WITHOUT[kind])}


def edit(receipts: Path, job_id: str, suffix: str, change: Callable[[Reply], Reply]) -> None:
    """Rewrites the proof of a receipt, as another kernel or another machine would have written it."""
    path = receipts / f"{job_id}.{suffix}"
    content = json.loads(path.read_text())
    proof = {key: value for key, value in change(content["proof"]).items() if value is not None}
    path.write_text(json.dumps({**content, "proof": proof}))


def orphaned(receipts: Path) -> tuple[str, int]:
    """A receipt in state running whose job is gone: its id, and the number that its init had."""
    with Session(receipts) as session:
        pid = session.start("sleep", "60")["namespaceInit"]["pid"]
        kill(session.process.pid)
        session.process.wait()
        wait_until(lambda: not alive(pid))
    return session.id, int(pid)


REUSE = """
import os, subprocess, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.promises.test_04_never_the_wrong_process import edit, older, orphaned
from tests.session import inspect
receipts, kind, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
job_id, pid = orphaned(receipts)
for _ in range(200):
    try:  # the dead init's number is free when whoever adopted it has reaped it: that is us, as PID 1
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        pass
    if not os.path.exists(f"/proc/{{pid}}"):
        break
Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
bystander = subprocess.Popen(["sleep", "60"])
assert bystander.pid == pid, (bystander.pid, pid)
edit(receipts, job_id, "running", older(kind))
code, found = inspect(receipts, job_id, *words)
assert bystander.poll() is None, "the bystander was ended"
print(code, found[0]["state"], found[0]["observation"]["state"])
bystander.kill()
bystander.wait()
"""


@root
@pytest.mark.parametrize("kind", WITHOUT)
@pytest.mark.parametrize("words", [[], ["--finish"]], ids=["inspect", "finish"])
def test_a_reused_number(receipts: Path, kind: str, words: list[str]) -> None:
    """The number belongs to a bystander now: the job is gone, and the bystander is never signalled."""
    inside = (
        "unshare",
        "-pf",
        "--mount-proc",
        "--kill-child",
        sys.executable,
        "-c",
        REUSE.format(root=str(ROOT)),
    )
    done = subprocess.run(
        [*inside, str(receipts), kind, *words], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.stdout.split() == ["0", "released", "gone"], done.stderr


@pytest.mark.parametrize("kind", WITHOUT)
def test_the_recorded_one_is_recognised(receipts: Path, kind: str) -> None:
    """The control: with each kind of evidence a living init is seen as live, and ended by --finish."""
    with Session(receipts) as session:
        session.start("sleep", "60")
        edit(receipts, session.id, "running", older(kind))
        _, (found,) = inspect(receipts, session.id)
        assert (found["state"], found["observation"]["state"]) == ("busy", "live")
        session.hang_up().finish()


@pytest.mark.parametrize("kind", WITHOUT)
def test_another_boot(receipts: Path, kind: str) -> None:
    """Recorded in another boot: gone by that alone, whatever has its number now."""
    job_id, _ = orphaned(receipts)
    boot = "0f0f0f0f-0000-4000-8000-000000000000"
    edit(receipts, job_id, "running", older(kind, pid=os.getpid(), bootId=boot))
    code, (found,) = inspect(receipts, job_id, "--finish")
    assert (code, found["state"], found["observation"]["why"]) == (0, "released", "recorded in another boot")


@root
@pytest.mark.parametrize("kind", WITHOUT)
def test_another_pid_namespace(receipts: Path, kind: str) -> None:
    """From another PID namespace nothing can be told of a number: unknown, kept, never signalled."""
    with Session(receipts) as session:
        init = session.start("sleep", "60")["namespaceInit"]["pid"]
        edit(receipts, session.id, "running", older(kind))
        inside = ("unshare", "-pf", "--mount-proc", "--kill-child", *CONTAIN)
        (receipts / f"{session.id}.lock").unlink()  # so that a look from outside is not stopped by the lock
        code, (found,) = inspect(receipts, session.id, "--finish", program=inside)
        assert (code, found["state"], found["observation"]["state"]) == (80, "held", "unknown")
        assert alive(init)
        session.hang_up().finish()


@root
def test_another_time_namespace(receipts: Path) -> None:
    """Start ticks alone, seen from a time namespace that shifts them: unknown."""
    with Session(receipts) as session:
        init = session.start("sleep", "60")["namespaceInit"]["pid"]
        edit(receipts, session.id, "running", older("start ticks"))
        (receipts / f"{session.id}.lock").unlink()
        inside = ("unshare", "-T", "--boottime", "100000", *CONTAIN)
        code, (found,) = inspect(receipts, session.id, "--finish", program=inside)
        assert (code, found["observation"]["state"]) == (80, "unknown"), found
        assert alive(init)
        session.hang_up().finish()


def signals(trace: Path) -> list[tuple[int, str]]:
    """(process, call) of every call that sends a signal."""
    calls = r"(kill|tkill|tgkill|rt_sigqueueinfo|rt_tgsigqueueinfo|pidfd_send_signal)\("
    lines = trace.read_text().splitlines()
    return [
        (int(text.split()[0]), text) for text in lines if re.search(rf"^\d+ +(\[pid +\d+\] )?{calls}", text)
    ]


@root
def test_no_signal_by_number(receipts: Path, tmp_path: Path) -> None:
    """Over a life with cancel, KILL and --finish: pidfds only; from inside, the init, only -1."""
    trace = tmp_path / "trace"
    traced = (
        "strace",
        "-f",
        "-qq",
        "-e",
        "trace=kill,tkill,tgkill,rt_sigqueueinfo,pidfd_send_signal",
        "-o",
        str(trace),
    )
    with Session(receipts, program=(*traced, *CONTAIN)) as session:
        session.start("sh", "-c", "trap '' TERM; setsid sleep 60 & sleep 60", graceMs=5000)
        session.cancel(graceMs=100).finish(60)
    found = signals(trace)
    assert found, "the trace shows nothing at all"
    for _, text in found:
        assert re.search(r"kill\(-1, SIG(TERM|CONT|KILL)|pidfd_send_signal\(", text), text
    job_id, _ = orphaned(receipts)
    subprocess.run(
        [*traced, *CONTAIN, "inspect", str(receipts), job_id, "--finish"], check=True, capture_output=True
    )
    assert [text for _, text in signals(trace) if "pidfd_send_signal" not in text] == []


@pytest.mark.timeout(180)  # 20 s on an idle machine
@pytest.mark.parametrize("rounds", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_a_cancel_that_races_with_the_end(receipts: Path, rounds: int) -> None:
    """Numbers are handed out all the time while jobs end and are cancelled: no error, nobody else is hurt."""
    fillers = [
        subprocess.Popen(["sh", "-c", "while :; do /bin/true; done"], start_new_session=True)
        for _ in range(2)
    ]
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        for run in range(rounds):
            with Session(receipts) as session:
                session.request("sleep", f"0.00{run % 9}").until("prepared")
                session.go().cancel(graceMs=run % 2 * 1000)
                last = session.finish()
            assert (last["event"], last["empty"]) == ("released", True)
            assert last["outcome"]["cause"] in ("exited", "canceled")
        assert [filler.poll() for filler in fillers] == [None, None]
        assert bystander.poll() is None
        assert stat_fields(bystander.pid) is not None
    finally:
        for process in (*fillers, bystander):
            process.kill()
            process.wait()
