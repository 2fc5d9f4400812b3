"""``contain.run`` and ``contain.start``: like subprocess, with nothing left."""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import contain
from contain import errors
from receipts import NamespaceInit
from tests.session import ROOT, WAIT_S, alive, inspect, wait_file, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable


def sh(text: str, *args: str) -> list[str]:
    """A shell command."""
    return ["sh", "-c", text, "sh", *args]


# -- run ---------------------------------------------------------------------------------------------------------------


def test_run_is_like_subprocess_run(receipts: Path) -> None:
    """The same words, and the same answers, for input, output, environment, directory and code."""
    same: dict[str, Any] = {
        "input": "given\n",
        "capture_output": True,
        "text": True,
        "env": {"A": "1", "PATH": os.environ["PATH"]},
        "cwd": "/",
    }
    command = sh('cat; pwd; echo "$A$1"; echo no >&2; exit 3', "2")
    ours = contain.run(command, receipts=receipts, **same)
    theirs = subprocess.run(command, check=False, **same)
    assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.returncode, theirs.stdout, theirs.stderr)
    assert ours.args == tuple(theirs.args)


def test_what_is_run_has_a_receipt_that_is_released(receipts: Path) -> None:
    """And the same is on disk."""
    done = contain.run(["true"], receipts=receipts)
    assert (done.receipt.state, done.receipt.empty, done.outcome.cause) == ("released", True, "exited")
    assert done.usage is not None
    assert done.usage.processes == 1
    code, (found,) = inspect(receipts, done.id)
    assert (code, found["state"], found["outcome"]["code"]) == (0, "released", 0)


@pytest.mark.parametrize("data", [b"", b"\x00\xff" * 500_000])
def test_bytes_of_any_kind_and_number_go_through(data: bytes, receipts: Path) -> None:
    """More than any pipe holds, in both directions at once."""
    assert contain.run(["cat"], input=data, capture_output=True, receipts=receipts).stdout == data


def test_input_that_nobody_reads_is_no_fault(receipts: Path) -> None:
    """As with subprocess."""
    assert contain.run(["true"], input=b"x" * 1_000_000, receipts=receipts).returncode == 0


def test_a_signal_is_a_negative_code(receipts: Path) -> None:
    """As with subprocess; the outcome says more."""
    done = contain.run(sh("kill -KILL $$"), receipts=receipts)
    assert (done.returncode, done.outcome.cause) == (-9, "signaled")


def test_check_raises_and_tells_all(receipts: Path) -> None:
    """A typed error with what was captured, which travels to other processes."""
    with pytest.raises(contain.CommandFailed) as raised:
        contain.run(sh("echo out; exit 4"), capture_output=True, check=True, receipts=receipts)
    assert raised.value.finished.returncode == 4
    assert raised.value.finished.stdout == b"out\n"
    again = pickle.loads(pickle.dumps(raised.value))  # noqa: S301 - our own
    assert again.finished == raised.value.finished


@pytest.mark.parametrize(
    ("command", "error"), [("/no/such/command", FileNotFoundError), ("/etc/passwd", PermissionError)]
)
def test_what_cannot_be_executed_is_an_oserror(command: str, error: type[OSError], receipts: Path) -> None:
    """The one that it would have been with subprocess; the receipt is released."""
    with pytest.raises(error):
        contain.run([command], receipts=receipts)
    assert inspect(receipts)[1][0]["outcome"]["cause"] == "exec-failed"


def test_a_timeout_ends_the_tree_first(receipts: Path, tmp_path: Path) -> None:
    """With what was printed until then; deaf ones are killed after the grace."""
    file = tmp_path / "pid"
    command = sh(f"trap '' TERM; echo soon; sleep 60 & echo $! > {file}; wait; sleep 60")
    with pytest.raises(contain.CommandTimedOut) as raised:
        contain.run(command, capture_output=True, text=True, timeout=0.5, grace_s=0.2, receipts=receipts)
    finished = raised.value.finished
    assert (finished.stdout, finished.outcome.cause, finished.receipt.empty) == ("soon\n", "timed-out", True)


def test_a_reader_does_not_hang_on_a_grandchild(receipts: Path) -> None:
    """What holds the pipe open is ended with the tree; leftovers are named."""
    done = contain.run(sh("setsid sleep 60 & echo done"), capture_output=True, grace_s=2, receipts=receipts)
    assert done.stdout == b"done\n"
    assert done.leftovers is not None
    assert (done.leftovers.names, done.leftovers.signal) == (("sleep",), "TERM")


