"""PID 1 of a job: what it holds, what it costs, and that nothing inside can end, stop, read or outrun it.

``init_jobs.c`` holds further attacks, which the harness runs here and on aarch64.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain.linux import native
from contain.linux.init_build import compile_program
from tests.linux.driver import (
    NOBODY,
    USERS,
    Keeper,
    Launch,
    block,
    keeper,
    public_program,
    run_to_end,
)
from tests.linux.test_init_harness import compile_harness
from tests.session import Session, kill, stat_fields, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_IDLE_KB = 64
MOST_ZOMBIES = 500
"""What may pile up while a busy machine lets others run (below 50 on an idle one); not reaping would be 20,000."""
CAP_SYS_PTRACE, CAP_SYS_BOOT = 19, 22
LARGE = ["x" * 100_000] * 15


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    """contain-init, and beside it the jobs of the harness, where everybody may execute them."""
    with public_program() as path:
        compile_harness(path.parent / "jobs")
        yield path


@pytest.fixture(params=USERS)
def started(program: Path, request: pytest.FixtureRequest) -> Iterator[Keeper]:
    """A keeper of each user."""
    with keeper(program, request.param) as made:
        yield made


@pytest.fixture
def roots(program: Path) -> Iterator[Keeper]:
    """A keeper of the user that runs the tests."""
    with keeper(program) as made:
        yield made


def state_of(launch: Launch) -> str:
    """The init's state as the host sees it."""
    fields = stat_fields(launch.pid)
    assert fields is not None, "the init is gone"
    return fields[0]


def job(program: Path, *words: str) -> bytes:
    """A job of ``init_jobs.c``."""
    return block(str(program.parent / "jobs"), "--job", *words, env=("HARNESS=1",))


def zombies_of(pid: int) -> int:
    """How many children of a process wait to be reaped."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum((stat_fields(int(child)) or "?")[0] == "Z" for child in children)
    return 0


@pytest.mark.slow
def test_twenty_thousand_orphans(program: Path, started: Keeper) -> None:
    """All are reaped, and never do more than a few wait for it."""
    launch = started.launch(job(program, "orphans", "20000")).arm().go()
    most = 0
    while not launch.gone(0.002):
        most = max(most, zombies_of(launch.pid))
    assert launch.until(native.EMPTY).reaped >= 20_001
    assert most <= MOST_ZOMBIES
    launch.close()


def test_zombies_can_be_seen() -> None:
    """The count before can be other than none."""
    with subprocess.Popen(["true"]) as child:
        wait_until(lambda: zombies_of(os.getpid()) >= 1, what="a dead child that nobody waited for")
        assert child.wait() == 0


def test_a_storm_does_not_move_the_deadlines(program: Path, roots: Keeper) -> None:
    """Leftovers that fork without end and ignore TERM are sent TERM and KILL when it is time, and are gone."""
    maker = f"(trap '' TERM; exec {program.parent}/jobs --job orphans 100000000) &"
    launch = (
        roots.launch(block("sh", "-c", maker * 4 + " exit 0", env=("HARNESS=1", "PATH=/usr/bin:/bin")))
        .arm()
        .go()
    )
    assert launch.until(native.EXITED).leftovers == 1
    begun_s = time.monotonic()
    launch.until(native.SENT_TERM)
    launch.until(native.SENT_KILL)
    assert time.monotonic() - begun_s < 10
    launch.until(native.EMPTY)
    launch.close()


def test_unread_reports_do_not_block(roots: Keeper) -> None:
    """Five thousand reports that nobody reads: the init still obeys, and ends."""
    launch = roots.run("sleep", "60")
    launch.control.settimeout(0)
    for _ in range(5000):
        wait_until(lambda: _sent(launch, native.arm_order()), what="the init takes orders")
    wait_until(lambda: _sent(launch, native.cancel_order(0)), what="the init takes the last order")
    assert launch.gone()
    launch.close()


def _sent(launch: Launch, order: bytes) -> bool:
    with contextlib.suppress(BlockingIOError):
        launch.order(order)
        return True
    return False


def test_a_stopped_wrapper_loses_nothing(receipts: Path) -> None:
    """The init reports, reaps and ends while its wrapper is stopped; the wrapper then still has the outcome."""
    with Session(receipts) as session:
        prepared = session.start(
            "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; exit 9", cwd=str(receipts)
        )
        session.process.send_signal(signal.SIGSTOP)
        (receipts / "go").touch()
        init = prepared["namespaceInit"]["pid"]
        wait_until(lambda: stat_fields(init) is None, what="the init ends on its own")
        session.process.send_signal(signal.SIGCONT)
        reply = session.finish()
    assert (reply["event"], reply["outcome"]["code"]) == ("released", 9)


@pytest.mark.parametrize(
    "attack", ["kill -9 -1", "kill -STOP 1", "kill -TERM 1", "kill -9 1", "kill -TSTP 1", "kill -SEGV 1"]
)
def test_no_signal_from_inside_reaches_it(started: Keeper, attack: str) -> None:
    """The init runs on: the command after the attack still has its output and its end reported."""
    launch = started.run("sh", "-c", f"sleep 60 & {attack} 2>/dev/null; echo on; exec sleep 60")
    assert launch.read_line() == "on"
    assert state_of(launch) in "SR"
    launch.order(native.cancel_order(0))
    launch.until(native.EMPTY)
    launch.close()


STRACE = "strace -qq -o /dev/null -p 1"


@pytest.mark.parametrize("trace", [STRACE, f"unshare -Ur {STRACE}"])
def test_it_cannot_be_traced(started: Keeper, trace: str) -> None:
    """Strace is refused, by EPERM; it attaches to a process of the job, so it is not strace that fails."""
    _, text = run_to_end(started.run("sh", "-c", f"timeout 5 {trace} 2>&1"))
    assert "Operation not permitted" in text
    control = "sleep 20 & timeout -s INT 0.5 strace -o /dev/null -p $! 2>&1; kill $!"
    assert "attached" in run_to_end(started.run("sh", "-c", control))[1]


def test_the_attacks_of_the_harness(program: Path, started: Keeper) -> None:
    """ptrace, process_vm_readv, /proc/1, capset, reboot: each fails, from a user namespace of the job as well."""
    ended, text = run_to_end(started.launch(job(program, "attack")).arm().go())
    assert (ended.status, text) == (0, "attacks failed\n")


def capabilities(status: str, name: str) -> set[int]:
    """The set of this name in /proc/PID/status."""
    mask = int(status.partition(f"{name}:")[2].split()[0], 16)
    return {number for number in range(64) if mask >> number & 1}


def test_a_set_uid_program_brings_nothing_back(program: Path, roots: Keeper) -> None:
    """Root's job becomes nobody and root again by a set-uid program: without what was dropped."""
    if os.getuid() != 0:
        pytest.skip("capability: root, to own a set-uid program")
    helper = program.parent / "cat"
    shutil.copy("/bin/cat", helper)
    helper.chmod(0o4755)
    drop = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    _, text = run_to_end(roots.run(*drop, str(helper), "/proc/self/status"))
    assert text.partition("Uid:")[2].split()[:2] == [str(NOBODY), "0"], (
        "the program is set-uid, or this says nothing"
    )
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert not {CAP_SYS_PTRACE, CAP_SYS_BOOT} & capabilities(text, name), name
    outside = subprocess.run(
        [*drop, helper, "/proc/self/status"], capture_output=True, text=True, check=True
    ).stdout
    assert CAP_SYS_PTRACE in capabilities(outside, "CapPrm"), "outside it does bring them back"


