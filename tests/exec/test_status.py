"""``contain exec`` exits as the command does, and says in one line what a person must know."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import receipt_files
from tests.exec.runner import ID, Started, ids, line, run
from tests.session import CONTAIN, WAIT_S, new_id
from tests.survivors import Watch

FAILED = 125


def outcome(receipts: Path) -> dict[str, object]:
    """What the only receipt says."""
    [job_id] = ids(receipts)
    document = receipt_files.read(receipts, job_id)
    assert (document["state"], document["empty"]) == ("released", True)
    found: dict[str, object] = document["outcome"]
    return found


@pytest.mark.parametrize("code", [0, 1, 2, 64, 124, 125, 126, 127, 128, 130, 255])
def test_the_status_is_the_commands(receipts: Path, code: int) -> None:
    """Every code comes through, and nothing is said."""
    assert run(receipts, "sh", "-c", f"exit {code}") == (code, "", "")
    assert outcome(receipts) == {"cause": "exited", "code": code, "core": False}


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGPIPE, signal.SIGUSR1]
)
def test_a_signal_is_128_and_its_number(receipts: Path, number: int) -> None:
    """As a shell says it."""
    assert run(receipts, "sh", "-c", f"ulimit -c 0; kill -{int(number)} $$") == (128 + number, "", "")
    assert (outcome(receipts)["cause"], outcome(receipts)["signal"]) == ("signaled", number)


@pytest.mark.parametrize(("command", "status"), [("no-such-command", 127), ("/etc/passwd", 126), ("/", 126)])
def test_a_command_that_cannot_be_executed(receipts: Path, command: str, status: int) -> None:
    """The codes of every shell, with the reason."""
    done = run(receipts, command)
    assert (done.status, done.out) == (status, "")
    assert done.err.startswith("contain: ")
    assert done.err.count("\n") == 1
    assert outcome(receipts)["cause"] == "exec-failed"


WRONG = {
    "no command": (),
    "an unknown option": ("--frobnicate", "--", "true"),
    "no value": ("--timeout",),
    "a bad time": ("--timeout", "soon", "--", "true"),
    "a negative time": ("--timeout", "-1", "--", "true"),
    "a bad size": ("--memory", "0", "--", "true"),
    "not a number": ("--memory", "nan", "--", "true"),
    "a bad id": ("--id", "7", "--", "true"),
    "a closed descriptor": ("--keep-fd", "77", "--", "true"),
    "a bad network": ("--net", "some", "--", "true"),
    "a bad variable": ("--env", "nothing", "--", "true"),
    "no such capability": ("--cap-drop", "net_row", "--", "true"),
    "an empty command": ("--", ""),
    "no directory": ("--cwd", "/nonesuch", "--", "true"),
    "a session that moves the cursor": ("--session", "a\x1b[2J", "--", "true"),
    "a long holder": ("--holder", "x" * 201, "--", "true"),
}


@pytest.mark.parametrize("words", WRONG.values(), ids=WRONG)
def test_wrong_words_run_nothing(receipts: Path, words: tuple[str, ...]) -> None:
    """Our own failures are 125, say what is wrong and what to do, and leave no receipt."""
    done = subprocess.run(
        [*CONTAIN, "exec", "--no-budget", "--receipts", str(receipts), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert (done.returncode, done.stdout) == (FAILED, "")
    assert done.stderr.startswith("contain: ")
    assert list(ids(receipts)) == []


def test_a_used_id_runs_nothing(receipts: Path, tmp_path: Path) -> None:
    """One id, one job."""
    job_id = new_id()
    assert run(receipts, "true", options=("--id", job_id)).status == 0
    done = run(receipts, "touch", str(tmp_path / "ran"), options=("--id", job_id))
    assert (done.status, (tmp_path / "ran").exists()) == (FAILED, False)


def test_an_unsafe_place_runs_nothing(receipts: Path, tmp_path: Path) -> None:
    """The receipt comes first."""
    receipts.chmod(0o777)
    done = run(receipts, "touch", str(tmp_path / "ran"))
    receipts.chmod(0o700)
    assert (done.status, (tmp_path / "ran").exists()) == (FAILED, False)


def test_a_timeout(receipts: Path) -> None:
    """As timeout(1): 124, whatever the command makes of the TERM."""
    done = run(receipts, "sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait", options=("--timeout", "200ms"))
    assert (done.status, outcome(receipts)["cause"]) == (124, "timed-out")
    assert "timed out" in done.err


def test_a_timeout_of_a_deaf_command(receipts: Path) -> None:
    """TERM, and after the asked time KILL."""
    deaf = ("sh", "-c", "trap '' TERM; while :; do sleep 1; done")
    done = run(receipts, *deaf, options=("--timeout", "100ms", "--kill-after", "100ms"))
    assert (done.status, outcome(receipts)["cause"]) == (124, "timed-out")
    assert outcome(receipts)["lastSignal"] == "KILL"


def test_output_input_and_words_pass_through(receipts: Path) -> None:
    """Bytes as they are, in both directions and on both outputs."""
    data = bytes(range(256)) * 4096
    done = subprocess.run(
        [*line(receipts), "sh", "-c", "cat; cat /proc/self/mounts >&2"],
        input=data,
        capture_output=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0
    assert done.stdout == data
    assert b" / " in done.stderr


def test_a_reader_that_leaves(receipts: Path) -> None:
    """The command gets its SIGPIPE, as in any pipeline."""
    script = f"{' '.join(line(receipts))} yes | head -1"
    done = subprocess.run(
        ["bash", "-c", script + '; echo "${PIPESTATUS[0]}"'], capture_output=True, text=True, check=False
    )
    assert done.stdout == f"y\n{128 + signal.SIGPIPE}\n"


def test_a_writer_without_end(receipts: Path) -> None:
    """``yes | contain exec -- head -1`` ends, and yes with it."""
    script = f"yes | {' '.join(line(receipts))} head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "y\n", "")


def test_a_reader_never_hangs_on_a_grandchild(receipts: Path) -> None:
    """``$(...)`` returns when the tree is gone, with the command's status; what was left is named."""
    done = run(receipts, "sh", "-c", "setsid sleep 1000 & exit 7")
    assert (done.status, done.out) == (7, "")
    assert done.err == "contain: 1 process outlived the command (sleep); ended by TERM\n"
    [job_id] = ids(receipts)
    assert receipt_files.read(receipts, job_id)["leftovers"] == {
        "count": 1,
        "names": ["sleep"],
        "signal": "TERM",
    }


