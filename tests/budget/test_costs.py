"""Learned costs: the file of an account, whoever writes it, dies while writing it or damages it."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from contain.budget.costs import Costs, LearnedCost
from contain.budget.costs.store import MOST_ROWS
from contain.cli.costs import table
from contain.errors import CostsUnusable
from tests.blocked import needs_root
from tests.budget.teacher import ended, usage
from tests.session import ROOT, WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEY = "typecheck/tsc/full/0123456789abcdef"


class Account:
    """A root, what was said, and as many processes' worth of Costs as are asked for."""

    def __init__(self, root: Path) -> None:
        """The root is new."""
        self.root = root
        self.said: list[str] = []
        self.file = root / "costs.db"
        root.mkdir(mode=0o700)

    def opened(self) -> Costs:
        """As a process has it."""
        return Costs(str(self.root), self.said.append)

    def teach(self, count: int = 2, key: str = KEY) -> Costs:
        """So many whole runs of 300 MiB."""
        learned = self.opened()
        for _ in range(count):
            learned.learn(key, ended(), usage(300, 9), 4096)
        return learned

    def runs(self) -> int:
        """As a process that comes now reads it."""
        learned = self.opened()
        found = learned.recall(KEY)
        learned.close()
        return 0 if found is None else found.runs


@pytest.fixture
def account(tmp_path: Path) -> Account:
    """An account that never ran anything."""
    return Account(tmp_path / "account")


def test_it_is_kept_privately(account: Account) -> None:
    """To look makes no file; what is learned is there for the next process, and for nobody else."""
    assert account.opened().recall(KEY) is None
    assert list(account.root.iterdir()) == []
    account.teach().close()
    found = account.opened().recall(KEY)
    assert found is not None
    assert (found.memory_mib, found.runs, found.memory_runs, found.wall_s) == (300, 2, 2, 9.0)
    assert {one.stat().st_mode & 0o777 for one in account.root.iterdir()} == {0o600}
    assert account.said == []


def test_what_teaches_nothing_makes_no_file(account: Account) -> None:
    """A short command costs no transaction."""
    account.opened().learn(KEY, ended(), usage(3, 0.1), 0)
    assert list(account.root.iterdir()) == []


def test_forgetting(account: Account) -> None:
    """One key, or all; and how many there were."""
    learned = account.teach()
    account.teach(key="a/b/c/d")
    assert (learned.forget("x/y/z/0"), learned.forget(KEY), learned.recall(KEY)) == (0, 1, None)
    assert (learned.forget(None), learned.rows()) == (1, [])


def test_the_table() -> None:
    """A line for each key, for a person."""
    known = LearnedCost(
        memory_mib=1234,
        memory_source="sampled",
        memory_runs=7,
        wall_s=84.0,
        busy=2.04,
        runs=7,
        seen_at_s=1000.0,
    )
    assert "nothing was learned yet" in table([], 0.0)
    head, row = table([(KEY, known)], 1000.0 + 3 * 3600).splitlines()
    assert head.split() == ["key", "MiB", "cores", "seconds", "runs", "seen", "source"]
    assert row.split() == [KEY, "1,234", "2.0", "84", "7", "3", "h", "ago", "sampled"]


def test_the_oldest_go(account: Account) -> None:
    """The file is bounded: whoever adds a key takes the oldest away."""
    account.teach().close()
    row = "INSERT INTO learned VALUES ('test/pytest/full/{0}', 300, 'sampled', 1, 9.0, 1.0, 1, {0});"
    rewritten("BEGIN;" + "".join(row.format(n) for n in range(MOST_ROWS)) + "COMMIT;")(account.file)
    learned = account.teach(key="a/b/c/new")
    kept = [key for key, _ in learned.rows()]
    assert len(kept) == MOST_ROWS
    assert kept[:2] == ["a/b/c/new", KEY]
    assert kept[-1] == "test/pytest/full/2"