def test_a_reader_does_not_hang_on_a_copy_outside(receipts: Path) -> None:
    """A forked child of this process that holds the write end of the pipe is not waited for."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(write)
        os.read(read, 1)
        os._exit(0)
    os.close(read)
    try:
        assert contain.run(["echo", "x"], capture_output=True, receipts=receipts).stdout == b"x\n"
    finally:
        os.close(write)
        os.waitpid(child, 0)


def test_streams_of_the_caller(receipts: Path, tmp_path: Path) -> None:
    """Files, descriptors, DEVNULL, and standard error where standard output is."""
    file = tmp_path / "out"
    with file.open("wb") as sink:
        contain.run(sh("echo one; echo two >&2"), stdout=sink, stderr=contain.STDOUT, receipts=receipts)
        contain.run(sh("echo three"), stdout=sink.fileno(), receipts=receipts)
        contain.run(sh("echo four; cat"), stdin=contain.DEVNULL, stdout=contain.DEVNULL, receipts=receipts)
        contain.run(sh("echo five"), stdout=subprocess.DEVNULL, receipts=receipts)
    assert file.read_text() == "one\ntwo\nthree\n"


def test_limits_privileges_network_and_descriptors(receipts: Path) -> None:
    """What a job may be asked to be reaches it."""
    read, write = os.pipe()
    done = contain.run(
        sh(f"ulimit -Sn; grep NoNewPrivs /proc/self/status; echo x > /proc/self/fd/{write}"),
        capture_output=True,
        text=True,
        limits=contain.Limits(open_files=77),
        no_new_privs=True,
        network="none",
        pass_fds=[write],
        receipts=receipts,
    )
    os.close(write)
    assert done.stdout.splitlines()[:2] == ["77", "NoNewPrivs:\t1"]
    assert os.read(read, 10) == b"x\n"
    os.close(read)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda r: contain.run("true", receipts=r), TypeError),
        (lambda r: contain.run([], receipts=r), ValueError),
        (lambda r: contain.run(["true"], no_such=1, receipts=r), TypeError),  # type: ignore[call-arg]
        (lambda r: contain.run(["true"], network="some", receipts=r), ValueError),
        (lambda r: contain.run(["true"], input=b"", stdin=0, receipts=r), ValueError),
        (lambda r: contain.run(["true"], stdin=contain.PIPE, receipts=r), ValueError),
        (lambda r: contain.run(["true"], stdout=-7, receipts=r), errors.ImpossibleRequest),
        (lambda r: contain.run(["a\0b"], receipts=r), errors.ImpossibleRequest),
        (lambda r: contain.run(["true"], cwd="/no/such", receipts=r), errors.ImpossibleRequest),
        (lambda r: contain.run(["true"], receipts=r / "no" / "such"), errors.UnsafePlace),
        (lambda r: contain.run(["true"], timeout=-1, receipts=r), ValueError),
    ],
)
def test_what_cannot_be_is_refused(
    call: Callable[[Path], object], error: type[Exception], receipts: Path
) -> None:
    """Before anything runs; no descriptor is left over, and the next job runs."""
    contain.run(["true"], receipts=receipts)
    gc.collect()  # what other tests have dropped is closed now, and not while this one counts
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(error):
        call(receipts)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert contain.run(["true"], receipts=receipts).returncode == 0
    assert len(list(receipts.glob("*.json"))) == 2


def test_errors_travel_to_other_processes() -> None:
    """A pool of workers hands them back whole."""
    error = errors.SetupFailed("what", advice="do", step="clone", detail="EAGAIN")
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(again), str(again), again.step, again.detail) == (type(error), str(error), "clone", "EAGAIN")


# -- start -------------------------------------------------------------------------------------------------------------


def test_a_conversation(receipts: Path) -> None:
    """Pipes are files, of text where that is asked for."""
    with contain.start(["cat"], stdin=contain.PIPE, stdout=contain.PIPE, text=True, receipts=receipts) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdin.write("hello\n")
        assert job.stdout.readline() == "hello\n"
        assert (job.over, job.outcome, job.returncode) == (False, None, None)
        job.stdin.close()
        assert job.wait().returncode == 0
        assert (job.over, job.returncode) == (True, 0)


def test_leaving_the_context_ends_the_tree(receipts: Path) -> None:
    """Also by an exception, which goes on."""
    job = contain.start(sh("setsid sleep 60 & sleep 60"), receipts=receipts)
    with pytest.raises(ZeroDivisionError), job:
        raise ZeroDivisionError
    assert job.receipt is not None
    assert isinstance(job.receipt.proof, NamespaceInit)
    assert (job.receipt.state, job.receipt.empty) == ("released", True)
    assert job.outcome is not None
    assert job.outcome.cause == "canceled"
    assert not alive(job.receipt.proof.pid, job.receipt.proof.start_ticks)


def test_wait_has_a_timeout_of_its_own(receipts: Path) -> None:
    """The job goes on."""
    with contain.start(["sleep", "60"], receipts=receipts) as job:
        with pytest.raises(TimeoutError):
            job.wait(0.05)
        assert not job.over
        job.cancel(0)
        assert job.wait(WAIT_S).outcome.by == "host"
        job.cancel()  # of a job that is over: nothing


def test_signals_reach_the_command_alone(receipts: Path, tmp_path: Path) -> None:
    """Not its children; the command decides."""
    ready = tmp_path / "ready"
    text = f"trap 'echo usr1; exit 5' USR1; (trap 'echo child' USR1; sleep 60) & echo x > {ready}; wait"
    with contain.start(sh(text), stdout=contain.PIPE, grace_s=0, receipts=receipts) as job:
        wait_file(ready)
        job.signal(signal.SIGUSR1)
        assert job.wait(WAIT_S).returncode == 5
        assert job.stdout is not None
        assert job.stdout.read() == b"usr1\n"


def test_the_end_of_the_command_is_known_before_the_trees(receipts: Path) -> None:
    """While leftovers have their grace, the outcome is there."""
    with contain.start(sh("sleep 60 & exit 6"), grace_s=30, receipts=receipts) as job:
        wait_until(lambda: job.outcome is not None)
        assert (job.returncode, job.over) == (6, False)
        job.cancel(0)
        assert job.wait(WAIT_S).returncode == 6


def test_many_jobs_and_one_thread(receipts: Path) -> None:
    """A hundred at once, from a hundred threads; this process has one thread and one child for all of them."""
    with ThreadPoolExecutor(100) as pool:
        handles = list(
            pool.map(lambda _: contain.start(["cat"], stdin=contain.PIPE, receipts=receipts), range(100))
        )
    ours = [thread for thread in threading.enumerate() if thread.name == "contain"]
    assert len(ours) == 1
    children = Path(f"/proc/self/task/{ours[0].native_id}/children").read_text().split()
    assert len([pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "contain-keeper\n"]) == 1
    for handle in handles:
        assert handle.stdin is not None
        handle.stdin.close()
    assert {handle.wait(WAIT_S).outcome.cause for handle in handles} == {"exited"}


def test_workers_that_end_do_not_end_their_jobs(receipts: Path) -> None:
    """The death of a thread is no death: a job that was started by a worker lives its full time."""
    handles: list[contain.Handle] = []

    def work() -> None:
        handles.append(contain.start(sh("sleep 0.3; exit 9"), receipts=receipts))

    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [handle.wait(WAIT_S).returncode for handle in handles] == [9] * 20


THOUSAND = """
import contain, os, resource, select, sys, threading
soft, hard = int(sys.argv[2]), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
gate_read, gate_write = os.pipe()
handles, count = [], int(sys.argv[3])

