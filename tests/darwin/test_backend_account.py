"""The verbs of the budget on a fake XNU: an account, its queue, and requests from inside its jobs."""

from __future__ import annotations

import importlib.resources
import json
import shlex
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator

from tests.blocked import needs_root
from tests.darwin.account import DarwinAccount
from tests.darwin.jobs import members, until_gone
from tests.exec.terminals import Terminal
from tests.session import WAIT_S, kill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.darwin.world import World

pytestmark = needs_root
SCHEMAS = importlib.resources.files("contain") / "schemas"
STATUS = json.loads((SCHEMAS / "status.json").read_text(encoding="ascii"))
DOCTOR = Draft202012Validator(json.loads((SCHEMAS / "doctor.json").read_text(encoding="ascii")))


@pytest.fixture
def account(xnu: World, tmp_path: Path) -> Iterator[DarwinAccount]:
    """Of one unit."""
    with ExitStack() as stack:
        yield DarwinAccount(tmp_path, stack, xnu)


def test_two_take_turns_at_one_unit(account: DarwinAccount) -> None:
    """The second waits in sight of everybody, is told why, and runs when the first is over."""
    first = account.holds("a", "sh", "-c", "read _", stdin=-1)
    second = account.waits("b", "sh", "-c", "exit 5")
    found = account.status()
    Draft202012Validator(STATUS).validate(found)
    assert ([one["session"] for one in found["permits"]], [one["session"] for one in found["waiting"]]) == (
        ["a"],
        ["b"],
    )
    assert "held by a (1)" in account.run("why", found["waiting"][0]["id"][:8]).stdout
    first.communicate("\n", timeout=WAIT_S)
    assert (first.returncode, second.wait(WAIT_S)) == (0, 5)
    assert account.empty()


def test_a_killed_wrapper_gives_back_when_its_tree_is_gone(account: DarwinAccount) -> None:
    """Whoever waits settles it, by the anchor that the permit is bound to; the tree is really gone then."""
    first = account.holds("a", "sleep", "600")
    row = account.permit("a")
    assert row is not None
    anchor = json.loads(row.proof or "{}")["pid"]
    assert members(anchor)
    kill(first.pid)
    assert account.run("exec", "--session", "b", "--", "true").returncode == 0
    until_gone(anchor)
    assert account.empty()


def test_an_operators_word(account: DarwinAccount) -> None:
    """A hold keeps the next one waiting, a cancel ends its wait, and repair finds nothing to rebuild."""
    held = account.run("hold", "--for", "1m", "--reason", "x")
    assert held.returncode == 0, held.stderr
    waiting = account.waits("b", "true")
    (ticket,) = account.status()["waiting"]
    assert account.run("cancel", ticket["id"]).returncode == 0
    assert (waiting.wait(WAIT_S), account.queue()) == (125, [])
    repaired = account.run("repair")
    assert repaired.returncode == 0, repaired.stderr


INSIDE = {
    "by its environment and its session": "{inner} exec -- sh -c 'exit 17'",
    "by its session alone": "env -i PATH=$PATH {inner} exec -- sh -c 'exit 17'",
    "by its ancestors alone": "env -i PATH=$PATH setsid -w {inner} exec -- sh -c 'exit 17'",
    "two levels down": "{inner} exec -- env -i PATH=$PATH {inner} exec -- sh -c 'exit 17'",
}


@pytest.mark.parametrize("inside", INSIDE.values(), ids=INSIDE)
def test_inside_nobody_queues_behind_itself(account: DarwinAccount, inside: str) -> None:
    """The only unit is the outer job's: what it starts runs under it, and its status is kept."""
    said = account.run("exec", "--", "sh", "-c", inside.format(inner=account.inner))
    assert said.returncode == 17, said.stderr
    assert "waiting" not in said.stderr
    assert [what for what, _, _ in account.past()] == ["asked", "granted", "returned"]
    assert account.empty()
    assert not list((account.root / "nested").iterdir())


def test_on_a_terminal_nobody_queues_behind_itself(account: DarwinAccount, tmp_path: Path) -> None:
    """The job is a group of the caller's session there; with an environment of its own its ancestors tell it."""
    script = tmp_path / "inside.sh"
    script.write_text(f"env -i PATH=$PATH {account.inner} exec -- sh -c 'exit 17'")
    # A script takes a permit; the shell in front of it does not.
    with Terminal(tmp_path) as terminal:
        terminal.type(shlex.join(account.command("exec", "--json", "--", "sh", str(script))))
        assert '"tier":"group"' in terminal.until(r"OUT> ")
        assert terminal.status() == 17
    assert [what for what, _, _ in account.past()] == ["asked", "granted", "returned"]


def test_who_only_has_the_variable_queues(account: DarwinAccount) -> None:
    """The name of somebody else's permit confers nothing: it is told that it is not inside, and waits."""
    account.holds("a", "sleep", "600")
    row = account.permit("a")
    assert row is not None
    variable = ("env", f"CONTAIN_PERMIT={row.permit.id}")
    said = account.run("exec", "--max-wait", "0", "--", "true", before=variable)
    assert said.returncode == 125
    assert "held by a (1)" in said.stderr


def test_status_inside_looks_at_the_outer_budget(account: DarwinAccount) -> None:
    """It shows the permit under which it runs, and opens no second registry."""
    script = f"{account.inner} status --json; {account.inner} why -- make"
    said = account.run("exec", "--session", "outer", "--", "sh", "-c", script)
    lines = said.stdout.splitlines()
    assert [one["session"] for one in json.loads(lines[0])["permits"]] == ["outer"], said.stderr
    assert "at once" in lines[1]
    assert len(list((account.root / "live").iterdir())) == 1


def test_doctor_says_where_it_stands(account: DarwinAccount) -> None:
    """The trial meets what a job meets; that no Mac has run it is said; what was not asked for was not tried."""
    report = json.loads(account.run("doctor", "--json").stdout)
    DOCTOR.validate(report)
    assert report["prediction"]["works"], report
    assert report["prediction"]["tier"] == "session"
    assert report["surroundings"]["standing"].startswith("from source")
    assert report["tiers"] == {"group": "untried", "session": "works", "launchd": "untried"}
