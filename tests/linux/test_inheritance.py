"""What a job inherits from its caller, and what it does not: descriptors, signals, limits, places, strings."""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.session import CONTAIN, ROOT, Session, run_job

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PRINT_SIGNALS = "grep -E '^Sig(Blk|Ign)' /proc/self/status >&2"


def output(receipts: Path, *command: str, program: Sequence[str] = CONTAIN, **extra: object) -> str:
    """What a job prints."""
    with Session(receipts, program=program) as session:
        session.start(command[0], *command[1:], **extra)
        last = session.finish()
    assert last["event"] == "released", session.errors()
    return session.errors().decode("utf-8", "surrogateescape")


def test_only_three_descriptors(receipts: Path, tmp_path: Path) -> None:
    """A caller with many open files passes none on; the job's input is /dev/null."""
    held = [os.open(tmp_path, os.O_RDONLY) for _ in range(200)]
    try:
        for fd in held:
            os.set_inheritable(fd, True)
        with Session(receipts, close_fds=False) as session:
            session.start("sh", "-c", "ls /proc/self/fd; readlink /proc/self/fd/0")
            session.finish()
    finally:
        for fd in held:
            os.close(fd)
    assert session.errors().split() == [b"0", b"1", b"2", b"3", b"/dev/null"]  # 3 is the listing itself


def test_a_lock_of_the_caller_is_not_held_by_the_job(receipts: Path, tmp_path: Path) -> None:
    """A build lock on descriptor 9 is free as soon as its owner lets go, whatever the job left."""
    lock = tmp_path / "lock"
    into = ("sh", "-c", f'exec 9>"{lock}"; flock 9; "$@" 9>&9', "-", *CONTAIN)
    with Session(receipts, program=into) as session:
        session.start("sleep", "60")
        session.hang_up().finish()
        session.process.wait()
    with lock.open() as again:
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_descriptors(receipts: Path, closed: str) -> None:
    """A caller without 0, 1 or 2 is answered as far as it can be, and nothing else gets their numbers."""
    into = ("sh", "-c", f'exec "$@" {closed}', "-", *CONTAIN)
    with Session(receipts, program=into) as session:
        session.request("true")
        if closed == "2>&-":
            session.until("prepared")
            assert session.go().finish()["outcome"]["code"] == 0
            return
        session.hang_up()
        while session.read() is not None:
            pass
        session.process.wait(30)
        assert b"Traceback" not in session.errors()
    assert [path.name for path in receipts.glob("*.running")] == []


CALLERS = {
    "ignores CHLD": "trap '' CHLD",
    "ignores PIPE": "trap '' PIPE",
    "ignores INT": "trap '' INT",
    "ignores all": "trap '' HUP INT QUIT PIPE TERM USR1 USR2 CHLD TSTP TTIN TTOU",
}


@pytest.mark.parametrize("caller", CALLERS)
def test_ignored_signals_are_the_callers_own(receipts: Path, caller: str) -> None:
    """The job starts with nothing ignored and nothing blocked; its statuses arrive; TERM still ends it."""
    into = ("sh", "-c", f'{CALLERS[caller]}; exec "$@"', "-", *CONTAIN)
    said = output(receipts, "sh", "-c", PRINT_SIGNALS, program=into)
    assert [int(word, 16) for word in said.split()[1::2]] == [0, 0], said
    with Session(receipts, program=into) as session:
        session.start("sleep", "60")
        session.process.send_signal(signal.SIGTERM)
        assert session.finish()["outcome"]["cause"] == "canceled"


def test_blocked_signals_are_the_callers_own(receipts: Path) -> None:
    """A caller with TERM blocked: wrapper and job start with an empty mask."""
    block = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); "
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )
    into = (sys.executable, "-c", block, *CONTAIN)
    assert [
        int(word, 16) for word in output(receipts, "sh", "-c", PRINT_SIGNALS, program=into).split()[1::2]
    ] == [0, 0]
    with Session(receipts, program=into) as session:
        session.start("sleep", "60")
        session.process.send_signal(signal.SIGTERM)
        assert session.finish()["outcome"]["by"] == "SIGTERM"


def test_a_pipeline_dies_of_sigpipe(receipts: Path) -> None:
    """As it does in a shell: Python's ignored SIGPIPE is not passed on."""
    said = output(receipts, "bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}")
    assert said.split() == ["y", "141"]


def test_umask_and_nice(receipts: Path) -> None:
    """The umask is the caller's; nice is what was asked for."""
    into = ("sh", "-c", 'umask 027; exec "$@"', "-", *CONTAIN)
    assert output(receipts, "sh", "-c", "umask; nice", program=into, limits={"nice": 7}).split() == [
        "0027",
        "7",
    ]