def work(number):
    text = f"read line; test $(ulimit -Sn) = {soft} && exit {number % 100 + 1}"
    handles.append((number, contain.start(["sh", "-c", text], stdin=gate_read, receipts=sys.argv[1])))

for first in range(0, count, 50):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(first, first + 50)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
assert threading.active_count() == 2
assert not any(handle.over for _, handle in handles), "one ended too early"
os.close(gate_read)
os.close(gate_write)
print(sum(handle.wait(50).returncode == number % 100 + 1 for number, handle in handles))
"""


@pytest.mark.timeout(180)
def test_a_thousand_of_a_thousand_jobs_live_their_full_time(receipts: Path) -> None:
    """Started by threads that end, under a soft limit of 1024 open files, which each job gets back."""
    done = subprocess.run(
        [sys.executable, "-c", THOUSAND, str(receipts), "1024", "1000"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("1000\n", 0), done.stderr


def test_a_receipt_that_the_disk_does_not_take_is_an_error(receipts: Path) -> None:
    """Nothing ran, and nothing is left."""
    blocked = receipts / "not-a-directory"
    blocked.write_text("")
    with pytest.raises(errors.UnsafePlace):
        contain.run(["true"], receipts=blocked)


def test_handles_of_many_threads_wait_for_one_job(receipts: Path) -> None:
    """Everybody who waits is told."""
    with contain.start(["cat"], stdin=contain.PIPE, receipts=receipts) as job, ThreadPoolExecutor(8) as pool:
        waits = [pool.submit(job.wait) for _ in range(8)]
        assert job.stdin is not None
        job.stdin.close()
        assert {wait.result(WAIT_S).returncode for wait in waits} == {0}


def test_a_pipe_can_be_polled(receipts: Path) -> None:
    """Our ends are ordinary pipes."""
    with contain.start(["echo", "x"], stdout=contain.PIPE, receipts=receipts) as job:
        assert job.stdout is not None
        assert select.select([job.stdout], [], [], WAIT_S)[0]
        assert job.stdout.read() == b"x\n"
