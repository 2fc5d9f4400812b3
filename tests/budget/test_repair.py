"""``contain repair``: a registry that cannot be read grants and releases nothing until it is rebuilt."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain.budget.arbiter import Ticket
from contain.budget.registry import TicketRow, bindings
from contain.budget.repair import Repaired, repair
from contain.errors import RegistryDamaged
from contain.linux.backend import LinuxBackend
from receipts import NamespaceInit, decode, encode, jsontext
from tests.blocked import needs_root
from tests.budget.customer import UNITS, desk
from tests.budget.scripted import calm, in_an_account
from tests.session import Session, inspect, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DB = "registry.db"


class Bound:
    """A registry in which living jobs of ``contain run`` are bound; this process is their owner."""

    def __init__(self, path: Path) -> None:
        """Nothing is bound yet."""
        self.folder = path / "registry"
        self.receipts = path / "receipts"
        for one in (self.folder, self.receipts):
            one.mkdir(mode=0o700)
        self.desk = desk(str(self.folder))
        self.sessions: list[Session] = []

    def job(self, name: str, units: int = 1) -> Session:
        """One more job that lives, with its permit."""
        session = Session(self.receipts)
        self.sessions.append(session)
        session.start("sleep", "1000")
        prepared = session.replies[0]
        ticket = Ticket(id=prepared["permitId"], seq=0, session=name, min_units=units, want_units=units)
        self.desk.enqueue(TicketRow(ticket=ticket, owner=self.desk.owner(), since_s=0.0))
        proof = jsontext.dumps(encode(decode(NamespaceInit, prepared["namespaceInit"])))
        self.desk.bind(prepared["permitId"], proof, str(self.receipts), session.id)
        return session

    def repair(self) -> Repaired:
        """By a process that has not been here before."""
        return repair(desk(str(self.folder)), LinuxBackend(), [])

    def stands(self) -> dict[str, tuple[int, str]]:
        """Session -> (units, how) of every permit, to a newcomer."""
        book = desk(str(self.folder)).look()
        return {row.permit.session: (row.permit.units, row.permit.how) for row in book.permits.values()}

    def close(self) -> None:
        """Ends every job."""
        self.desk.registry.close()
        for session in self.sessions:
            session.__exit__(None, None, None)


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Bound]:
    """A registry with nothing in it yet."""
    found = Bound(tmp_path)
    yield found
    found.close()


def garbage(folder: Path) -> None:
    """Over everything that SQLite would read, in place."""
    for name in (DB, f"{DB}-wal"):
        path = folder / name
        if path.exists():
            with path.open("r+b") as file:
                file.write(os.urandom(path.stat().st_size))


def alone(folder: Path, statement: str) -> None:
    """A statement on the database, by hand."""
    connection = sqlite3.connect(folder / DB, isolation_level=None)
    connection.execute(statement)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def torn(folder: Path) -> None:
    """The second half is missing."""
    alone(folder, "SELECT 1")
    os.truncate(folder / DB, (folder / DB).stat().st_size // 2)


def missing(folder: Path) -> None:
    """All of it."""
    for path in folder.glob(f"{DB}*"):
        path.unlink()


def empty(folder: Path) -> None:
    """As a file system may leave it."""
    missing(folder)
    (folder / DB).touch()


DAMAGE: list[Callable[[Path], None]] = [
    garbage,
    torn,
    missing,
    empty,
    lambda folder: alone(folder, "PRAGMA user_version = 99"),
    lambda folder: alone(folder, "DROP TABLE permit"),
    lambda folder: alone(folder, "UPDATE permit SET permit = '{'"),
]


@pytest.mark.parametrize(
    "damage", DAMAGE, ids=["garbage", "torn", "missing", "empty", "version", "table", "row"]
)
def test_what_cannot_be_read_grants_nothing_until_it_is_rebuilt(
    bound: Bound, damage: Callable[[Path], None]
) -> None:
    """Every permit of a living tree is back, with its units; what was there is kept; a newcomer is told what to do."""
    bound.job("a")
    bound.desk.registry.close()
    damage(bound.folder)
    newcomer = desk(str(bound.folder))
    row = TicketRow(ticket=Ticket(id="n", seq=0, session="n"), owner=newcomer.owner(), since_s=0.0)
    with pytest.raises(RegistryDamaged, match="contain repair"):
        newcomer.enqueue(row)
    done = bound.repair()
    assert done.wrong is not None
    assert (done.by_receipt_alone, done.unread) == (0, ())
    assert bound.stands() == {"a": (1, "rebuilt")}
    assert (done.kept is None) == (damage is missing)
    assert done.kept is None or (bound.folder / done.kept).exists()


def test_a_healthy_registry_is_left_alone(bound: Bound) -> None:
    """It says so; the file is the same, and so is what stands in it."""
    bound.job("a")
    before = (bound.folder / DB).stat().st_ino
    assert bound.repair() == Repaired(wrong=None)
    assert (bound.folder / DB).stat().st_ino == before
    assert bound.stands() == {"a": (1, "limit")}
    assert list(bound.folder.glob("*damaged*")) == []


def test_who_had_it_open_goes_on_in_the_new_one(bound: Bound) -> None:
    """Its next change is in the new file, and what is written there is what the others see."""
    first = bound.job("a")
    bound.job("b")
    garbage(bound.folder)
    bound.repair()
    bound.desk.release(first.replies[0]["permitId"], "a test says so")
    assert bound.stands() == {"b": (1, "rebuilt")}
    assert list(bound.desk.look().permits) == [bound.sessions[1].replies[0]["permitId"]]


def test_what_has_ended_does_not_come_back(bound: Bound) -> None:
    """A receipt that says released, empty; and a tree that is gone, though nobody has said it yet."""
    ended = bound.job("ended")
    ended.cancel().finish()
    bound.desk.release(ended.replies[0]["permitId"], "its line stays")
    killed = bound.job("killed")
    bound.job("alive")
    killed.process.kill()
    killed.process.wait()
    wait_until(lambda: inspect(bound.receipts, killed.id)[0] == 0, what="its tree is gone")
    missing(bound.folder)
    assert [row.permit.session for row in bound.repair().rows] == ["alive"]


def test_a_lost_line_makes_a_permit_of_the_whole_machine(bound: Bound) -> None:
    """By its receipt alone nobody knows what it was granted: nothing is granted beside it until its tree is gone."""
    session = bound.job("a")
    missing(bound.folder)
    (bound.folder / bindings.FILE).write_bytes(b'\n{"torn\n')
    done = repair(desk(str(bound.folder)), LinuxBackend(), [str(bound.receipts)])
    assert (done.by_receipt_alone, done.torn_lines) == (1, 1)
    assert bound.stands() == {"unknown": (UNITS, "rebuilt")}
    session.cancel().finish()
    desk(str(bound.folder)).tick()
    assert bound.stands() == {}


def test_receipts_alone_are_enough(bound: Bound) -> None:
    """Everything of the registry is gone, its bindings too: a repair finds the tree that lives by its receipt."""
    bound.job("a")
    bound.desk.registry.close()
    for path in bound.folder.iterdir():
        if path.is_file():
            path.unlink()
    done = repair(desk(str(bound.folder)), LinuxBackend(), [str(bound.receipts)])
    assert (done.kept, done.by_receipt_alone) == (None, 1)
    assert bound.stands() == {"unknown": (UNITS, "rebuilt")}


def test_an_unreadable_receipt_is_named(bound: Bound) -> None:
    """It is no permit, and no silence either."""
    (bound.receipts / "0d9c51a7-1f5e-4c43-9df6-0c8a4f2b7e11.running").write_bytes(b"\0\0")
    bound.job("a")
    missing(bound.folder)
    [unread] = bound.repair().unread
    assert "0d9c51a7-1f5e-4c43-9df6-0c8a4f2b7e11.running" in unread


def test_the_lines_are_few(bound: Bound, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is full is written anew, with what is still bound and every directory."""
    bound.job("a")
    with (bound.folder / bindings.FILE).open("ab") as file:
        file.write(b'\n{"receipts":"/elsewhere"}\n')
    gone = bound.job("gone")
    bound.desk.release(gone.replies[0]["permitId"], "a test says so")
    monkeypatch.setattr(bindings, "FULL_BYTES", 1)
    bound.job("b")
    found = bindings.read(str(bound.folder))
    assert [row.permit.session for row in found.rows.values()] == ["a", "b"]
    assert found.directories == (str(bound.receipts), "/elsewhere")


