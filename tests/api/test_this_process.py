"""The process that uses the API: its forks, its ends, its interrupts, and what it keeps of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import contain
from tests.session import ROOT, WAIT_S, alive, inspect, wait_file


def python(text: str, *args: str) -> subprocess.CompletedProcess[str]:
    """A program that uses the API, in an interpreter of its own."""
    return subprocess.run(
        [sys.executable, "-c", text, *args],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )


def test_a_forked_child_has_nothing_of_ours_and_an_engine_of_its_own(receipts: Path) -> None:
    """No descriptor, no pipe of a job; jobs of the parent are out of its reach, and it runs its own."""
    with contain.start(["cat"], stdin=contain.PIPE, stdout=contain.PIPE, receipts=receipts) as job:
        read, write = os.pipe()
        child = os.fork()
        if not child:
            os._exit(_in_child(job, receipts, write))
        os.close(write)
        said = os.read(read, 10_000).decode()
        os.close(read)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, said
        assert not job.over
        assert job.stdin is not None
        job.stdin.close()  # the child has no copy left: the job reads the end
        assert job.wait(WAIT_S).returncode == 0
    assert inspect(receipts)[0] == 0


def _in_child(job: contain.Handle, receipts: Path, out: int) -> int:
    try:
        found = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.exists()]
        assert [link for link in found if ".lock" in link or "pidfd" in link or str(receipts) in link] == []
        for what in (job.cancel, job.wait):
            with pytest.raises(RuntimeError):
                what()
        with job:
            pass
        done = contain.run(["echo", "child"], capture_output=True, receipts=receipts)
        assert done.stdout == b"child\n"
        assert done.receipt.wrapper_pid == os.getpid()
    except BaseException as error:  # noqa: BLE001 - told to the parent
        os.write(out, repr(error).encode())
        return 1
    return 0


FORKS = """
import contain, os, sys, threading
stop = threading.Event()
def work():
    while not stop.is_set():
        assert contain.run(["true"], capture_output=True, receipts=sys.argv[1]).returncode == 0
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
bad = 0
for _ in range(20):
    child = os.fork()
    if not child:
        links = []
        for fd in os.listdir("/proc/self/fd"):
            try: links.append(os.readlink(f"/proc/self/fd/{fd}"))
            except FileNotFoundError: pass
        ours = [link for link in links for word in (".lock", "pidfd", "eventpoll", "receipts") if word in link]
        code = contain.run(["sh", "-c", "exit 7"], receipts=sys.argv[1]).returncode
        os._exit(0 if code == 7 and not ours else 1)
    bad += os.waitpid(child, 0)[1] != 0
stop.set()
for thread in threads: thread.join()
print(bad)
"""


def test_forks_at_any_moment(receipts: Path) -> None:
    """While other threads launch: no child has a copy of a lock or a pidfd, and each runs a job of its own."""
    done = python(FORKS, str(receipts))
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert inspect(receipts)[0] == 0


UNTOUCHED = """
import contain, ctypes, os, resource, signal, sys
def looks():
    subreaper = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(subreaper), 0, 0, 0)
    handlers = [signal.getsignal(n) for n in signal.valid_signals()]
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    limit, wakeup = resource.getrlimit(resource.RLIMIT_NOFILE), signal.set_wakeup_fd(-1)
    return subreaper.value, handlers, mask, limit, wakeup, os.getcwd(), os.umask(0o22)
before = looks()
contain.run(["true"], receipts=sys.argv[1])
print(before == looks())
"""


def test_the_callers_process_is_left_as_it_is(receipts: Path) -> None:
    """No subreaper, no handler, no mask, no wake-up descriptor; with few jobs no limit either."""
    done = python(UNTOUCHED, str(receipts))
    assert (done.stdout, done.stderr) == ("True\n", "")


ENDS = """
import contain, os, sys
job = contain.start(["sh", "-c", "setsid sleep 60 & sleep 60"], receipts=sys.argv[1])
print(job.id, flush=True)
if sys.argv[2] == "exit": sys.exit(3)
if sys.argv[2] == "error": raise ZeroDivisionError
if sys.argv[2] == "_exit": os._exit(3)
"""


@pytest.mark.parametrize(("how", "by"), [("exit", "exit"), ("error", "exit"), ("_exit", None)])
def test_the_interpreters_end_ends_every_job(how: str, by: str | None, receipts: Path) -> None:
    """At an ordinary exit with its receipt; at os._exit by the kernel, and inspect releases it."""
    done = python(ENDS, str(receipts), how)
    assert done.returncode == (1 if how == "error" else 3)
    code, (found,) = inspect(receipts, done.stdout.strip())
    assert (code, found["state"], found["empty"]) == (0, "released", True)
    assert found["outcome"].get("by") == by
    assert not alive(found["namespaceInit"]["pid"], found["namespaceInit"]["startTicks"])


INTERRUPTED = """
import contain, sys
print("ready", flush=True)
try:
    contain.run(["sh", "-c", "echo $$ > " + sys.argv[2] + "; sleep 60"], receipts=sys.argv[1])
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_the_tree_first(receipts: Path, tmp_path: Path) -> None:
    """KeyboardInterrupt goes on when the tree is gone."""
    file = tmp_path / "started"
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(receipts), str(file)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        wait_file(file)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=WAIT_S)
    assert said.split() == ["ready", "interrupted"]
    _, (found,) = inspect(receipts)
    assert (found["state"], found["outcome"]["cause"]) == ("released", "canceled")


def test_the_import_is_cheap() -> None:
    """``import contain`` loads nothing; the command line does not load the API."""
    text = "import sys; before = set(sys.modules); import contain; print(sorted(set(sys.modules) - before))"
    assert python(text).stdout in ("['contain']\n", "['__future__', 'contain']\n")
    assert set(contain.__all__) <= set(dir(contain))
    for name in contain.__all__:
        assert getattr(contain, name) is not None
