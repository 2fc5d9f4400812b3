"""Tickets that vanish, proofs that cannot be read, a registry that is removed while a command runs."""

from __future__ import annotations

import sqlite3
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.blocked import needs_root
from tests.budget.account import Account
from tests.budget.customer import desk
from tests.budget.shop import open_shop
from tests.session import WAIT_S, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.budget.shop import Customer, Shop


pytestmark = pytest.mark.timeout(200)
"""Many processes are started here, and a busy machine takes its time for each."""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """Two hold all there is; a and b wait."""
    with open_shop(tmp_path / "registry") as made:
        for name in "xy":
            made.comes(name).hears("granted")
            desk(str(made.folder)).bind(
                name, '{"pid":', "", ""
            )  # bound to what nobody can read: it stays theirs
        yield made


def execute(shop: Shop, statement: str) -> None:
    """Changes the registry behind everybody's back."""
    with sqlite3.connect(shop.folder / "registry.db") as connection:
        connection.execute(statement)


def fate(shop: Shop, name: str) -> str:
    """The last word of the past about a request."""
    return desk(str(shop.folder)).look().became(name)[0]


def ends(customer: Customer) -> str:
    """Waits for its end by itself, which must be a failure; what it said."""
    said = customer.process.communicate(timeout=WAIT_S)[1]
    assert customer.process.returncode != 0
    return said


def test_a_ticket_that_vanishes_takes_its_place_again_once(shop: Shop) -> None:
    """Before those who came later; and when it does not stay, it fails and says so."""
    first = shop.comes("a")
    shop.waits("a")
    shop.comes("b")
    shop.waits("a", "b")
    execute(shop, "DELETE FROM ticket WHERE id = 'a'")
    wait_until(lambda: fate(shop, "a") == "restored", what="it has asked again")
    assert shop.stands()[1] == ["a", "b"]
    gone = "DELETE FROM ticket WHERE id = 'a'"
    execute(shop, f"CREATE TRIGGER thief AFTER INSERT ON ticket WHEN new.id = 'a' BEGIN {gone}; END")
    execute(shop, gone)
    assert "vanished from the queue twice" in ends(first)
    assert shop.stands()[1] == ["b"]


def test_a_proof_that_cannot_be_read_keeps_its_permit_and_stops_nobody(shop: Shop) -> None:
    """Unknown is never gone, and one damaged row is not everybody's end."""
    first = shop.comes("a")
    shop.waits("a")
    for holder in shop.customers[:1]:
        kill(holder.process.pid)
        holder.process.wait()
    wait_until(lambda: fate(shop, "x") == "cleanup", what="the end of its owner is seen")
    shop.customers[1].give_back()
    first.hears("granted")
    assert shop.stands() == (["a", "x"], [])


@needs_root
def test_how_a_command_ended_is_said_whatever_became_of_the_registry(tmp_path: Path) -> None:
    """Its permit cannot be returned, which is told; its status is its own all the same."""
    with ExitStack() as stack:
        account = Account(tmp_path, stack)
        ended = account.run("exec", "--", "sh", "-c", "rm -r ~/.contain/live; exit 3")
    assert ended.returncode == 3
    assert "the permit could not be returned yet" in ended.stderr