@pytest.mark.timeout(300)
@pytest.mark.slow
def test_a_repair_that_is_killed_anywhere_can_be_repeated(bound: Bound) -> None:
    """SIGKILL before each of its acts leaves a registry that is damaged or whole, and never one without the permit."""
    bound.job("a")
    bound.desk.registry.close()
    act = 0
    codes: list[int] = []
    while not codes or codes[-1] != 0:
        act += 1
        if not codes or codes[-1] == -signal.SIGKILL:
            garbage(bound.folder)
        words = [sys.executable, "-m", "tests.budget.repairer", str(bound.folder), str(act)]
        codes.append(subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode)
        try:
            assert bound.stands() == {"a": (1, "rebuilt")}
        except RegistryDamaged:
            assert codes[-1] == -signal.SIGKILL
            bound.repair()
            assert bound.stands() == {"a": (1, "rebuilt")}
    assert set(codes[:-1]) == {-signal.SIGKILL}
    assert act > 20


DESTROYED = """
$C exec --budget --session a -- sleep 1000 & A=$!
$C exec --budget --session b -- sleep 1000 & B=$!
until [ "$($C status | grep -o '"state":"bound"\\|"state":"running"' | wc -l)" = 2 ]; do sleep 0.05; done
$C exec --budget --session c -- touch RAN & W=$!
until $C status | grep -q '"waiting":\\[{'; do sleep 0.05; done
for f in ~/.contain/live/*/registry.db ~/.contain/live/*/registry.db-wal; do
  dd if=/dev/urandom of=$f bs=$(stat -c %s $f) count=1 conv=notrunc status=none
done
EXTRA
$C exec --budget -- true; echo refused=$?; $C status; echo status=$?
$C repair > repaired; echo repaired=$?
until $C status | grep -q '"waiting":\\[{'; do sleep 0.05; done; $C status; test -e RAN && echo early
kill $A; wait $A; echo ended=$?; $C status >/dev/null
"""


