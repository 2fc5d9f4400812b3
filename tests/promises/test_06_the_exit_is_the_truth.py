"""The exit is the truth. Every end has its own cause, in the reply and in the receipt, and what was seen stays.

The causes are those of docs/PROTOCOL.md; each is produced here by what really causes it.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain import errors
from tests.programs import other_program, shared_programs
from tests.session import (
    CONTAIN,
    ROOT,
    Session,
    inspect,
    keeper_of,
    kill,
    new_id,
    run_job,
    wait_file,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.session import Reply


def agrees(receipts: Path, last: Reply) -> Reply:
    """The outcome of a reply, after checking that the receipt says the same."""
    code, (found,) = inspect(receipts, last["id"])
    assert code == 0
    assert found["outcome"] == last["outcome"]
    assert (last["event"], last["empty"], found["state"]) == ("released", True, "released")
    outcome: Reply = last["outcome"]
    return outcome


@pytest.mark.parametrize("code", [0, 1, 7, 126, 127, 137, 139, 255])
def test_exited(receipts: Path, code: int) -> None:
    """An exit code is an exit code, also one that a shell would use for a signal."""
    last, _ = run_job(receipts, "sh", "-c", f"exit {code}")
    outcome = agrees(receipts, last)
    assert (outcome["cause"], outcome["code"]) == ("exited", code)
    assert "signal" not in outcome


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGPIPE])
def test_signaled(receipts: Path, number: int) -> None:
    """A signal is told apart from 128+n."""
    last, _ = run_job(receipts, "sh", "-c", f"kill -{int(number)} $$")
    outcome = agrees(receipts, last)
    assert (outcome["cause"], outcome["signal"]) == ("signaled", number)
    assert "code" not in outcome


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_CORE)[1] == 0,
    reason="capability: a hard limit that allows a core dump",
)
@pytest.mark.parametrize("core_bytes", [0, 64 << 20])
def test_a_core_dump_is_told(receipts: Path, tmp_path: Path, core_bytes: int) -> None:
    """`core` is the kernel's own word: what a plain wait reads under the same limit."""
    crash = ("sh", "-c", "kill -SEGV $$")
    plain = ("prlimit", f"--core={core_bytes}", "env", "-C", str(tmp_path), *crash)
    _, status = os.waitpid(os.posix_spawnp("prlimit", plain, os.environ), 0)
    last, _ = run_job(receipts, *crash, cwd=str(tmp_path), limits={"coreBytes": core_bytes})
    outcome = agrees(receipts, last)
    assert (outcome["cause"], outcome["signal"]) == ("signaled", signal.SIGSEGV)
    assert outcome["core"] == os.WCOREDUMP(status)
    if Path("/proc/sys/kernel/core_pattern").read_text()[:1] not in "|/":
        assert outcome["core"] == (core_bytes > 0)


def script(folder: Path, text: str, mode: int = 0o755) -> str:
    """A file to execute."""
    path = folder / f"script-{new_id()}"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_exec_failed(receipts: Path, tmp_path: Path) -> None:
    """Each errno of execve is the kernel's own, and no exit code."""
    cases = {
        "/no/such/file": errno.ENOENT,
        "no-such-command-anywhere": errno.ENOENT,
        str(tmp_path): errno.EACCES,
        script(tmp_path, "#!/bin/sh\n", 0o644): errno.EACCES,
        script(tmp_path, "echo no interpreter line\n"): errno.ENOEXEC,
        script(tmp_path, "#!/no/such/interpreter\n"): errno.ENOENT,
    }
    for command, number in cases.items():
        last, session = run_job(receipts, command)
        outcome = agrees(receipts, last)
        assert (outcome["cause"], outcome["errno"], last["ran"]) == ("exec-failed", number, False), command
        assert "exited" in session.events()
        assert "code" not in outcome