def test_a_file_with_capabilities_brings_nothing_back(program: Path, roots: Keeper) -> None:
    """Nor does a program with the capability in its file: it cannot even be executed."""
    helper = program.parent / "with-capability"
    shutil.copy("/bin/true", helper)
    if (
        shutil.which("setcap") is None
        or subprocess.run(["setcap", "cap_sys_ptrace+ep", helper], check=False).returncode
    ):
        pytest.skip("capability: setcap on the file system of /tmp")
    drop = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    ended, text = run_to_end(roots.run("sh", "-c", f"{' '.join(drop)} {helper} 2>&1"))
    assert ended.status != 0
    assert "Operation not permitted" in text
    assert subprocess.run([*drop, helper], check=False).returncode == 0, "outside it can"


def descriptors(pid: int) -> list[str]:
    """What a process has open, in order."""
    places = sorted(Path(f"/proc/{pid}/fd").iterdir(), key=lambda place: int(place.name))
    found = [str(place.readlink()) for place in places]
    return [text.split(":[")[0] if text.startswith(("pipe", "socket")) else text for text in found]


def test_its_descriptors_are_its_own(started: Keeper) -> None:
    """Null device, control, lifeline, the wrapper's pidfd, a signalfd; until the execve the pipe that sees it."""
    if os.getuid() != 0:
        pytest.skip("capability: root, to read another's descriptors")
    launch = started.launch(block("sh", "-c", "echo on; sleep 60")).arm()
    own = [os.devnull] * 3 + ["anon_inode:[signalfd]", "anon_inode:[pidfd]", "pipe", "socket"]
    assert sorted(descriptors(launch.pid)) == sorted([*own, "pipe"])
    launch.go()
    launch.read_line()
    places = Path(f"/proc/{launch.pid}/fd")
    wait_until(lambda: len(list(places.iterdir())) == len(own), what="the pipe is closed after the execve")
    assert sorted(descriptors(launch.pid)) == sorted(own)
    keepers = [os.devnull] * 3 + ["socket", "anon_inode:[pidfd]", "pipe", "pipe", "pipe"]
    assert descriptors(started.pid) == keepers
    launch.close()


