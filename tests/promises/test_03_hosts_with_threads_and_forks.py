"""Any of us may die. The thread that started a keeper may end, and a host that has forked may be killed.

The death signal of Linux follows the thread that cloned, and a forked child holds copies of every descriptor: both
have ended other people's jobs too early, or too late.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.session import ROOT, alive, kill, wait_file, wait_until
from tests.survivors import Watch, adopting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

JOBS = 50

HOST = f"""
import json, multiprocessing, os, select, sys, threading, time
sys.path.insert(0, {str(ROOT)!r})
from contain.backend import CommandEnded, Drained
from contain.job import Job
from contain.linux.backend import LinuxBackend

backend = LinuxBackend()

def in_a_thread(work, *args):
    found = []
    thread = threading.Thread(target=lambda: found.append(work(*args)))
    thread.start()
    thread.join()
    return found[0]

def launch(number, text):
    return backend.launch(Job(id=str(number), permit_id="0", command="sh", args=("-c", text)))

def opened(containment):
    assert containment.open_gate()
    return containment
"""

THREADS = """
# `early`: the thread ends before its job's init has armed itself.
early = sys.argv[1] == "early"
in_a_thread(backend.start)
jobs = {}
for number in range(int(sys.argv[2])):
    text = f"sleep 0.4; exit {number}"
    if early:
        jobs[number] = opened(in_a_thread(launch, number, text).ready())
    else:
        jobs[number] = in_a_thread(lambda: opened(launch(number, text).ready()))
assert threading.active_count() == 1
status, left = {}, dict(jobs)
while left:
    poll = select.poll()
    for job in left.values():
        for fd in job.fds():
            poll.register(fd, select.POLLIN)
    poll.poll()
    for number, job in list(left.items()):
        for event in job.events():
            if isinstance(event, CommandEnded):
                status[number] = os.waitstatus_to_exitcode(event.status)
            if isinstance(event, Drained):
                left.pop(number)
print(json.dumps(status))
"""

FORKS = """
backend.start()
before = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
if sys.argv[2] == "keeper":
    before.start()
job = opened(launch(0, f"setsid sh -c 'while :; do echo . >> {sys.argv[1]}; sleep 0.01; done' & wait").ready())
after = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
if sys.argv[2] == "job":
    after.start()
child = before if sys.argv[2] == "keeper" else after
print(json.dumps([child.pid, job.proof.pid]), flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def orphans() -> Iterator[None]:
    """Whatever loses its parent comes to this process, and must be gone at the end."""
    with adopting():
        yield


@pytest.mark.parametrize("when", ["early", "late"])
def test_a_keeper_and_its_jobs_outlive_their_threads(when: str) -> None:
    """Fifty jobs, each launched by a thread that ends, by a keeper of a thread that has ended, live their full time."""
    done = subprocess.run(
        [sys.executable, "-c", HOST + THREADS, when, str(JOBS)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {str(number): number for number in range(JOBS)}


@pytest.mark.parametrize("copied", ["keeper", "job"])
def test_a_forked_child_keeps_nothing_alive(tmp_path: Path, copied: str) -> None:
    """The host is killed; its child, forked beside a keeper or a job, lives on with copies, and nothing else."""
    file = tmp_path / "file"
    command = [sys.executable, "-c", HOST + FORKS, str(file), copied]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child, init = json.loads(process.stdout.readline())
        wait_file(file)
        watch = Watch(process.pid, but={child}).look()
        assert init in watch.births
        kill(process.pid)
        process.wait()
        watch.assert_gone()
        assert alive(child), "the child was to live on, with its copies"
        kill(child)
        wait_until(lambda: not alive(child), what="the child has ended")


def test_a_death_signal_does_follow_the_thread() -> None:
    """The control: what a thread starts with a death signal dies with that thread, as a job would without a keeper."""
    text = """
import ctypes, signal, subprocess, threading
prctl, found = ctypes.CDLL(None).prctl, []
def start():
    found.append(subprocess.Popen(["sleep", "50"], preexec_fn=lambda: prctl(1, signal.SIGKILL, 0, 0, 0)))
thread = threading.Thread(target=start)
thread.start()
thread.join()
print(found[0].wait())
"""
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=50, check=False
    )
    assert done.stdout == "-9\n", done.stderr
