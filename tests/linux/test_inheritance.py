"""What a job inherits from its caller, and what it does not: descriptors, signals, limits, places, strings."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ground import UID, ground_of
from tests.programs import shared_programs
from tests.session import CONTAIN, ROOT, Session, keeper_of, pids, run_job, wait_file

if TYPE_CHECKING:
    from collections.abc import Sequence

PRINT_SIGNALS = "grep -E '^Sig(Blk|Ign)' /proc/self/status >&2"


def output(receipts: Path, *command: str, program: Sequence[str] = CONTAIN, **extra: object) -> str:
    """What a job prints."""
    with Session(receipts, program=program) as session:
        session.start(command[0], *command[1:], **extra)
        last = session.finish()
    assert last["event"] == "released", session.errors()
    return session.errors().decode("utf-8", "surrogateescape")


MANY = 1000
WITH_MANY = (
    "import os, resource, sys; hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]; "
    "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)); "
    f"[os.set_inheritable(os.open('/', os.O_RDONLY), True) for _ in range({MANY})]; "
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def descriptors(pid: int) -> int:
    """How many descriptors a process has."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_NOFILE)[1] < MANY + 100,
    reason="capability: a hard limit of more than 1,100 open files",
)
def test_only_three_descriptors(receipts: Path, tmp_path: Path) -> None:
    """A caller with 1,000 open files passes none on, to the keeper neither; the job's input is /dev/null."""
    with Session(receipts, program=(sys.executable, "-c", WITH_MANY, *CONTAIN)) as session:
        listed = "ls /proc/self/fd; readlink /proc/self/fd/0"
        session.start("sh", "-c", f"{listed}; echo said > {tmp_path}/said; sleep 60")
        assert descriptors(session.process.pid) > MANY  # the control: they were open
        assert descriptors(keeper_of(session.process.pid)) < 20
        wait_file(tmp_path / "said")
        session.cancel(graceMs=0).finish()
    assert session.errors().split() == [b"0", b"1", b"2", b"3", b"/dev/null"]  # 3 is the listing itself


def holders(file: Path) -> set[int]:
    """The processes that have a file open, as far as they may be looked at."""
    found = set()
    for pid in pids():
        with contextlib.suppress(OSError):
            if any(fd.readlink() == file for fd in Path(f"/proc/{pid}/fd").iterdir()):
                found.add(pid)
    return found