def teacher(account: Account, key: str, count: int) -> subprocess.Popen[str]:
    """A process that waits for a line, and then learns."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.budget.teacher", str(account.root), key, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_many_learn_at_once(account: Account) -> None:
    """Six processes that find no file make one, and no lesson of any of them is lost."""
    each = 20
    processes = [teacher(account, KEY, each) for _ in range(6)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        told, _ = process.communicate(timeout=WAIT_S)
        assert "said" not in told
        assert process.returncode == 0
    assert account.runs() == each * len(processes)


def test_a_kill_loses_nothing_that_was_learned(account: Account) -> None:
    """SIGKILL at any moment: what was committed is there, the file is whole, and the next process goes on."""
    committed = 0
    for _ in range(8):
        process = teacher(account, KEY, 100_000)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        for _ in range(random.randint(1, 40)):  # noqa: S311 - a moment, not a secret
            assert process.stdout.readline().startswith("learned")
        process.kill()
        rest, _ = process.communicate(timeout=WAIT_S)
        assert "said" not in rest
        before, committed = committed, account.runs()
        assert committed > before
    with sqlite3.connect(account.file) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert account.said == []


# -- what is wrong with it is never a job's trouble ------------------------------------------------------------------


def rewritten(statement: str) -> Callable[[Path], None]:
    """Damages by SQL."""

    def damage(path: Path) -> None:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.executescript(statement)
        connection.close()

    return damage


PAGE = 4096
NO_DATABASE = b"these are no costs " * 400


def torn(data: bytes) -> bytes:
    """The first half of the second page, in which the rows are, is another's."""
    return data[:PAGE] + b"\xa5" * (PAGE // 2) + data[PAGE + PAGE // 2 :]


def overwritten(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    """Damages by other bytes."""

    def damage(path: Path) -> None:
        path.write_bytes(change(path.read_bytes()))

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no database": overwritten(lambda _: NO_DATABASE),
    "cut short": overwritten(lambda data: data[:100]),
    "a page is missing": overwritten(lambda data: data[:PAGE]),
    "torn": overwritten(torn),
    "no table": rewritten("DROP TABLE learned"),
    "a row without sense": rewritten(
        "PRAGMA ignore_check_constraints = 1; UPDATE learned SET memory_mib = 'much'"
    ),
    "a negative row": rewritten("UPDATE learned SET runs = -1"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file(account: Account, name: str) -> None:
    """The job is told once and goes on with the class's numbers; the file is kept aside, and learning begins anew."""
    account.teach().close()
    DAMAGES[name](account.file)
    assert account.opened().recall(KEY) is None
    [told] = account.said
    assert "damaged" in told
    assert "The class's own numbers are used." in told
    assert (account.root / "costs.db.damaged").exists()
    account.teach().close()
    assert account.runs() == 2
    assert len(account.said) == 1


def test_a_damage_that_a_lesson_meets(account: Account) -> None:
    """The lesson is lost, and said to be; the next is the first of a new file."""
    account.teach().close()
    DAMAGES["torn"](account.file)
    account.teach(1).close()
    assert "What this run took is not learned." in account.said[0]
    account.teach(1).close()
    assert account.runs() == 1


def test_who_holds_a_file_that_was_moved_aside(account: Account) -> None:
    """A process that had it open learns into the new one, and does not move that aside."""
    early = account.teach()
    rewritten("PRAGMA wal_checkpoint(TRUNCATE)")(
        account.file
    )  # else the whole file stands in the WAL as well
    account.file.write_bytes(NO_DATABASE)
    assert account.opened().recall(KEY) is None
    account.teach(1).close()
    early.learn(KEY, ended(), usage(300, 9), 4096)
    assert account.runs() == 2
    assert len(account.said) == 1


def test_two_meet_the_same_damage(account: Account) -> None:
    """The second, which saw it in the file that the first has moved, leaves the new one where it is."""
    late = account.teach()

    def meet() -> None:
        with late._file.reading() as connection:
            rewritten("PRAGMA wal_checkpoint(TRUNCATE)")(account.file)
            account.file.write_bytes(NO_DATABASE)
            assert account.opened().recall(KEY) is None
            account.teach(1).close()
            assert connection is not None
            connection.execute("SELECT * FROM no_table_of_ours")

    with pytest.raises(CostsUnusable):
        meet()
    assert account.runs() == 1


def test_what_belonged_to_a_damaged_file_goes(account: Account) -> None:
    """Its WAL, which a killed process left, must not be played into the new file."""
    process = teacher(account, KEY, 3)
    assert process.stdin is not None
    assert process.stdout is not None
    with sqlite3.connect(account.file) as keeps_it_open:  # so that no end of a process empties the WAL
        process.communicate("\n", timeout=WAIT_S)
        keeps_it_open.execute("PRAGMA user_version").fetchone()
    with account.file.open("r+b") as file:
        file.write(b"no header of a database")
    assert account.opened().recall(KEY) is None
    assert {one.name for one in account.root.iterdir()} == {"costs.db.damaged", "costs.lock"}
    keeps_it_open.close()


def test_of_another_version(account: Account) -> None:
    """It is left alone, and said."""
    account.teach().close()
    rewritten("PRAGMA user_version = 99")(account.file)
    before = account.file.read_bytes()
    assert account.opened().recall(KEY) is None
    account.teach(1).close()
    assert ["another version" in line for line in account.said] == [True, True]
    assert account.file.read_bytes() == before
    with pytest.raises(CostsUnusable):
        account.opened().forget(None)


def test_somebody_writes_for_long(account: Account) -> None:
    """Who reads is not disturbed; a lesson is given up after a second, and said to be."""
    account.teach().close()
    connection = sqlite3.connect(account.file, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    assert account.runs() == 2
    account.teach(1).close()
    assert "locked" in account.said[0]
    connection.execute("ROLLBACK")
    connection.close()
    assert account.runs() == 2


def test_a_root_that_is_gone(account: Account) -> None:
    """Said, and no more."""
    account.root.rmdir()
    account.teach(1)
    assert "What this run took is not learned." in account.said[0]


FULL_DISK = """
import os, sys
from contain.budget.costs import Costs
from tests.budget.teacher import ended, usage
root, said = sys.argv[1], []
learned = Costs(root, said.append)
learned.learn("a/b/c/0", ended(), usage(300, 9), 0)
with open(f"{root}/ballast", "wb", buffering=0) as ballast:
    try:
        while ballast.write(bytes(4096)):
            pass
    except OSError as full:
        assert full.errno == 28, full
number = 0
while not said:  # until the pages that the files already had are used up
    number += 1
    assert number < 5000
    learned.learn(f"a/b/c/{number}", ended(), usage(300, 9), 0)
assert "What this run took is not learned." in said[0], said
assert learned.recall("a/b/c/0").memory_mib == 300, said
os.unlink(f"{root}/ballast")
before = len(said)
learned.learn("a/b/c/after", ended(), usage(300, 9), 0)
assert learned.recall("a/b/c/after").runs == 1, said
assert len(said) == before, said
print("fine")
"""


@needs_root
def test_a_full_disk(tmp_path: Path) -> None:
    """A lesson that does not fit is lost and said to be; what was known stays, and with room learning goes on."""
    script = f'mount -t tmpfs -o size=512k,mode=700 none {tmp_path} && exec "$0" -c "$1" {tmp_path}'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, FULL_DISK],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
        cwd=ROOT,
    )
    assert done.stdout == "fine\n", done.stderr