def destroyed(tmp_path: Path, extra: str, then: str) -> subprocess.CompletedProcess[str]:
    """Two jobs run and one waits; garbage in the registry; a repair; one of the two ends; then ``then``."""
    script = calm(2) + DESTROYED.replace("EXTRA", extra) + then
    ran, repaired = str(tmp_path / "ran"), str(tmp_path / "repaired")
    done = in_an_account(tmp_path, script.replace("RAN", ran).replace("> repaired", f"> {repaired}"))
    lines = done.stdout.splitlines()
    assert lines[:3] == ["refused=125", "status=84", "repaired=0"], done.stderr
    assert "contain repair rebuilds it" in done.stderr
    assert "early" not in lines
    assert "is kept as registry.db.damaged-" in Path(repaired).read_text()
    assert Path(ran).exists()
    return done


@needs_root
@pytest.mark.slow
def test_a_waiter_survives_and_runs_when_units_are_free(tmp_path: Path) -> None:
    """Each of the living has what it had; the first end makes room for the one who waited all along."""
    done = destroyed(tmp_path, "", "wait $W; echo waited=$?; $C status; kill $B; wait $B")
    lines = done.stdout.splitlines()
    assert [(one["units"], one["how"]) for one in json.loads(lines[3])["permits"]] == [(1, "rebuilt")] * 2
    assert "waited=0" in lines
    assert [one["session"] for one in json.loads(lines[-1])["permits"]] == ["b"]


@needs_root
@pytest.mark.slow
def test_without_any_line_the_waiter_waits_for_all(tmp_path: Path) -> None:
    """What each of the living has is not known, so nothing is granted beside either of them."""
    done = destroyed(
        tmp_path,
        "rm ~/.contain/live/*/bindings",
        "test -e RAN && echo early; kill $B; wait $B; wait $W; echo waited=$?; $C status",
    )
    lines = done.stdout.splitlines()
    assert [(one["units"], one["how"]) for one in json.loads(lines[3])["permits"]] == [(2, "rebuilt")] * 2
    assert "waited=0" in lines
    assert json.loads(lines[-1])["permits"] == []
