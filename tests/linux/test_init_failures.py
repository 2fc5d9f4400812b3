"""Every call of a launch that can fail: the step is named, nothing is left, and the keeper goes on or is none.

The failures are the kernel's own: a seccomp filter, a limit, another user; one call alone is broken in the source.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from contain.linux import init_build, native
from tests import denied
from tests.linux.driver import NOBODY, USUAL, Launch, block, keeper, public_program, run_to_end
from tests.session import ROOT, WAIT_S, descendants, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MORE_NUMBERS = (
    {
        "signalfd4": 289,
        "mmap": 9,
        "pipe2": 293,
        "mount": 165,
        "capset": 126,
        "setsid": 112,
        "close_range": 436,
    }
    | {"fchdir": 81, "dup3": 292, "capget": 125}
    if denied.X86
    else {
        "signalfd4": 74,
        "mmap": 222,
        "pipe2": 59,
        "mount": 40,
        "capset": 91,
        "setsid": 157,
        "close_range": 436,
    }
    | {"fchdir": 50, "dup3": 24, "capget": 90}
)
"""System calls that ``tests.denied`` has no name for."""

DENY = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests import denied
denied.NUMBERS.update({MORE_NUMBERS!r})
denied.main(sys.argv[1:])
"""


def refusing(*calls: str) -> tuple[str, ...]:
    """A command in front of another, in which these calls fail: ``mount=EPERM``."""
    return (sys.executable, "-I", "-S", "-c", DENY, *calls, "--")


def nothing_left(launch: Launch, keeper_pid: int) -> None:
    """The init is gone, its output is closed, and the keeper has no child."""
    assert launch.gone()
    assert launch.read() == ""
    wait_until(lambda: descendants(keeper_pid) == [], what="the keeper has no child")
    launch.close()


IN_THE_INIT = {
    "setsid=EPERM": ("detach", errno.EPERM),
    "mount=EPERM": ("mounts", errno.EPERM),
    "capset=EPERM": ("capabilities", errno.EPERM),
    "signalfd4=EMFILE": ("signals", errno.EMFILE),
    "mmap=ENOMEM": ("command", errno.ENOMEM),
    "clone=EAGAIN": ("command", errno.EAGAIN),
}


@pytest.mark.parametrize("call", IN_THE_INIT)
def test_a_call_that_fails_in_the_init(call: str) -> None:
    """FAILED with its step and errno, before READY; nothing is left, and the next launch is answered too."""
    with keeper(through=refusing(call)) as started:
        for _ in range(2):
            launch = started.launch(block("echo", "ran"))
            assert launch.error == 0
            failed = launch.report()
            assert failed is not None
            assert (failed.kind, failed.step, failed.error) == (native.FAILED, *IN_THE_INIT[call])
            nothing_left(launch, started.pid)


def test_no_pipe_for_the_execve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor without its second pipe; the keeper's own is the same call, so this one is broken in the source."""
    sources = tmp_path / "init"
    shutil.copytree(init_build.SOURCES, sources)
    code = (sources / "command.c").read_text()
    call = "sys(__NR_pipe2, executed, O_CLOEXEC)"
    assert code.count(call) == 1
    (sources / "command.c").write_text(code.replace(call, "-ENFILE"))
    monkeypatch.setattr(init_build, "SOURCES", sources)
    init_build.compile_program(str(tmp_path / "contain-init"))
    with keeper(tmp_path / "contain-init") as started:
        launch = started.launch(block("echo", "ran"))
        failed = launch.until(native.FAILED)
        assert (failed.step, failed.error) == ("command", errno.ENFILE)
        nothing_left(launch, started.pid)


def test_a_call_that_fails_in_the_commands_process() -> None:
    """The init is READY, then FAILED with the step of the other process, whose gate never counts."""
    with keeper(through=refusing("dup3=EBADF")) as started:
        launch = started.launch(block("echo", "ran"))
        failed = launch.until(native.FAILED)
        assert (failed.step, failed.error) == ("descriptors", errno.EBADF)
        nothing_left(launch, started.pid)


def test_a_limit_that_may_not_be_set() -> None:
    """An unprivileged job cannot be nicer than its caller: step ``limits``, and the command does not run."""
    with public_program() as program, keeper(program, "nobody") as started:
        launch = started.launch(block("echo", "ran"), request=native.launch_request(0, 0, 0o022, -5, {}))
        failed = launch.until(native.FAILED)
        assert (failed.step, failed.error) == ("limits", errno.EACCES)
        nothing_left(launch, started.pid)


IN_THE_KEEPER = {
    ("fchdir=EACCES",): ("directory", errno.EACCES),
    ("clone3=ENOSYS", "clone:namespaces=EPERM"): ("clone", errno.EPERM),
    ("clone3=EAGAIN",): ("clone", errno.EAGAIN),
}


@pytest.mark.parametrize("calls", IN_THE_KEEPER)
def test_a_call_that_fails_in_the_keeper(calls: tuple[str, ...]) -> None:
    """The reply has step and errno and no pidfd; the keeper goes on answering."""
    with keeper(through=refusing(*calls)) as started:
        for _ in range(2):
            launch = started.launch(block("echo", "ran"))
            assert (launch.step, launch.error, launch.pidfd) == (*IN_THE_KEEPER[calls], -1)
            assert launch.read() == ""
            launch.close()
        assert descendants(started.pid) == []


@pytest.mark.parametrize("answer", ["ENOSYS", "EPERM"])
def test_clone_does_without_clone3(answer: str) -> None:
    """Where an old seccomp profile hides clone3, clone makes the same job."""
    with keeper(through=refusing(f"clone3={answer}")) as started:
        assert run_to_end(started.run("echo", "ran"))[1] == "ran\n"


@pytest.mark.parametrize("call", ["pipe2=EMFILE", "close_range=ENOSYS"])
def test_a_keeper_that_cannot_be_one_ends(call: str) -> None:
    """Without lifeline or close_range there is no keeper rather than a weaker one."""
    with keeper(through=refusing(call)) as started:
        assert started.ended()


def test_refusing_refuses_only_what_it_names() -> None:
    """The filter itself harms nothing: with another call denied, a job runs."""
    with keeper(through=refusing("unshare=EPERM")) as started:
        assert run_to_end(started.run("echo", "ran"))[1] == "ran\n"


def test_a_sender_of_another_user_ends_keeper_and_jobs() -> None:
    """A wrapper that changed its user must not go on commanding a keeper of its old one."""
    if os.getuid() != 0:
        pytest.skip("capability: root, to become another user")
    change = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    for user, dies in (((), False), (change, True)):
        with keeper() as started:
            launch = started.run("sleep", "60")
            subprocess.run([*user, "echo", "garbage"], stdout=started.requests.fileno(), check=True)
            assert started.ended(WAIT_S if dies else 0.5) == dies
            assert launch.gone(WAIT_S if dies else 0.0) == dies
            launch.close()


def test_the_keeper_outlives_what_is_no_request() -> None:
    """Hundreds of wrong messages, one by one refused; then a good one is served."""
    with keeper() as started:
        for number in range(300):
            started.send(USUAL[: number % len(USUAL)] or b"x")
            assert started.reply() == ((errno.EINVAL, "request", 0), -1)
        assert run_to_end(started.run("echo", "good"))[1] == "good\n"


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    """Nothing that a test here started is a child of the test process afterwards."""
    before = descendants(os.getpid())
    yield
    wait_until(lambda: not set(descendants(os.getpid())) - set(before), what="no process is left")
