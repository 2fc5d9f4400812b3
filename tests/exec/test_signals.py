"""A signal to ``contain exec`` is a signal to its command; TERM is the end of its tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import receipt_files
from tests.exec.runner import Started, ids, line, run
from tests.session import WAIT_S, inspect

if TYPE_CHECKING:
    from pathlib import Path

TRAP = "trap 'echo got {0}; exit 9' {0}; echo ready; while :; do sleep 0.05; done"
HANDED_ON = ("HUP", "INT", "QUIT", "USR1", "USR2", "CONT", "ALRM")


@pytest.mark.parametrize("name", HANDED_ON)
def test_a_signal_reaches_the_command(receipts: Path, name: str) -> None:
    """The command hears it and decides; its status is the status."""
    with Started(receipts, "sh", "-c", TRAP.format(name)) as started:
        started.until("ready")
        started.process.send_signal(getattr(signal, f"SIG{name}"))
        assert started.finish() == (9, f"ready\ngot {name}\n", "")


@pytest.mark.parametrize("name", ["HUP", "INT", "QUIT", "USR1"])
def test_a_signal_that_nobody_handles(receipts: Path, name: str) -> None:
    """It ends the command as it would end it bare."""
    number = getattr(signal, f"SIG{name}")
    with Started(receipts, "sh", "-c", "ulimit -c 0; echo ready; exec sleep 1000") as started:
        started.until("ready")
        started.process.send_signal(number)
        assert started.finish().status == 128 + number


def test_a_signal_is_for_the_command_alone(receipts: Path) -> None:
    """Its children hear of it what the command tells them, as under a shell."""
    script = """
(trap 'echo child' USR1; echo child ready; while :; do sleep 0.05; done) &
trap 'echo parent; exit 0' USR1; echo parent ready; while :; do sleep 0.05; done
"""
    with Started(receipts, "sh", "-c", script, options=("--leftovers", "0")) as started:
        started.until("child ready")
        started.until("parent ready")
        started.process.send_signal(signal.SIGUSR1)
        done = started.finish()
    assert done.status == 0
    assert "parent\n" in done.out.replace("parent ready\n", "")
    assert "child\n" not in done.out.replace("child ready\n", "")


def test_term_ends_the_whole_tree(receipts: Path) -> None:
    """Everybody gets the TERM, stopped ones too, and the command's status is the status."""
    script = """
(trap 'echo child; exit 0' TERM; echo child ready; while :; do sleep 0.05; done) &
sleep 1000 & kill -STOP $!
trap 'wait %1; echo parent; exit 3' TERM; echo parent ready; while :; do sleep 0.05; done
"""
    with Started(receipts, "bash", "-c", script) as started:
        started.until("child ready")
        started.until("parent ready")
        started.process.terminate()
        done = started.finish()
    assert done.status == 3
    assert done.out.splitlines()[-2:] == ["child", "parent"]
    [job_id] = ids(receipts)
    document = receipt_files.read(receipts, job_id)
    assert (document["outcome"]["cause"], document["outcome"]["by"]) == ("canceled", "SIGTERM")


def test_term_of_the_deaf(receipts: Path) -> None:
    """KILL after ``--kill-after``: the status of a killed command."""
    deaf = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
    with Started(receipts, "sh", "-c", deaf, options=("--kill-after", "100ms")) as started:
        started.until("ready")
        started.process.terminate()
        assert started.finish().status == 128 + signal.SIGKILL


def test_a_signal_before_the_command_runs(receipts: Path) -> None:
    """Sent at once after the start: it is not lost, and the wrapper does not die of it half-way."""
    for _ in range(20):
        with Started(receipts, "sleep", "1000") as started:
            os.kill(started.process.pid, signal.SIGTERM)
            done = started.finish()
        # Python itself dies of it while it starts; later it is a cancel.
        assert done.status in (-signal.SIGTERM, 128 + signal.SIGTERM, 128 + signal.SIGKILL)
    assert inspect(receipts)[0] == 0


CALLERS = {
    "ignores SIGCHLD": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "ignores SIGPIPE": "signal.signal(signal.SIGPIPE, signal.SIG_IGN)",
    "ignores everything": "[signal.signal(n, signal.SIG_IGN) for n in signal.valid_signals() - {9, 19, 32, 33}]",
    "blocks everything": "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())",
}


@pytest.mark.parametrize("change", CALLERS.values(), ids=CALLERS)
def test_masks_and_dispositions_are_reset(receipts: Path, change: str) -> None:
    """Whatever the caller ignores or blocks, the command starts as from a fresh login."""
    script = f"import os, signal, sys; {change}; os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-c", script, *line(receipts), "cat", "/proc/self/status"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    fields = dict(text.split(":\t", 1) for text in done.stdout.splitlines() if ":\t" in text)
    assert {name: int(fields[name], 16) for name in ("SigBlk", "SigIgn")} == {"SigBlk": 0, "SigIgn": 0}
    assert run(receipts, "sh", "-c", "exit 5").status == 5


def test_nohup_is_kept(receipts: Path) -> None:
    """A caller that ignores HUP wants the job to outlive its terminal: none is handed on."""
    with Started(
        receipts,
        "sh",
        "-c",
        TRAP.format("HUP") + "\n",
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    ) as started:
        started.until("ready")
        started.process.send_signal(signal.SIGHUP)
        started.process.send_signal(signal.SIGTERM)
        done = started.finish()
    assert (done.status, done.out) == (128 + signal.SIGTERM, "ready\n")
