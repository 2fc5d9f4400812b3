"""Whether who asks on a socket is of a job: by session, group and descent, and None where none of them tells."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from contain.darwin import peer
from contain.darwin.backend import DarwinBackend
from contain.darwin.census import Tree
from contain.darwin.handle import opened
from contain.darwin.libproc import Identity, Libproc
from contain.job import Job, new_id
from receipts import Anchor
from tests.darwin.jobs import anchor_program
from tests.session import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from contain.backend import Containment
    from tests.darwin.world import World

CALLER = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.recv(1)"
LEAVES = {
    "in the session": "exec {call}",
    "in a group of its own": "set -m; {call} & wait",
    "in a session of its own": "exec setsid -w {call}",
    "below one in a session of its own": "exec setsid -w sh -c 'exec setsid -w {call}'",
}


class Ear:
    """A listening socket, and a job whose command connects to it."""

    def __init__(self, world: World, folder: Path, stack: ExitStack) -> None:
        """``stack`` ends everything."""
        self.world, self.stack = world, stack
        self.backend = DarwinBackend(library=world.library, program=anchor_program())
        stack.callback(self.backend.stop)
        self.path = str(folder / "ear")
        self.listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        self.listener.bind(self.path)
        self.listener.listen()
        self.listener.settimeout(WAIT_S)
        self.call = f"{sys.executable} -c '{CALLER}' {self.path}".replace("'", '"')

    def job(self, script: str, *, shared: bool = False) -> Containment:
        """A job that runs now."""
        asked = Job(id=new_id(), permit_id=new_id(), command="sh", args=("-c", script), shared_session=shared)
        job = self.backend.launch(asked).ready()
        self.stack.callback(job.close)
        assert job.open_gate()
        return job

    def heard(self) -> socket.socket:
        """The next connection."""
        connection, _ = self.listener.accept()
        return self.stack.enter_context(connection)


@pytest.fixture
def ear(xnu: World, tmp_path: Path) -> Iterator[Ear]:
    """Of one world."""
    with ExitStack() as stack:
        yield Ear(xnu, tmp_path, stack)


@pytest.mark.parametrize("shared", [False, True], ids=["session", "group"])
def test_who_descends_from_the_anchor_is_inside(ear: Ear, shared: bool) -> None:  # noqa: FBT001
    """Whatever session or group it has made for itself; of another job that runs beside it the same one is not.

    Where nobody has seen whose child it was at first, that is unknown.
    """
    outside = (False,) if ear.world.lineage else (False, None)
    other = ear.job("sleep 600", shared=shared)
    for name, script in LEAVES.items():
        mine = ear.job(script.format(call=ear.call), shared=shared)
        connection = ear.heard()
        assert ear.backend.contains(mine.proof, connection) is True, name
        assert ear.backend.contains(other.proof, connection) in outside, name


def test_who_was_started_outside_is_outside(ear: Ear) -> None:
    """This process is older than the anchor; its child is younger, and a child of somebody older."""
    job = ear.job("sleep 600")
    with socket.socket(socket.AF_UNIX) as mine:
        mine.connect(ear.path)
        assert ear.backend.contains(job.proof, ear.heard()) is False
    with subprocess.Popen([sys.executable, "-c", CALLER, ear.path]) as child:
        assert ear.backend.contains(job.proof, ear.heard()) is False
        child.kill()


def denied(ear: Ear, pid: int) -> None:
    """It may not be looked at."""
    ear.world.control(f"deny flavour=17 pid={pid}")


def silent(ear: Ear, pid: int) -> None:  # noqa: ARG001 - as ``denied``
    """The socket does not tell its peer."""
    ear.world.control("fail call=getsockopt errno=22")


@pytest.mark.parametrize("trouble", [denied, silent])
def test_what_cannot_be_seen_is_neither(ear: Ear, trouble: Callable[[Ear, int], None]) -> None:
    """A member of the session, while a question about it fails: None; and True again when it does not."""
    job = ear.job(f"exec {ear.call}")
    connection = ear.heard()
    pid = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)[:4], sys.byteorder)
    trouble(ear, pid)
    assert ear.backend.contains(job.proof, connection) is None
    ear.world.control("clear")
    assert ear.backend.contains(job.proof, connection) is True


def test_who_has_hung_up_is_neither(ear: Ear) -> None:
    """Nobody is at the other end: nobody is inside, and nobody is outside."""
    job = ear.job("sleep 600")
    with socket.socket(socket.AF_UNIX) as gone:
        gone.connect(ear.path)
    assert ear.backend.contains(job.proof, ear.heard()) is None


def test_an_orphan_in_a_session_of_its_own_is_neither(ear: Ear) -> None:
    """Its parent is launchd now, and it has executed something since: nothing tells whose it was, so not "outside"."""
    if ear.world.reason:
        pytest.skip(ear.world.reason)
    adopted = "while read -r _ _ _ parent _ < /proc/$$/stat && [ $parent = $P ]; do :; done"
    job = ear.job(f"export P=$$; setsid sh -c '{adopted}; exec {ear.call}' & exit 0")
    assert ear.backend.contains(job.proof, ear.heard()) is None


def test_the_first_parent_of_an_orphan(ear: Ear) -> None:
    """Launchd's own child, or that of somebody older than the anchor, is outside; the anchor's own is inside."""
    job = ear.job("sleep 600")
    assert isinstance(job.proof, Anchor)
    tree = Tree(Libproc(opened(ear.world.library)), job.proof)
    launchd, anchor_id = tree.libproc.identity(peer.LAUNCHD), job.proof.unique_id
    orphan = Identity(
        unique_id=anchor_id + 9, parent_unique_id=launchd.unique_id, version=1 << 20, parent_version=0
    )
    firsts = {
        "launchd's, by its version": orphan.replace(parent_version=launchd.version),
        "perhaps launchd's": orphan,
        "an older one's": orphan.replace(parent_unique_id=anchor_id - 1),
        "a younger one's": orphan.replace(parent_unique_id=anchor_id + 1),
        "the anchor's": orphan.replace(parent_unique_id=anchor_id),
    }
    found = {name: peer.by_first_parent(tree, one) for name, one in firsts.items()}
    assert found == dict(zip(firsts, (False, None, False, None, True), strict=True))


def test_the_numbers_around_this_process(ear: Ear) -> None:
    """Its group, its session and who is above it, each once; an anchor's is among them for whoever is inside."""
    numbers = ear.backend.own_namespaces()
    assert numbers[0] == os.getpgrp()
    assert {os.getsid(0), os.getppid()} <= set(numbers)
    assert len(numbers) == len(set(numbers))
    assert ear.backend.owner_and_parent(os.getpid()) == (os.geteuid(), os.getppid())
