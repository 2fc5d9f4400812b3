"""The example hosts of docs/examples work as they stand: status, cancel, permit, and a wrapper that dies.

Both are run by every test: what one promises, the other does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.session import (
    ROOT,
    WAIT_S,
    alive,
    descendants,
    hold_namespace,
    in_namespace,
    installed,
    kill,
    wait_file,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = ("host.py", "host.sh")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `contain` is installed."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    installed(bin_dir)
    return f"{bin_dir}:{os.environ['PATH']}"


@pytest.fixture(params=EXAMPLES)
def host(request: pytest.FixtureRequest, path: str, tmp_path: Path) -> Iterator[Host]:
    """An example that is not started yet."""
    found = Host(ROOT / "docs" / "examples" / request.param, tmp_path / "work", path)
    yield found
    found.close()


class Host:
    """One example, its directory and its process."""

    def __init__(self, program: Path, directory: Path, path: str) -> None:
        """Starts nothing."""
        self.directory = directory
        self.program = program
        self.env = {**os.environ, "PATH": path}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """``DIR COMMAND ARGS...``."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        process = subprocess.Popen(
            [self.program, self.directory, *command],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.processes.append(process)
        return process

    def run(self, *command: str) -> tuple[int, bytes]:
        """To its end; the status, and what the command printed, which is on standard error."""
        process = self.start(*command)
        _, errors = process.communicate(timeout=WAIT_S)
        return process.returncode, errors

    def permits(self) -> list[Path]:
        """The permits that are out."""
        return sorted((self.directory / "permits").iterdir())

    def close(self) -> None:
        """Ends what a failed test left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()


def test_the_commands_status_is_the_hosts(host: Host) -> None:
    """Its code, 128 and its signal, 125 where it has none; and no permit is out afterwards."""
    assert host.run("sh", "-c", "exit 7")[0] == 7
    assert host.run("sh", "-c", "kill -KILL $$")[0] == 128 + signal.SIGKILL
    assert host.run("/no/such/command")[0] == 125
    assert host.permits() == []
    assert len(list((host.directory / "receipts").glob("*.json"))) == 3


@pytest.mark.parametrize(
    "text", ["", "plain", 'quo"te', "back\\slash", "a\nb\tc\rd", "caf\u00e9", "caf\udce9"]
)
def test_arguments_arrive_as_they_are(host: Host, text: str) -> None:
    """Quotes, backslashes, line ends and bytes that are no UTF-8."""
    status, printed = host.run("printf", "<%s>", text)
    assert (status, printed) == (0, f"<{text}>".encode("utf-8", "surrogateescape"))


def test_the_permit_is_bound_before_the_command_runs(host: Host) -> None:
    """The command itself finds the permit on disk, with the proof of the containment that it is in."""
    status, printed = host.run("sh", "-c", 'cat "$0"/permits/*.json', str(host.directory))
    assert status == 0
    bound = json.loads(printed)
    proof = bound.get("proof") or bound["namespaceInit"]
    assert proof["witness"]
    assert host.permits() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_the_job(host: Host, number: signal.Signals) -> None:
    """The command gets TERM and may answer; its status is still the host's."""
    up = host.directory / "up"
    process = host.start("sh", "-c", f"trap 'exit 9' TERM; echo x >'{up}'; while :; do sleep 0.05; done")
    wait_file(up)
    process.send_signal(number)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 9
    assert host.permits() == []


def test_a_refused_job_returns_its_permit(host: Host) -> None:
    """Nothing ran: 125, the refusal on standard error, and no permit out."""
    (host.directory / "receipts").mkdir(parents=True)
    (host.directory / "receipts").chmod(0o755)
    status, errors = host.run("true")
    assert status == 125
    assert b"chmod 700" in errors
    assert host.permits() == []


def wrapper_of(process: subprocess.Popen[bytes]) -> int:
    """The `contain` below an example."""
    found: list[int] = []

    def seen() -> bool:
        found[:] = [
            pid for pid in descendants(process.pid) if Path(f"/proc/{pid}/comm").read_text() == "contain\n"
        ]
        return bool(found)

    wait_until(seen, what="the example has a wrapper")
    return found[0]


def test_a_wrapper_that_dies_is_looked_at(host: Host) -> None:
    """Inspect has the last word: the tree is gone, so the permit returns; the status is nobody's, so 125."""
    up = host.directory / "up"
    process = host.start("sh", "-c", f"echo x >'{up}'; exec sleep 60")
    wait_file(up)
    (permit,) = host.permits()
    bound = json.loads(permit.read_text())
    proof = bound.get("proof") or bound["namespaceInit"]
    held = hold_namespace(proof)
    assert in_namespace(proof["namespace"])
    kill(wrapper_of(process))
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 125
    assert host.permits() == []
    assert in_namespace(proof["namespace"]) == []
    os.close(held)


def test_a_host_that_dies_leaves_its_permit_and_no_process(host: Host) -> None:
    """The negative control for a permit that returns: here nobody has seen the end, so it stays for whoever looks."""
    up = host.directory / "up"
    process = host.start("sh", "-c", f"echo x >'{up}'; exec sleep 60")
    wait_file(up)
    wrapper = wrapper_of(process)
    kill(process.pid)
    process.wait(WAIT_S)
    wait_until(lambda: not alive(wrapper), what="the wrapper ends with its host")
    assert len(host.permits()) == 1
    (receipt,) = (host.directory / "receipts").glob("*.json")
    assert json.loads(receipt.read_text())["outcome"]["by"] == "eof"