def rss_kb(pid: int) -> int:
    """The exact number: the one of /proc/PID/status is counted per processor and late."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except PermissionError:
        pytest.skip("capability: CAP_SYS_PTRACE, to read smaps_rollup of an init")
    return int(text.partition("Rss:")[2].split()[0])


def test_its_memory(started: Keeper) -> None:
    """At most 64 kB while idle; what a large command took is given back once it has been executed."""
    environment = [f"{name}={text}" for name, text in os.environ.items()]
    usual = started.launch(block("sh", "-c", "echo on; sleep 60", env=environment)).arm().go()
    usual.read_line()
    wait_until(
        lambda: rss_kb(usual.pid) <= MOST_IDLE_KB,
        what=f"no more than {MOST_IDLE_KB} kB, not {rss_kb(usual.pid)}",
    )
    usual.close()
    large = started.launch(block("sh", "-c", "echo on; sleep 60", *LARGE)).arm()
    assert rss_kb(large.pid) > 1400, "a command of 1.5 MB is there to be given back"
    large.go().read_line()
    wait_until(
        lambda: rss_kb(large.pid) <= MOST_IDLE_KB,
        what=f"the memory is given back, not {rss_kb(large.pid)} kB",
    )
    large.close()


def test_ten_namespaces_deep(started: Keeper) -> None:
    """PID namespaces inside, ten deep, each with a process that ignores TERM, die with the init."""
    flags = "-pf" if started.uid == 0 else "-Urpf"
    inner = 'unshare $2 sh -c "$0" "$0" $((n-1)) $2 &'
    script = f'n=$1; trap "" TERM; if [ $n = 0 ]; then echo deep; else {inner} fi; sleep 60'
    launch = started.run("sh", "-c", script, script, "10", flags)
    assert launch.read_line() == "deep"
    signal.pidfd_send_signal(launch.pidfd, signal.SIGKILL)
    assert launch.gone()
    assert launch.read() == "", "the output is closed: nobody is left who holds it"
    launch.close()


MEMORY = ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max"))
"""Where a cgroup with a memory limit can be made: version 1, version 2."""


@contextlib.contextmanager
def memory_cgroup(limit_bytes: int) -> Iterator[Path]:
    """A cgroup with a memory limit; gone afterwards."""
    for base, limit in MEMORY:
        place = base / f"contain-test-{os.getpid()}"
        if _limited(place, limit, limit_bytes):
            break
    else:
        pytest.skip("capability: a cgroup with a memory controller")
    try:
        yield place
    finally:
        wait_until(lambda: _removed(place), what="the cgroup can be removed")


def _limited(place: Path, limit: str, limit_bytes: int) -> bool:
    try:
        place.mkdir()
    except OSError:
        return False
    try:
        (place / limit).write_text(str(limit_bytes))
    except OSError:
        place.rmdir()
        return False
    return True


def _removed(place: Path) -> bool:
    with contextlib.suppress(OSError):
        place.rmdir()
    return not place.exists()


def test_out_of_memory_inside(program: Path) -> None:
    """The kernel kills the command that ate the memory; the init reports it and lives to see everything gone."""
    with memory_cgroup(64 << 20) as place, keeper(program) as started:
        (place / "cgroup.procs").write_text(str(started.pid))
        launch = started.run("sh", "-c", "tail /dev/zero; echo $?; sleep 0.1; exit 4")
        ended, text = run_to_end(launch)
        assert "137" in text
        assert ended.status >> 8 == 4
        kill(started.pid)


def test_no_function_needs_much_stack(tmp_path: Path) -> None:
    """The command's process has 16 KiB of stack until its execve, however long its PATH is; no function takes 2 KiB."""
    compile_program(str(tmp_path / "bounded"), extra=("-Wstack-usage=2048",))
    with pytest.raises(subprocess.CalledProcessError):
        compile_program(str(tmp_path / "tiny"), extra=("-Wstack-usage=16",))


def test_a_path_of_many_directories(roots: Keeper) -> None:
    """Twenty thousand places to look at, and the last one has it."""
    paths = [f"/nowhere/{number}/true".encode() for number in range(20_000)] + [b"/bin/true"]
    ended, _ = run_to_end(roots.launch(native.command_block(paths, [b"true"], [])).arm().go())
    assert (ended.status, ended.error) == (0, 0)
