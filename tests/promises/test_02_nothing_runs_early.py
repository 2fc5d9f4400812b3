"""Nothing runs early. No command executes before its receipt is durable and its host has said go with the token.

The command of these tests makes a file; the file tells whether anything was executed.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain import errors
from tests.session import TOKEN, Session, alive, inspect, kill, new_id, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.session import Reply


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    """The file that exists when the command was executed."""
    return tmp_path / "executed"


def prepared(session: Session, mark: Path) -> Reply:
    """A job at its gate."""
    return session.request("touch", str(mark)).until("prepared")


def message(session: Session, **fields: object) -> bytes:
    """A go with something changed."""
    return json.dumps({"id": session.id, "token": TOKEN, "action": "go", **fields}).encode() + b"\n"


def half_a_line(session: Session) -> None:
    """A go without its end."""
    session.send_raw(message(session)[:-1])
    session.hang_up()


WRONG: dict[str, tuple[Callable[[Session], object], int]] = {
    "eof": (lambda s: s.hang_up(), 0),
    "half a line": (half_a_line, 0),
    "garbage": (lambda s: s.send_raw(b"\x00\xff garbage\n"), errors.ProtocolViolation.exit_code),
    "empty line": (lambda s: s.send_raw(b"\n"), errors.ProtocolViolation.exit_code),
    "wrong token": (lambda s: s.go(token="0" * 64), errors.BadToken.exit_code),
    "token in upper case": (lambda s: s.go(token=TOKEN.upper()), errors.BadToken.exit_code),
    "short token": (lambda s: s.go(token=TOKEN[:-1]), errors.ProtocolViolation.exit_code),
    "no token": (lambda s: s.send({"id": s.id, "action": "go"}), errors.ProtocolViolation.exit_code),
    "another id": (lambda s: s.send_raw(message(s, id=new_id())), errors.ProtocolViolation.exit_code),
    "another action": (lambda s: s.send_raw(message(s, action="run")), errors.ProtocolViolation.exit_code),
    "a field more": (lambda s: s.send_raw(message(s, force=True)), errors.ProtocolViolation.exit_code),
    "too long": (lambda s: s.send_raw(b"x" * 70_000), errors.ProtocolViolation.exit_code),
    "wrong, then right": (lambda s: s.go(token="0" * 64).go(), errors.BadToken.exit_code),
    "cancel": (lambda s: s.cancel(), 0),
    "cancel, then go": (lambda s: s.cancel().go(), 0),
    "TERM": (lambda s: s.process.terminate(), 143),
}


@pytest.mark.parametrize("how", WRONG)
def test_the_gate_stays_shut(receipts: Path, mark: Path, how: str) -> None:
    """Whatever is not the exact go executes nothing, ends the containment, and is told in the receipt."""
    say, exit_code = WRONG[how]
    with Session(receipts) as session:
        prepared(session, mark)
        say(session)
        last = session.finish()
        assert session.process.returncode == exit_code, session.errors()
    assert not mark.exists()
    assert (last["event"], last["empty"], last["ran"]) == ("released", True, False)
    assert last["outcome"]["cause"] in ("refused", "canceled")
    assert "running" not in session.events()


def test_the_exact_go_opens_it(receipts: Path, mark: Path) -> None:
    """The control: with the token it runs."""
    with Session(receipts) as session:
        prepared(session, mark)
        last = session.go().finish()
    assert mark.exists()
    assert (last["ran"], last["outcome"]["code"]) == (True, 0)


def test_a_second_go_is_reported_and_ignored(receipts: Path, tmp_path: Path) -> None:
    """It executes nothing again."""
    log = tmp_path / "log"
    with Session(receipts) as session:
        session.start("sh", "-c", f"echo x >> {log}; sleep 0.5")
        session.go()
        last = session.finish()
    assert log.read_text() == "x\n"
    assert "ignored" in session.events()
    assert last["outcome"]["code"] == 0


def test_a_late_go_is_reported_and_ignored(receipts: Path, tmp_path: Path) -> None:
    """The command has ended, its tree has not: a go executes nothing any more."""
    log = tmp_path / "log"
    with Session(receipts) as session:
        session.start("sh", "-c", f"echo x >> {log}; setsid sleep 60 & exit 0", graceMs=30_000)
        session.until("exited")
        session.go().until("ignored")
        last = session.cancel(graceMs=0).finish()
    assert log.read_text() == "x\n"
    assert (last["event"], last["empty"], last["outcome"]["code"]) == ("released", True, 0)


def at_once(session: Session, go: bytes, command: str, *args: str) -> None:
    """Request and go as one piece of bytes, before anything was said to it."""
    request = {"id": session.id, "permitId": new_id(), "token": TOKEN, "command": command, "args": args}
    session.send_raw(json.dumps(request).encode() + b"\n" + go)


def test_the_command_finds_its_own_receipt(receipts: Path, mark: Path) -> None:
    """At its first instruction the receipt says running, also for a host that does not wait for prepared."""
    look = ("sh", "-c", 'ls "$0" > "$1"', str(receipts), str(mark))
    for hasty in (False, True):
        with Session(receipts) as session:
            if hasty:
                at_once(session, message(session), *look)
            else:
                session.start(*look)
            assert session.finish()["ran"] is True
        assert session.events()[:2] == ["prepared", "running"]
        found = mark.read_text().split()
        assert f"{session.id}.running" in found
        assert f"{session.id}.prepared" not in found


@pytest.mark.parametrize("wrong", [{"token": "0" * 64}, {"id": "no"}, {"action": "Go"}], ids=str)
def test_a_wrong_go_in_the_same_write(receipts: Path, mark: Path, wrong: dict[str, str]) -> None:
    """It has no token yet that it could have heard from us, and is judged like any other."""
    with Session(receipts) as session:
        at_once(session, message(session, **wrong) + message(session), "touch", str(mark))
        last = session.finish()
    assert not mark.exists()
    assert (last["event"], last["ran"], last["outcome"]["cause"]) == ("released", False, "refused")
    assert "running" not in session.events()


@pytest.mark.parametrize("whom", ["wrapper", "init"])
def test_a_death_at_the_gate(receipts: Path, mark: Path, whom: str) -> None:
    """Wrapper or init killed between prepared and go: nothing runs, nothing hangs, the receipt knows."""
    with Session(receipts) as session:
        init = prepared(session, mark)["namespaceInit"]["pid"]
        victim = init if whom == "init" else session.process.pid
        kill(victim)
        wait_until(lambda: not alive(victim), what=f"the {whom} is dead")
        session.go()
        session.process.wait(30)
        code, (found,) = inspect(receipts, session.id)
    assert not mark.exists()
    assert (code, found["state"], found["empty"], found["ran"]) == (0, "released", True, False)


def test_each_state_is_on_disk_before_it_is_said(receipts: Path) -> None:
    """When a reply is read, the file that it speaks of is there."""
    with Session(receipts) as session:
        session.request("sh", "-c", "setsid sleep 60 & exit 0", graceMs=200)
        session.until("prepared")
        assert (receipts / f"{session.id}.prepared").exists()
        session.go().until("running")
        assert (receipts / f"{session.id}.running").exists()
        session.until("exited")
        assert json.loads((receipts / f"{session.id}.exited").read_text())["outcome"]["code"] == 0
        session.until("released")
        assert json.loads((receipts / f"{session.id}.json").read_text())["state"] == "released"
        session.finish()
    assert sorted(path.suffix for path in receipts.iterdir()) == [".json", ".lock"]


def gate_of(gated: int, wrapper: int) -> str:
    """The number of the only pipe, besides its standard descriptors, that a gated process shares with its wrapper."""
    theirs = {fd.readlink() for fd in Path(f"/proc/{wrapper}/fd").iterdir()}
    mine = [fd for fd in Path(f"/proc/{gated}/fd").iterdir() if int(fd.name) > 2]
    [gate] = [fd.name for fd in mine if fd.readlink() in theirs]
    return gate


@pytest.mark.skipif(
    os.getuid() != 0, reason="capability: root, to read the descriptors of an undumpable init"
)
def test_the_gate_is_in_no_other_process(receipts: Path, mark: Path) -> None:
    """The read end is the gated process's alone, the write end the wrapper's alone."""
    with Session(receipts) as session:
        init = prepared(session, mark)["namespaceInit"]["pid"]
        children = Path(f"/proc/{init}/task/{init}/children")
        wait_until(lambda: children.read_text().strip(), what="the gated process is there")
        gated = int(children.read_text().split()[0])
        wait_until(
            lambda: len(list(Path(f"/proc/{gated}/fd").iterdir())) == 5,
            what="it has laid out its descriptors",
        )
        pipe = Path(f"/proc/{gated}/fd/{gate_of(gated, session.process.pid)}").readlink()
        holders: dict[int, list[int]] = {}
        for proc in Path("/proc").iterdir():
            if proc.name.isdigit():
                try:
                    found = [int(fd.name) for fd in (proc / "fd").iterdir() if fd.readlink() == pipe]
                except OSError:
                    continue
                if found:
                    holders[int(proc.name)] = found
        session.hang_up().finish()
    assert set(holders) == {gated, session.process.pid}
    assert all(len(fds) == 1 for fds in holders.values())