def test_setup_failed(receipts: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A step that the kernel refuses after the containment stood: named, with its errno, and nothing ran."""
    late = other_program(
        shared_programs(tmp_path_factory).waits_at("LIMITS")
    )  # or it could come before prepared
    drop = ("setpriv", "--bounding-set", "-sys_nice") if os.getuid() == 0 else ()
    with Session(receipts, program=(*drop, *late), cwd=ROOT) as session:
        session.request("touch", str(tmp_path / "ran"), limits={"nice": -20}).until("prepared")
        last = session.go().finish()
    outcome = agrees(receipts, last)
    assert (outcome["cause"], outcome["step"], last["ran"]) == ("setup-failed", "limits", False)
    assert outcome["errno"] in (errno.EACCES, errno.EPERM)
    assert not (tmp_path / "ran").exists()


def test_refused(receipts: Path) -> None:
    """A host that does not know the token gets no job; the receipt says why."""
    with Session(receipts) as session:
        session.request("true").until("prepared")
        last = session.go(token="0" * 64).finish()
        assert session.process.returncode == errors.BadToken.exit_code
    outcome = agrees(receipts, last)
    assert (outcome["cause"], outcome["by"], last["ran"]) == ("refused", "bad-token", False)
    assert session.events() == ["prepared", "refused", "released"]


@pytest.mark.parametrize("how", ["cancel", "eof", "SIGTERM", "SIGINT", "SIGHUP"])
def test_canceled(receipts: Path, how: str) -> None:
    """Whoever ends it is named; the command's own status stays in the outcome where it was seen."""
    with Session(receipts) as session:
        session.start("sleep", "60")
        if how == "cancel":
            session.cancel(graceMs=5000)
        elif how == "eof":
            session.hang_up()
        else:
            session.process.send_signal(signal.Signals[how])
        last = session.finish()
    outcome = agrees(receipts, last)
    assert (outcome["cause"], outcome["by"]) == ("canceled", "host" if how == "cancel" else how)
    if how == "cancel":
        assert (outcome["signal"], outcome["lastSignal"]) == (signal.SIGTERM, "TERM")
    else:
        assert outcome["lastSignal"] == "KILL"
    assert session.process.returncode == (128 + signal.Signals[how] if how.startswith("SIG") else 0)


def test_a_deaf_command_is_killed_after_its_grace(receipts: Path) -> None:
    """TERM first, KILL after the grace that was asked for; the receipt names the signal that it took."""
    with Session(receipts) as session:
        session.start("sh", "-c", "trap '' TERM; echo ready >&2; while :; do sleep 1; done")
        wait_until(lambda: session.process.stderr is not None and session.process.stderr.peek(1))  # type: ignore[attr-defined]
        from_s = time.monotonic()
        last = session.cancel(graceMs=200).finish()
        assert time.monotonic() - from_s >= 0.2
    outcome = agrees(receipts, last)
    assert (outcome["cause"], outcome["signal"], outcome["lastSignal"]) == (
        "canceled",
        signal.SIGKILL,
        "KILL",
    )


def test_a_command_that_ends_well_on_term(receipts: Path) -> None:
    """It was canceled, and it exited 42: both are said."""
    with Session(receipts) as session:
        session.start("sh", "-c", "trap 'exit 42' TERM; echo ready >&2; while :; do sleep 0.05; done")
        wait_until(lambda: session.process.stderr is not None and session.process.stderr.peek(1))  # type: ignore[attr-defined]
        outcome = agrees(receipts, session.cancel(graceMs=20_000).finish())
    assert (outcome["cause"], outcome["code"], outcome["lastSignal"]) == ("canceled", 42, "TERM")


def test_timed_out(receipts: Path) -> None:
    """The deadline that was asked for is echoed and kept."""
    with Session(receipts) as session:
        prepared = session.start("sleep", "60", timeoutMs=200, graceMs=5000, killMs=700)
        assert (prepared["timeoutMs"], prepared["graceMs"], prepared["killMs"]) == (200, 5000, 700)
        last = session.finish()
    outcome = agrees(receipts, last)
    assert last["usage"]["wallUs"] >= 200_000
    assert (outcome["cause"], outcome["signal"], outcome["lastSignal"]) == (
        "timed-out",
        signal.SIGTERM,
        "TERM",
    )


@pytest.mark.parametrize("asked", [{}, {"graceMs": 600_000, "killMs": 0, "timeoutMs": 2**31 - 1}], ids=str)
def test_times_are_echoed(receipts: Path, asked: dict[str, int]) -> None:
    """The times of the request, or those that the page of the protocol names: nobody else shortens them."""
    with Session(receipts) as session:
        prepared = session.request("true", **asked).until("prepared")
        session.hang_up().finish()
    due: dict[str, int | None] = {"graceMs": 10_000, "killMs": 5_000, "timeoutMs": None, **asked}
    assert {name: prepared[name] for name in due} == due


@pytest.mark.parametrize(
    ("limits", "text", "detail"),
    [
        ({"cpuS": 1}, "while :; do :; done", "cpuS"),
        ({"fileBytes": 100}, "exec dd if=/dev/zero of=big bs=1000 count=1", "fileBytes"),
    ],
)
def test_limit(receipts: Path, tmp_path: Path, limits: dict[str, int], text: str, detail: str) -> None:
    """A limit of the job that ends it is the cause, not the signal that it works by."""
    last, _ = run_job(receipts, "sh", "-c", text, limits=limits, cwd=str(tmp_path))
    outcome = agrees(receipts, last)
    assert (outcome["cause"], outcome["detail"]) == ("limit", detail)


@pytest.fixture
def small_memory() -> Iterator[Path]:
    """A memory cgroup of 64 MiB; gone afterwards."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    limit = "memory.limit_in_bytes" if (v1 / "memory.limit_in_bytes").exists() else "memory.max"
    controllers = v2 / "cgroup.controllers"
    if os.getuid() != 0 or (
        limit == "memory.max" and "memory" not in (controllers.read_text() if controllers.exists() else "")
    ):
        pytest.skip("capability: root and a memory cgroup")
    group = (v1 if limit == "memory.limit_in_bytes" else v2) / f"contain-test-{new_id()}"
    group.mkdir()
    try:
        (group / limit).write_text(str(64 << 20))
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), what="the cgroup is empty")
        group.rmdir()


@pytest.mark.parametrize("text", ["exec {hog}", "{hog}; exit $?"])
def test_out_of_memory(receipts: Path, small_memory: Path, text: str) -> None:
    """A kill for memory is called that, of the command itself and of the child that its shell waited for."""
    hog = "tail /dev/zero"
    into = f'echo 0 > {small_memory}/cgroup.procs; exec "$@"'
    with Session(receipts, program=("sh", "-c", into, "-", *CONTAIN)) as session:
        session.start("sh", "-c", text.format(hog=hog))
        outcome = agrees(receipts, session.finish())
    assert outcome["cause"] == "out-of-memory"


def test_a_kill_from_outside_is_not_blamed_on_memory(receipts: Path, tmp_path: Path) -> None:
    """The control: SIGKILL by somebody is signaled."""
    with Session(receipts) as session:
        init = session.start("sh", "-c", f"echo up > {tmp_path}/up; exec sleep 60")["namespaceInit"]["pid"]
        wait_file(tmp_path / "up")
        children = Path(f"/proc/{init}/task/{init}/children")
        kill(int(children.read_text().split()[0]))
        outcome = agrees(receipts, session.finish())
    assert (outcome["cause"], outcome["signal"]) == ("signaled", signal.SIGKILL)


def test_wrapper_lost(receipts: Path) -> None:
    """Nobody saw how the command ended, and nobody invents it."""
    with Session(receipts) as session:
        session.start("sleep", "60")
        kill(session.process.pid)
        session.process.wait()
        code, (found,) = inspect(receipts, session.id)
    assert (code, found["state"], found["empty"]) == (0, "released", True)
    assert found["outcome"]["cause"] == "wrapper-lost"
    assert "code" not in found["outcome"]


def test_keeper_lost(receipts: Path) -> None:
    """The keeper's death takes the job along; the wrapper lives and says so."""
    with Session(receipts) as session:
        session.start("sleep", "60")
        kill(keeper_of(session.process.pid))
        outcome = agrees(receipts, session.finish())
    assert outcome["cause"] == "keeper-lost"


def test_init_killed(receipts: Path) -> None:
    """The init's death from outside is told apart from its keeper's."""
    with Session(receipts) as session:
        kill(session.start("sleep", "60")["namespaceInit"]["pid"])
        outcome = agrees(receipts, session.finish())
    assert outcome["cause"] == "init-killed"


@pytest.mark.parametrize("then", ["cancel", "kill-init", "kill-wrapper", "kill-keeper", "eof"])
def test_what_was_seen_stays(receipts: Path, then: str) -> None:
    """The command exited 7 and left something: whatever happens next, it exited 7."""
    text = "setsid sleep 60 & until grep -q sleep /proc/$!/comm; do :; done; exit 7"
    with Session(receipts) as session:
        init = session.start("sh", "-c", text, graceMs=30_000)["namespaceInit"]["pid"]
        exited = session.until("exited")
        assert exited["outcome"]["code"] == 7
        if then == "cancel":
            session.cancel(graceMs=0)
        elif then == "eof":
            session.hang_up()
        else:
            kill(
                {"kill-init": init, "kill-wrapper": session.process.pid}.get(then)
                or keeper_of(session.process.pid)
            )
        session.process.wait()
        _, (found,) = inspect(receipts, session.id)
    assert (found["state"], found["empty"]) == ("released", True)
    assert (found["outcome"]["cause"], found["outcome"]["code"]) == ("exited", 7)
    assert found["leftovers"]["names"] == ["sleep"]


@pytest.mark.parametrize(
    ("deaf", "kill_ms", "signal_name"), [("", 20_000, "TERM"), ("trap '' TERM; ", 300, "KILL")]
)
def test_leftovers_are_counted_named_and_ended(
    receipts: Path, deaf: str, kill_ms: int, signal_name: str
) -> None:
    """TERM and CONT after the grace, KILL after the next; the receipt says what it took."""
    leftover = f'setsid sh -c "{deaf}kill -STOP \\$\\$; sleep 60; sleep 60" &'
    stopped = 'until grep -q "^State:.T" /proc/$!/status; do :; done;'
    last, _ = run_job(receipts, "sh", "-c", f"{leftover} {stopped} exit 3", graceMs=100, killMs=kill_ms)
    outcome = agrees(receipts, last)
    assert (outcome["cause"], outcome["code"]) == ("exited", 3)
    assert last["leftovers"]["count"] >= 1
    assert last["leftovers"]["signal"] == signal_name


def test_exit_codes_are_distinct() -> None:
    """Each class of ours has its own reason and code, clear of 0 to 2 and of what shells say of a command."""
    todo, found = [errors.ContainError], []
    while todo:
        cls = todo.pop()
        found.append(cls)
        todo += cls.__subclasses__()
    codes = [cls.exit_code for cls in found]
    assert len(set(codes)) == len(codes) == len({cls.reason for cls in found}) > 10
    assert all(2 < code < 126 for code in codes)


def test_an_uncontained_command_has_the_same_status(tmp_path: Path) -> None:
    """The control: what the outcome says is what a plain wait says."""
    plain = subprocess.run(["sh", "-c", "exit 139"], check=False, cwd=tmp_path)
    assert plain.returncode == 139
    plain = subprocess.run(["sh", "-c", "kill -11 $$"], check=False, cwd=tmp_path)
    assert plain.returncode == -signal.SIGSEGV
