"""Any of us may die. The wrapper is killed at each of its system calls, one after the other.

A session is recorded once; then strace kills one session at the entry of each call that the record has. strace counts
every call by its own name, so a death is a name and an ordinal among the calls of that name.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.on_disk import receipts_on_disk
from tests.session import CONTAIN, Session, inspect
from tests.survivors import Watch, adopting, reap

if TYPE_CHECKING:
    from pathlib import Path

FIRST = "socketpair"
"""The first call that is not Python's own start: before it nothing of a job exists."""
CHANGING = """
    socketpair pipe2 clone3 clone vfork pidfd_open memfd_create sendmsg sendto recvmsg recvfrom
    pidfd_send_signal flock openat fchmod write pwrite64 fsync renameat renameat2 unlinkat wait4 poll
""".split()  # noqa: SIM905 - a list to read
"""Calls that change something, hand something over, or wait for somebody. The others only look."""
WORKERS = 4
LINE = re.compile(r"^(\w+)\(", re.MULTILINE)


class Call(NamedTuple):
    """One system call: its name, and its number among those of that name since the process began."""

    name: str
    ordinal: int


def traced(receipts: Path, log: Path, *options: str) -> Session:
    """A wrapper under strace, whose starts make the same calls every time."""
    strace = ("strace", "-qq", "-o", str(log), *options, "env", "PYTHONHASHSEED=0", *CONTAIN)
    return Session(receipts, program=strace)


def talk(session: Session, mark: Path, watch: Watch | None = None) -> None:
    """Request, and go when it is prepared, to the end of replies."""
    session.request("touch", str(mark))
    while (reply := session.read()) is not None:
        if reply["event"] == "prepared":
            if watch is not None:
                watch.look()
            session.go()
    session.process.wait()


def recorded(receipts: Path, tmp_path: Path) -> list[Call]:
    """Every call of a session that ends well, from the first that matters."""
    log = tmp_path / "recorded"
    with traced(receipts, log) as session:
        talk(session, tmp_path / "recorded-mark")
        assert session.events()[-1] == "released"
    counts: Counter[str] = Counter()
    calls = []
    for name in LINE.findall(log.read_text()):
        counts[name] += 1
        calls.append(Call(name, counts[name]))
    return calls[[call.name for call in calls].index(FIRST) :]


def die_at(receipts: Path, tmp_path: Path, call: Call) -> bool:
    """One session, killed at this call. True when it was: a wait more or less shifts the later ones."""
    mark = tmp_path / f"{call.name}-{call.ordinal}"
    kill = f"inject={call.name}:signal=KILL:when={call.ordinal}"
    with traced(receipts, tmp_path / "log", "-e", f"trace={call.name}", "-e", kill) as session:
        watch = Watch(session.process.pid)
        talk(session, mark, watch)
        watch.assert_gone()
        killed = session.process.returncode != 0
    latest = receipts_on_disk(receipts).get(session.id)
    if mark.exists():
        assert latest is not None, f"{call}: it ran without a receipt"
        assert latest.may_have_run, f"{call}: it ran, and its receipt is {latest.suffix}"
    if session.replies:
        assert latest is not None, f"{call}: no receipt, but it said {session.events()}"
    if "released" in session.events():
        assert latest is not None
        assert latest.content["state"] == "released", call
    reap()
    return killed


def die_at_each(receipts: Path, tmp_path: Path, worker: int, names: list[str] | None) -> None:
    """This worker's share of all deaths; then one look at what they left."""
    calls = [call for call in recorded(receipts, tmp_path) if names is None or call.name in names]
    mine = calls[worker::WORKERS]
    with adopting():
        killed = {call for call in mine if die_at(receipts, tmp_path, call)}
    assert len(killed) > 0.8 * len(mine), f"not killed at {set(mine) - killed}"
    assert {call.name for call in mine if call.name in ("fsync", "renameat", "flock")} <= {
        c.name for c in killed
    }
    code, found = inspect(receipts)
    assert code == 0
    assert {reply["id"] for reply in found} == set(receipts_on_disk(receipts))
    assert {(reply["state"], reply["empty"]) for reply in found} == {("released", True)}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("worker", range(WORKERS))
def test_killed_at_every_call_that_changes_something(receipts: Path, tmp_path: Path, worker: int) -> None:
    """Whatever the call: nothing is left, receipts are the old or the new, and what was said is on disk."""
    die_at_each(receipts, tmp_path, worker, CHANGING)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("worker", range(WORKERS))
def test_killed_at_every_call(receipts: Path, tmp_path: Path, worker: int) -> None:
    """The same at every call there is."""
    die_at_each(receipts, tmp_path, worker, None)


def test_a_torn_receipt_is_noticed(receipts: Path) -> None:
    """The control: half a receipt, as a wrapper that did not rename would leave it, fails the look at the disk."""
    (receipts / "00000000-0000-4000-8000-000000000000.running").write_text('{"id": "00000000-')
    with pytest.raises(ValueError, match="Unterminated"):
        receipts_on_disk(receipts)
