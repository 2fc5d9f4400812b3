"""Private by construction. Arguments, environment and tokens are never on disk, in argv of ours, in logs or titles."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.session import Session, descendants, inspect, new_id, stat_fields

SECRET = "sesame-4f1d"  # noqa: S105 - it is to be found nowhere
TOKEN = "5ec7e7" * 10 + "abcd"


def everywhere(receipts: Path) -> bytes:
    """All that is in the directory of receipts."""
    return b"".join(path.read_bytes() for path in receipts.iterdir())


def say(session: Session, **fields: object) -> None:
    """A message with the secret token."""
    session.send({"id": session.id, "token": TOKEN, **fields})


def request(session: Session, **fields: object) -> None:
    """A request full of secrets."""
    say(
        session,
        permitId=new_id(),
        command="/bin/sleep",
        args=["60", f"--{SECRET}"] if not fields else [SECRET],
        env={"PATH": "/usr/bin:/bin", "KEY": SECRET},
        **fields,
    )


def test_a_whole_life_tells_nothing(receipts: Path) -> None:
    """Neither files nor our processes nor replies hold what belongs to the command."""
    with Session(receipts) as session:
        say(
            session,
            permitId=new_id(),
            command="/bin/sh",
            args=["-c", f": {SECRET}; exec sleep 60"],
            env={"PATH": "/usr/bin:/bin", "KEY": SECRET},
        )
        init = session.until("prepared")["namespaceInit"]["pid"]
        say(session, action="go")
        session.until("running")
        ours = [
            session.process.pid,
            *(pid for pid in descendants(session.process.pid) if parent(pid) != init),
        ]
        assert len(ours) == 3  # wrapper, keeper, init
        for pid in ours:
            for name in ("cmdline", "comm"):
                data = Path(f"/proc/{pid}/{name}").read_bytes()
                assert SECRET.encode() not in data
                assert TOKEN.encode() not in data
        for pid in ours[1:]:
            assert environment(pid) == b""
        assert SECRET.encode() not in everywhere(receipts)
        session.hang_up().finish()
    _, found = inspect(receipts)
    for text in (
        everywhere(receipts).decode(),
        json.dumps(session.replies),
        json.dumps(found),
        session.errors().decode(),
    ):
        assert SECRET not in text
        assert TOKEN not in text
    assert found[0]["command"] == "sh"


def parent(pid: int) -> int:
    """The parent of a process."""
    found = stat_fields(pid)
    return int(found[1]) if found else 0


def environment(pid: int) -> bytes:
    """The environment of a process, empty also where it may not be read."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    "fields",
    [
        {"cwd": f"/no/{SECRET}"},
        {"timeoutMs": SECRET},
        {"requireTier": SECRET},
        {"limits": {"openFiles": SECRET}},
        {"limits": [SECRET]},
        {"args": [SECRET, 7]},
        {"args": [SECRET + "\x00"]},
        {"env": {SECRET: 7}},
        {"id": SECRET},
        {"token": SECRET},
        {"permitId": SECRET},
        {SECRET: 1},
        {TOKEN: 1},
        {"limits": {SECRET: 1}},
        {"env": [SECRET]},
        {"env": {"=" + SECRET: "x"}},
        {"env": {"KEY": SECRET + "\x00"}},
        {"cwd": SECRET + "\x00"},
        {"command": SECRET + "\x00"},
        {"command": [SECRET]},
    ],
    ids=lambda fields: next(iter(fields))[:12],
)
def test_a_refusal_quotes_no_value(receipts: Path, fields: dict[str, object]) -> None:
    """A refusal says what is wrong with a field, not what was in it."""
    with Session(receipts) as session:
        head = {"id": session.id, "permitId": new_id(), "token": TOKEN, "command": "true", "args": [SECRET]}
        session.send({**head, **fields})
        session.finish()
    assert session.events() == ["refused"]
    said = json.dumps(session.replies) + session.errors().decode()
    assert SECRET not in said
    assert TOKEN not in said


@pytest.mark.parametrize(
    "line",
    [
        f'{{"env": "{SECRET}"',
        f'"{SECRET}"',
        SECRET,
        f'{{"{SECRET}": 1, "{SECRET}": 2}}',
        f'{{"token": "{TOKEN}"}} {SECRET}',
    ],
)
def test_a_line_that_is_no_message_is_not_quoted(receipts: Path, line: str) -> None:
    """Nor is what a JSON reader stumbled over."""
    with Session(receipts) as session:
        session.send_raw(line.encode() + b"\n")
        session.finish()
    said = json.dumps(session.replies) + session.errors().decode()
    assert session.events() == ["refused"]
    assert SECRET not in said
    assert TOKEN not in said


@pytest.mark.parametrize(
    "fields",
    [{SECRET: 1}, {TOKEN: 1}, {"id": TOKEN}, {"action": TOKEN}, {"token": SECRET}, {"graceMs": SECRET}],
    ids=lambda fields: next(iter(fields))[:12],
)
def test_a_message_in_disorder_is_not_quoted(receipts: Path, fields: dict[str, object]) -> None:
    """A token in the wrong field ends the job, and appears nowhere: not in the receipt either."""
    with Session(receipts) as session:
        request(session)
        session.until("prepared")
        session.send({"id": session.id, "token": TOKEN, "action": "cancel", **fields})
        assert session.finish()["event"] == "released"
    assert "refused" in session.events()
    said = json.dumps(session.replies) + session.errors().decode() + everywhere(receipts).decode()
    assert SECRET not in said
    assert TOKEN not in said


def test_a_command_that_cannot_be_executed_is_not_quoted(receipts: Path) -> None:
    """Its base name is in the receipt, and nothing of what it was to be given."""
    with Session(receipts) as session:
        say(session, permitId=new_id(), command=f"/no/{SECRET}/tool", args=[SECRET], env={"KEY": SECRET})
        session.until("prepared")
        say(session, action="go")
        last = session.finish()
    assert (last["outcome"]["cause"], last["command"]) == ("exec-failed", "tool")
    said = json.dumps(session.replies) + session.errors().decode() + everywhere(receipts).decode()
    assert SECRET not in said
    assert TOKEN not in said


def test_a_misspelt_field_is_named(receipts: Path) -> None:
    """The control: a word that can be a field's name is quoted, since somebody has to find it."""
    with Session(receipts) as session:
        session.request("true", graceMS=1).finish()
    assert "'graceMS'" in session.replies[0]["message"]


def test_a_wrong_token_is_not_quoted(receipts: Path) -> None:
    """Neither the right one nor the wrong one."""
    with Session(receipts) as session:
        request(session)
        session.until("prepared")
        session.send({"id": session.id, "token": "bad1" * 16, "action": "go"})
        session.finish()
    said = json.dumps(session.replies) + session.errors().decode() + everywhere(receipts).decode()
    assert "bad1" * 16 not in said
    assert TOKEN not in said


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o277, 0o777])
def test_files_are_ours_alone(tmp_path: Path, umask: int) -> None:
    """0600 in 0700, under any umask of the caller."""
    place = tmp_path / "made"
    with Session(place, umask=umask) as session:
        session.start("true")
        session.finish()
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}
    assert {path.stat().st_uid for path in place.iterdir()} == {os.getuid()}


def test_the_look_finds_what_is_there(receipts: Path) -> None:
    """The control: a secret in a file of the directory is seen."""
    (receipts / "note").write_text(SECRET)
    assert SECRET.encode() in everywhere(receipts)
