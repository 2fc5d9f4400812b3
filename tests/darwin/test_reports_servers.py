"""Dev servers and daemons that leave the session (docs/DARWIN-REPORTS.md): they are named, ended, or held by birth."""

from __future__ import annotations

import os
import signal
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from contain.darwin import ending
from contain.darwin.handle import opened
from contain.darwin.libproc import Libproc
from tests.darwin.jobs import inspected, members, parent, session
from tests.darwin.living import runs, until
from tests.session import wait_file, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.world import World
    from tests.session import Session

SERVER = """
import os, signal, socket, sys, time
if os.fork():
    os._exit(0)
os.setsid()
for number in (signal.SIGHUP, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
if os.fork():
    os._exit(0)
server = socket.create_server(("127.0.0.1", 0))
with open(sys.argv[1] + ".part", "w") as told:
    print(os.getpid(), server.getsockname()[1], file=told)
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(600)
"""
"""A double fork and a session of its own; deaf to what is polite."""


class Served:
    """A job that has left such a server behind, with no variable of the job's."""

    def __init__(self, job: Session, folder: Path, grace_ms: int) -> None:
        """Waits until it listens; the command ends when ``go`` is called."""
        self.told, self._go = folder / "told", folder / "go"
        (folder / "server.py").write_text(SERVER)
        start = f"env -i {sys.executable} -S {folder}/server.py {self.told}"
        text = f"exec > /dev/null 2>&1; {start}; while [ ! -e {self._go} ]; do sleep 0.01; done; exit 3"
        self.anchor = job.start("sh", "-c", text, graceMs=grace_ms, killMs=50)["anchor"]["pid"]
        self._supervisor = parent(self.anchor)
        self.pid, self.port = map(int, wait_file(self.told).split())
        assert os.getsid(self.pid) not in (self.anchor, os.getsid(0))

    def go(self) -> None:
        """The command ends."""
        self._go.touch()

    def until_left_alone(self) -> None:
        """Waits until its supervisor has given up."""
        until(lambda: not runs(self._supervisor), "the supervisor is gone")

    def listens(self) -> bool:
        """Whether its port is taken."""
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", self.port)) == 0


def test_a_dev_server_is_named_and_gives_its_port_back(
    lineage: World, receipts: Path, tmp_path: Path
) -> None:
    """It left the session, and its variables are not the job's: it is seen, named, ended, and listed."""
    assert lineage.lineage
    with session(lineage, receipts) as job:
        server = Served(job, tmp_path, grace_ms=1000)
        assert server.listens()
        server.go()
        released = job.finish()
    assert job.events() == ["prepared", "running", "exited", "released"]
    assert (released["outcome"]["code"], released["detached"]) == (3, "listed")
    assert (released["leftovers"]["count"], released["leftovers"]["signal"]) == (1, "KILL")
    assert released["leftovers"]["names"][0].startswith("python")
    assert not runs(server.pid)
    assert not server.listens()


def test_a_dev_server_that_may_not_be_ended_is_held_by_its_birth(
    lineage: World, receipts: Path, tmp_path: Path
) -> None:
    """That the rest is gone releases it neither for the wrapper nor for who inspects; --finish ends it."""
    with session(lineage, receipts) as job:
        server = Served(job, tmp_path, grace_ms=60_000)
        unique_id = Libproc(opened(lineage.library)).identity(server.pid).unique_id
        server.go()
        assert job.until("exited")["leftovers"]["count"] == 1
        lineage.control(f"foreign pid={server.pid} uid=12345")
        held = job.hang_up().finish()
    assert (held["event"], held["empty"], held["detached"]) == ("held", False, "listed"), held
    assert members(server.anchor) == []
    for found in (held, inspected(lineage, receipts), inspected(lineage, receipts, job.id, "--finish")):
        (blocker,) = found["held"]["blockers"]
        assert (blocker["pid"], blocker["uniqueId"]) == (server.pid, unique_id), found
        assert blocker["name"].startswith("python")
        assert found["state"] == "held"
    assert blocker["why"] == ending.FOREIGN
    server.until_left_alone()
    lineage.control("clear")
    assert inspected(lineage, receipts)["state"] == "held"
    assert server.listens()
    assert inspected(lineage, receipts, job.id, "--finish")["state"] == "released"
    assert not server.listens()


def test_a_number_that_a_held_receipt_names_is_not_signalled_when_it_is_anothers(
    lineage: World, receipts: Path, tmp_path: Path
) -> None:
    """Named by its birth: who has the number now keeps it, and holds nothing."""
    with session(lineage, receipts) as job:
        server = Served(job, tmp_path, grace_ms=60_000)
        server.go()
        assert job.until("exited")["leftovers"]["count"] == 1
        lineage.control(f"foreign pid={server.pid} uid=12345")
        assert job.hang_up().finish()["event"] == "held"
    server.until_left_alone()
    lineage.control("clear")
    lineage.control(f"reuse pid={server.pid}")
    assert inspected(lineage, receipts, job.id, "--finish")["state"] == "released"
    assert runs(server.pid)
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not runs(server.pid), "the server is gone")


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        pytest.param("deny flavour=17 pid={}", "it could not be looked at", marks=pytest.mark.slow),
        ("hold-exit pid={} ms=-1", ending.STUCK),
    ],
)
def test_who_left_and_is_not_seen_to_end_is_held(
    lineage: World, receipts: Path, tmp_path: Path, fault: str, why: str
) -> None:
    """Known to be of the job, and not proven gone: outside of the session too, unknown and exiting are no end."""
    with session(lineage, receipts) as job:
        server = Served(job, tmp_path, grace_ms=60_000)
        server.go()
        assert job.until("exited")["leftovers"]["count"] == 1
        lineage.control(fault.format(server.pid))
        held = job.hang_up().finish()
    assert (held["event"], held["empty"]) == ("held", False), held
    (blocker,) = held["held"]["blockers"]
    assert blocker["pid"] == server.pid
    assert why in blocker["why"]
    lineage.control("clear")
    wait_until(
        lambda: inspected(lineage, receipts, job.id, "--finish")["state"] == "released", what="released"
    )
    assert not runs(server.pid)