def test_limits(receipts: Path) -> None:
    """Limits are the caller's unless the request sets them; what may not be raised is refused before the launch."""
    into = ("sh", "-c", 'ulimit -Sn 512; exec "$@"', "-", *CONTAIN)
    assert output(receipts, "sh", "-c", "ulimit -Sn", program=into).strip() == "512"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with Session(receipts) as session:
        reply = session.request("true", limits={"openFiles": hard + 1}).finish()
    assert (reply["event"], reply["reason"]) == ("refused", "impossible")


def test_working_directory(receipts: Path, tmp_path: Path) -> None:
    """The one that was asked for, by what it is and not by its name; no `..` leads out of the job's view."""
    place = tmp_path / "place"
    place.mkdir()
    (place / "mark").write_text("here")
    with Session(receipts, cwd=place) as session:
        session.request("sh", "-c", "cat mark; cat ../place2/mark; pwd -P").until("prepared")
        place.rename(tmp_path / "place2")
        session.go().finish()
    assert session.errors().split() == [b"herehere" + str(tmp_path / "place2").encode()]
    said = output(
        receipts,
        "sh",
        "-c",
        "cat ../../../../../../../proc/self/status | grep -c NSpid; ls -d /proc/1",
        cwd="/",
    )
    assert said.split() == ["1", "/proc/1"]


def test_environment_and_arguments_are_exact(receipts: Path) -> None:
    """Bytes go through as they are, odd ones as surrogate escapes; an env is the whole environment."""
    said = output(receipts, "env", env={"PATH": "/usr/bin:/bin", "ODD": "\udcff caf\udce9", "EMPTY": ""})
    assert sorted(said.splitlines()) == ["EMPTY=", "ODD=\udcff caf\udce9", "PATH=/usr/bin:/bin"]
    assert output(receipts, "printf", "%s|", "a b", "", "\udcff\udcfe", "é", "*") == "a b||\udcff\udcfe|é|*|"


@pytest.mark.parametrize("size", [1, 131_071])
def test_long_arguments(receipts: Path, size: int) -> None:
    """As long as the kernel takes them."""
    assert output(receipts, "sh", "-c", "echo ${#1}", "-", "x" * size).strip() == str(size)


def test_who_and_where(receipts: Path) -> None:
    """The same user, another session, another first pid; not PID 1."""
    said = output(receipts, "sh", "-c", "id -u; echo $$; ps -o sid= -p $$ 2>/dev/null || echo $$").split()
    assert said[0] == str(os.getuid())
    assert said[1] == said[2] != "1"
    firsts = {output(receipts, "sh", "-c", "echo $$").strip() for _ in range(6)}
    assert len(firsts) > 3


@pytest.mark.skipif(os.getuid() != 0, reason="capability: root, to become nobody")
def test_git_works_for_a_plain_user(tmp_path: Path) -> None:
    """Ids are mapped to themselves: what the user owns is the user's inside as well."""
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o711)
    home = tmp_path / "home"
    receipts = home / "receipts"
    home.mkdir()
    receipts.mkdir(mode=0o700)
    for folder in (home, receipts):
        os.chown(folder, 65534, 65534)
    drop = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env", f"HOME={home}")
    if subprocess.run([*drop, *CONTAIN, "--help"], capture_output=True, check=False, cwd="/").returncode:
        pytest.skip("capability: a clone that the user nobody may read")
    text = f"cd {home} && git init -q repo && cd repo && git status --short && id -u"
    assert output(receipts, "sh", "-c", text, program=(*drop, *CONTAIN)).split()[-1] == "65534"


def test_a_thousand_open_files_and_a_small_limit(receipts: Path) -> None:
    """A wrapper under a small limit of descriptors launches all the same: it needs a dozen."""
    into = ("sh", "-c", 'ulimit -n 24; exec "$@"', "-", *CONTAIN)
    with Session(receipts, program=into, cwd=ROOT) as session:
        session.start("true")
        assert session.finish()["outcome"]["code"] == 0


def test_the_control_sees_what_is_inherited(tmp_path: Path) -> None:
    """The control: without contain, descriptor, mask and ignored signals do reach a command."""
    with (tmp_path / "held").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        done = subprocess.run(
            ["sh", "-c", f"trap '' USR1; ls /proc/self/fd; {PRINT_SIGNALS}"],
            capture_output=True,
            close_fds=False,
            check=True,
        )
    assert len(done.stdout.split()) > 4
    assert int(done.stderr.split()[3], 16) != 0


def test_two_jobs_in_turn(receipts: Path) -> None:
    """Nothing of one job's places is in the way of the next."""
    assert [run_job(receipts, "true")[0]["outcome"]["code"] for _ in range(2)] == [0, 0]
