"""What an operator says of requests and rules, as it is typed: cancel, release, hold, policy, why."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from contain.budget.registry.store import LOCK
from tests.blocked import needs_root
from tests.budget.account import ONE_UNIT, Account
from tests.budget.stopping import stop_outside
from tests.session import WAIT_S, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = needs_root

USAGE, NO_RECEIPT, BAD_POLICY = 64, 68, 82


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """Of one unit."""
    with ExitStack() as stack:
        yield Account(tmp_path, stack)


def test_a_canceled_ticket_never_runs(account: Account) -> None:
    """However far behind it waits: its owner is woken, says who did it, and ends with 125; the rest moves up."""
    account.holds("a", "sleep", "1000")
    account.waits("b", "true")
    third = account.waits("c", "true")
    fourth = account.waits("d", "touch", "ran")
    ticket = account.status()["waiting"][2]["id"]
    assert account.run("cancel", ticket[:8]).returncode == 0
    _, said = fourth.communicate(timeout=WAIT_S)
    assert fourth.returncode == 125
    assert "The ticket was canceled (by uid 0). The command did not run." in said
    assert not (account.folder / "ran").exists()
    assert account.queue() == ["b", "c"]
    assert ("canceled", "d", "by uid 0") in account.past()
    assert third.poll() is None


def test_who_has_a_permit_is_not_canceled(account: Account) -> None:
    """The answer says what would end it."""
    first = account.holds("a", "sleep", "1000")
    said = account.run("cancel", account.status()["permits"][0]["id"])
    assert said.returncode == NO_RECEIPT
    assert f"kill -TERM {first.pid}" in said.stderr
    assert account.state("a") in ("bound", "running")


def test_a_permit_is_released_by_force_alone(account: Account) -> None:
    """With a reason, which is on record; the next goes on at once, whatever the first one does."""
    first = account.holds("a", "sleep", "1000")
    second = account.waits("b", "true")
    permit = account.status()["permits"][0]["id"]
    for words in (
        [permit],
        ["--force", permit],
        ["--reason", "x", permit],
        ["--force", "--reason", "", permit],
    ):
        assert account.run("release", *words).returncode == USAGE
    assert account.state("a") in ("bound", "running")
    assert account.run("release", "--force", permit, "--reason", "stuck in the kernel").returncode == 0
    assert second.wait(WAIT_S) == 0
    assert ("forced", "a", "forced by uid 0: stuck in the kernel") in account.past()
    assert first.poll() is None
    kill(first.pid)
    first.wait(WAIT_S)
    assert account.run("status").returncode == 0
    assert account.empty()


@pytest.mark.parametrize(
    "words",
    [
        ["--for", "2d", "--reason", "x"],
        ["--for", "soon", "--reason", "x"],
        ["--for", "0", "--reason", "x"],
        ["--for", "5m"],
        ["--reason", "x"],
        [],
        ["--for", "5m", "--reason", "x", "fulll"],
        ["--lift", "x", "--for", "5m"],
    ],
)
def test_a_hold_that_makes_no_sense_holds_nobody(account: Account, words: list[str]) -> None:
    """Nor does one on a lane that there is not."""
    said = account.run("hold", *words)
    assert (said.returncode, said.stdout) == (USAGE, "")
    assert account.status()["holds"] == []


def test_a_hold_on_a_lane(account: Account) -> None:
    """It says until when, holds that lane alone, and its lifting lets go who waited."""
    hold = account.run("hold", "--for", "10m", "--reason", "deploying", "full").stdout.strip()
    held = account.waits("a", "true")
    (one,) = account.status()["holds"]
    assert (one["id"], one["reason"], one["covers"]) == (hold, "deploying", ["lane:full"])
    assert 0 < one["leftS"] <= 600
    assert account.status()["free"]["light"] == 1
    assert account.run("hold", "--lift", "0000").returncode == NO_RECEIPT
    assert account.run("hold", "--lift", hold).returncode == 0
    assert held.wait(WAIT_S) == 0


@pytest.mark.parametrize("words", [["base", "0"], ["bsae", "1"], ["ceiling", "0"], ["base", "two"]])
def test_a_wrong_number_changes_nothing_on_disk(account: Account, words: list[str]) -> None:
    """Neither the file nor what is in force."""
    said = account.run("policy", "set", *words)
    assert said.returncode == BAD_POLICY
    assert account.root.joinpath("policy.toml").read_text() == ONE_UNIT


@pytest.mark.parametrize("words", [[], ["set", "base"], ["show", "x"], ["check"], ["lower"]])
def test_policy_of_other_words_is_told_what_it_takes(account: Account, words: list[str]) -> None:
    """And nothing is written."""
    said = account.run("policy", *words)
    assert said.returncode == USAGE
    assert "show, check FILE, or set NAME VALUE" in said.stderr


def test_two_numbers_set_at_once_are_both_set(account: Account) -> None:
    """Each reads, changes and replaces the file alone."""
    started = [
        account.start("policy", "set", name, value) for name, value in (("due_after", "3"), ("debt_s", "7.0"))
    ]
    assert [one.wait(WAIT_S) for one in started] == [0, 0]
    shown = account.run("policy", "show").stdout
    assert "due_after = 3" in shown
    assert "debt_s = 7.0" in shown
    assert shown.startswith("# ")


@pytest.mark.parametrize("content", [b"bsae = 1", b"[[[", b"\xff\xfe", None])
def test_a_broken_policy_file_is_named_and_can_be_mended(account: Account, content: bytes | None) -> None:
    """No command runs by a policy that nobody wrote; the file is named, and another can be checked meanwhile."""
    path = account.root / "policy.toml"
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    for words in (["status"], ["exec", "--", "touch", "ran"]):
        said = account.run(*words)
        assert said.returncode in (BAD_POLICY, 125)
        assert ".contain/policy.toml" in said.stderr
        assert "Traceback" not in said.stderr
    assert not (account.folder / "ran").exists()
    (account.folder / "good.toml").write_text(ONE_UNIT)
    assert account.run("policy", "check", "good.toml").returncode == 0


def test_why_of_a_command_of_a_ticket_and_of_a_permit(account: Account) -> None:
    """Each by the beginning of its id; a word that is none is no traceback."""
    account.holds("a", "sleep", "1000", options=("--holder", "the suite"))
    account.waits("b", "true")
    found = account.status()
    assert "held by the suite (1)" in account.run("why", found["waiting"][0]["id"][:8]).stdout
    assert (
        "it does not wait: it has had its permit" in account.run("why", found["permits"][0]["id"][:8]).stdout
    )
    said = account.run("why", "--", "make", "-j8")
    assert said.stdout.startswith("class script (make), lane full, units 1..1")
    assert account.run("why", "none").returncode == NO_RECEIPT
    assert account.run("why", "--", "").returncode == USAGE
    assert account.run("why", "a", "b").returncode == USAGE


@pytest.mark.parametrize(
    "verb", ["run", "serve", "inspect", "status", "why", "cancel", "hold", "release", "policy"]
)
def test_every_verb_has_a_help(account: Account, verb: str) -> None:
    """And does nothing else."""
    said = account.run(verb, "--help")
    assert said.returncode == 0
    assert f"contain {verb}" in said.stdout
    assert account.book() is None


def test_a_canceled_ticket_of_a_stopped_owner(account: Account) -> None:
    """It does not come back when its owner is continued."""
    account.holds("a", "sleep", "1000")
    stopped = account.waits("b", "touch", "ran")
    stop_outside(stopped, account.live() / LOCK)
    assert account.run("cancel", account.status()["waiting"][0]["id"]).returncode == 0
    wait_until(lambda: account.queue() == [], what="it is out of the queue")
    kill(stopped.pid, signal.SIGCONT)
    assert stopped.wait(WAIT_S) == 125
    assert not (account.folder / "ran").exists()


def test_who_waits_judges_by_the_numbers_of_now(tmp_path: Path) -> None:
    """Two units become one while two run and one waits: the next return is nobody's turn, whoever judges."""
    with ExitStack() as stack:
        account = Account(
            tmp_path,
            stack,
            ONE_UNIT.replace("base = 1\n", "base = 2\n").replace("ceiling = 1", "ceiling = 2"),
        )
        first, second = (account.holds(name, "cat", stdin=subprocess.PIPE) for name in "ab")
        third = account.waits("c", "true")
        assert account.run("policy", "set", "base", "1").returncode == 0
        first.communicate(timeout=WAIT_S)
        assert account.queue() == ["c"], "the commit that returned the permit has decided as well"
        second.communicate(timeout=WAIT_S)
        assert third.wait(WAIT_S) == 0