def test_deaf_leftovers(receipts: Path) -> None:
    """KILL comes after ``--kill-after``, and is named."""
    deaf = "(trap '' TERM; while :; do sleep 1; done) & exit 0"
    done = run(receipts, "sh", "-c", deaf, options=("--leftovers", "100ms", "--kill-after", "100ms"))
    assert (done.status, done.out) == (0, "")
    assert "outlived the command" in done.err
    assert done.err.endswith("; ended by KILL\n")


def test_leftovers_that_end_by_themselves(receipts: Path) -> None:
    """They are given their time, and are named all the same."""
    done = run(receipts, "sh", "-c", "(sleep 0.2; echo late) & exit 0", options=("--leftovers", "20s"))
    assert (done.status, done.out) == (0, "late\n")
    assert "ended without help" in done.err


def test_what_it_took(receipts: Path) -> None:
    """``--summary`` for a person, ``--json`` for a program: the receipt's own words."""
    done = run(receipts, "true", options=("--summary",))
    assert done.err.startswith("contain: exited 0, wall ")
    assert ID.search(done.err)
    done = run(receipts, "sh", "-c", "exit 3", options=("--json",))
    found = json.loads(done.err)
    assert (found["event"], found["empty"], found["outcome"]["code"]) == ("released", True, 3)
    assert set(found["usage"]) >= {"wallUs", "userUs", "systemUs", "processes", "readBytes", "writtenBytes"}


@pytest.mark.parametrize(
    "command", [("sleep", "1000"), ("sh", "-c", "setsid sh -c 'trap \"\" TERM HUP; sleep 1000' & sleep 1000")]
)
def test_killed_by_kill(receipts: Path, command: tuple[str, ...]) -> None:
    """SIGKILL of the wrapper leaves nothing, and ``inspect`` releases the receipt."""
    with Started(receipts, "sh", "-c", 'echo here; exec "$@"', "-", *command) as started:
        started.until("here")
        watch = Watch(started.process.pid).look()
        assert "contain-init" in {_name(pid) for pid in watch.births}
        started.process.kill()
        started.process.wait()
        watch.assert_gone()
    done = subprocess.run([*CONTAIN, "inspect", str(receipts)], capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "released")


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def test_the_memory_of_the_tree_is_sampled_where_it_is_asked_for(receipts: Path) -> None:
    """Two processes of 64 MiB are 128, which the largest process alone would not tell; without a wish nobody looks."""
    big = "import time; x = bytearray(64 << 20); time.sleep(2.5)"
    both = f"{sys.executable} -c '{big}' & {sys.executable} -c '{big}'; wait"
    found = json.loads(run(receipts, "sh", "-c", both, options=("--json",)).err)["usage"]
    assert (found["memorySource"], found["peakMemoryBytes"] >= 128 << 20) == ("sampled", True)
    run(receipts, "true")
    sources = {receipt_files.read(receipts, job_id)["usage"]["memorySource"] for job_id in ids(receipts)}
    assert sources == {"sampled", "largest-process"}
