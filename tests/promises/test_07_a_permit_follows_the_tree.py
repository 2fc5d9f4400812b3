"""A permit follows the tree. It is returned when the tree is proven gone, and a released receipt is the evidence.

Today's part: permit and proof are in every receipt, and none says released while anything of its tree lives. The
budget itself comes later.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.session import TOKEN, Session, in_namespace, inspect, kill, new_id, wait_until

if TYPE_CHECKING:
    from tests.session import Reply


def prepare(session: Session, permit: str, *command: str, **extra: object) -> Reply:
    """A job under this permit, its gate still shut."""
    head = {"id": session.id, "permitId": permit, "token": TOKEN}
    session.send({**head, "command": command[0], "args": list(command[1:]), **extra})
    return session.until("prepared")


def start(session: Session, permit: str, *command: str, **extra: object) -> Reply:
    """A running job under this permit."""
    prepared = prepare(session, permit, *command, **extra)
    session.go().until("running")
    return prepared


def on_disk(receipts: Path, job_id: str, suffix: str) -> Reply:
    """A receipt's file."""
    found: Reply = json.loads((receipts / f"{job_id}.{suffix}").read_text())
    return found


def test_every_state_names_permit_and_proof(receipts: Path) -> None:
    """prepared, running, exited and released: the same permit, the same proof."""
    permit = new_id()
    with Session(receipts) as session:
        command = ("sh", "-c", "setsid sleep 60 & exit 0")
        proof = prepare(session, permit, *command, graceMs=300)["namespaceInit"]
        prepared = on_disk(receipts, session.id, "prepared")
        session.go().until("running")
        running = on_disk(receipts, session.id, "running")
        session.until("exited")
        exited = on_disk(receipts, session.id, "exited")
        last = session.finish()
    released = on_disk(receipts, session.id, "json")
    for found in (prepared, running, exited, released):
        assert (found["permitId"], found["proof"]) == (permit, proof)
    assert (last["permitId"], last["namespaceInit"]) == (permit, proof)


def test_not_released_while_a_daemon_lives(receipts: Path) -> None:
    """The command ended long ago; its daemon lives: the receipt says exited, empty unknown, and so does inspect."""
    with Session(receipts) as session:
        proof = start(session, new_id(), "sh", "-c", "setsid sleep 60 & exit 0", graceMs=60_000)[
            "namespaceInit"
        ]
        exited = session.until("exited")
        assert exited["empty"] is None
        assert len(in_namespace(proof["namespace"])) == 2
        code, (found,) = inspect(receipts, session.id)
        assert (code, found["state"], found["observation"]["state"]) == (75, "busy", "live")
        assert not (receipts / f"{session.id}.json").exists()
        session.cancel(graceMs=0)
        last = session.finish()
    assert (last["event"], last["empty"]) == ("released", True)
    assert in_namespace(proof["namespace"]) == []


def test_released_soon_after_the_wrapper_was_killed(receipts: Path) -> None:
    """After kill -9 of the wrapper the tree is gone and inspect releases, within the time that anybody would wait."""
    permit = new_id()
    with Session(receipts) as session:
        start(session, permit, "sh", "-c", "trap '' TERM; setsid sleep 60 & sleep 60")
        kill(session.process.pid)
        session.process.wait()

        def released() -> bool:
            code, (found,) = inspect(receipts, session.id)
            return (code, found["state"], found["empty"], found["permitId"]) == (0, "released", True, permit)

        wait_until(released, 5, "inspect releases")


def test_no_member_holds_anything_of_ours(receipts: Path) -> None:
    """No process of the tree has a lock, a pipe or a socket of the wrapper: it could keep them for ever."""
    with Session(receipts) as session:
        proof = start(session, new_id(), "sh", "-c", "sleep 60 & setsid sleep 60 & wait")["namespaceInit"]
        wait_until(lambda: len(in_namespace(proof["namespace"])) == 4)
        outputs = {Path(f"/proc/{session.process.pid}/fd/2").readlink(), Path("/dev/null")}
        for pid in in_namespace(proof["namespace"]):
            if pid != proof["pid"]:
                held = {int(fd.name): fd.readlink() for fd in Path(f"/proc/{pid}/fd").iterdir()}
                assert set(held) == {0, 1, 2}, held
                assert set(held.values()) <= outputs
        session.hang_up().finish()


@pytest.mark.parametrize("runs", [30])
def test_no_write_lands_after_released(receipts: Path, tmp_path: Path, runs: int) -> None:
    """Whatever the end, a descendant that writes all the time has written its last before the reply is read."""
    relay = "while :; do echo x >> {log}; done"
    for run in range(runs):
        log = tmp_path / f"log-{run}"
        with Session(receipts) as session:
            # The command ends only when the first write is there: on a slow machine the grace ends sooner.
            text = f"setsid sh -c '{relay.format(log=log)}' & until [ -e {log} ]; do :; done; "
            text += "exit 0" if run % 3 == 0 else "sleep 60"
            start(session, new_id(), "sh", "-c", text, graceMs=20, killMs=20)
            wait_until(log.exists)
            if run % 3 == 1:
                session.cancel(graceMs=run)
            elif run % 3 == 2:
                session.hang_up()
            session.until("released")
            size = log.stat().st_size
            session.finish()
        assert log.stat().st_size == size