def test_a_lock_of_the_caller_is_not_held_by_the_job(receipts: Path, tmp_path: Path) -> None:
    """A build lock on descriptor 9 is the caller's and its wrapper's, and free as soon as these let go."""
    lock = tmp_path / "lock"
    into = ("sh", "-c", f'exec 9>"{lock}"; flock 9; exec "$@" 9>&9', "-", *CONTAIN)
    with Session(receipts, program=into) as session:
        session.start("sleep", "60")
        assert holders(lock) == {session.process.pid}
        with lock.open() as again, pytest.raises(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        session.hang_up().finish()
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
    """A caller with everything blocked and ignored that can be: wrapper and job start with neither."""
    block = (
        "import os, signal, sys; every = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}; "
        "[signal.signal(number, signal.SIG_IGN) for number in every]; "
        "signal.pthread_sigmask(signal.SIG_BLOCK, every); "
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
    """Both are the caller's; nice is what was asked for, where it was."""
    into = ("sh", "-c", 'umask 027; exec nice -n 5 "$@"', "-", *CONTAIN)
    assert output(receipts, "sh", "-c", "umask; nice", program=into).split() == ["0027", "5"]
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


@pytest.mark.parametrize("up", [".", "..", "/".join([".."] * 40)], ids=["here", "above", "far above"])
def test_no_way_up_leads_to_the_proc_of_the_host(receipts: Path, tmp_path: Path, up: str) -> None:
    """Under every path to it, /proc knows the job's processes by the numbers that they have themselves."""
    text = f"read number rest < {up}/proc/self/stat; echo $number $$; ls -d {up}/proc/1/"
    for cwd in ("/", str(tmp_path)):
        if up.count("..") < len(Path(cwd).parts) - 1:
            continue  # not high enough from there
        last, session = run_job(receipts, "sh", "-c", text, cwd=cwd)
        if last["namespaceInit"]["proc"] == "host":
            pytest.skip(
                "capability: a kernel that lets a job have a /proc of its own (here it is partly masked)"
            )
        number, own, _ = session.errors().split()
        assert number == own


def test_environment_and_arguments_are_exact(receipts: Path) -> None:
    """Bytes go through as they are, odd ones as surrogate escapes; an env is the whole environment."""
    said = output(receipts, "env", env={"PATH": "/usr/bin:/bin", "ODD": "\udcff caf\udce9", "EMPTY": ""})
    assert sorted(said.splitlines()) == ["EMPTY=", "ODD=\udcff caf\udce9", "PATH=/usr/bin:/bin"]
    assert output(receipts, "printf", "%s|", "a b", "", "\udcff\udcfe", "é", "*") == "a b||\udcff\udcfe|é|*|"


def test_variables_of_the_caller(receipts: Path) -> None:
    """Without env in the request: the caller's, byte for byte, and none that only the wrapper has."""
    given = {"PATH": "/usr/bin:/bin", "ODD": "\udcff caf\udce9", "EMPTY": "", "TWO": "a\nb"}
    for more in ({}, {"LC_CTYPE": "C.UTF-8"}, {"LC_ALL": "C"}, {"LANG": "C.UTF-8"}):
        env = given | more
        with Session(receipts, env=env, cwd=ROOT) as session:
            session.start("env", "-0")
            session.finish()
        said = session.errors().decode("utf-8", "surrogateescape").split("\0")[:-1]
        assert sorted(said) == sorted(f"{name}={value}" for name, value in env.items())


def test_three_megabytes_of_arguments(receipts: Path) -> None:
    """More than the usual stack limit allows, where the request raises that: the check before the launch knows it."""
    args = ["x" * 100_000] * 30
    said = output(receipts, "sh", "-c", "echo $#", "-", *args, limits={"stackBytes": 64 << 20})
    assert said.strip() == "30"


@pytest.mark.parametrize("size", [1, 131_071])
def test_long_arguments(receipts: Path, size: int) -> None:
    """As long as the kernel takes them."""
    assert output(receipts, "sh", "-c", "echo ${#1}", "-", "x" * size).strip() == str(size)


def test_who_and_where(receipts: Path) -> None:
    """The same user, another session, another first pid; not PID 1."""
    stat = "read number name state parent group session rest < /proc/$$/stat"
    text = f"id -u; id -g; echo $$; {stat}; echo $parent $group $session"
    uid, gid, number, parent, group, session = output(receipts, "sh", "-c", text).split()
    assert (int(uid), int(gid)) == (os.getuid(), os.getgid())
    assert (parent, group, session) == ("1", number, number)
    assert number != "1"
    firsts = [output(receipts, "sh", "-c", "echo $$").strip() for _ in range(6)]
    pairs = list(itertools.combinations(firsts, 2))
    assert sum(one != other for one, other in pairs) > len(pairs) / 2


def test_git_works_for_a_plain_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Ids are mapped to themselves: what the user owns is the user's inside as well, and git trusts it."""
    with ground_of("nobody", shared_programs(tmp_path_factory)) as ground:
        home = ground.work / "home"
        home.mkdir()
        os.chown(home, UID, UID)
        text = (
            'cd "$HOME" && git init -q repo && cd repo && touch new && git status --short && id -u && id -g'
        )
        env = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
        said = output(ground.receipts, "sh", "-c", text, program=ground.contain, env=env)
        assert said.split() == ["??", "new", str(UID), str(UID)]
        assert (home / "repo" / "new").stat().st_uid == UID


def test_a_small_limit_of_open_files(receipts: Path) -> None:
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
