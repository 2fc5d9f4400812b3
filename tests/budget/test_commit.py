"""What a commit among many costs is counted in looks: at those who are granted, and not at those who wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contain.budget.arbiter import Ticket
from contain.budget.queue import reconcile
from contain.budget.registry import TicketRow
from contain.linux.backend import LinuxBackend
from tests.budget.customer import UNITS, desk

if TYPE_CHECKING:
    from pathlib import Path

    from contain.backend import Birth, Watched
    from contain.budget.queue.desk import Desk
    from receipts import Proof

CROWD = 3 * reconcile.GLANCE + 1


class Counting(LinuxBackend):
    """Looks as it always does, and remembers at whom."""

    def __init__(self) -> None:
        """Nobody yet."""
        super().__init__()
        self.looked_at: list[int] = []

    def watch(self, proof: Proof | Birth) -> Watched:
        """Counts."""
        self.looked_at.append(proof.pid)
        return super().watch(proof)


@pytest.fixture
def eyes() -> Counting:
    """Whom the desk looked at."""
    return Counting()


@pytest.fixture
def crowded(tmp_path: Path, eyes: Counting) -> Desk:
    """All units are held by this process, and ``CROWD`` wait: from a namespace that we cannot look into."""
    found = desk(str(tmp_path), eyes)
    mine = eyes.birth()
    for number in range(UNITS):
        found.enqueue(asks(f"holder{number}", mine))
    for number in range(CROWD):
        found.enqueue(asks(f"waiter{number}", mine.replace(observer_namespace=1, pid=number + 1)))
    assert len(found.look().permits) == UNITS
    eyes.looked_at.clear()
    return found


def asks(name: str, born: Birth) -> TicketRow:
    """A ticket of somebody who has no bell."""
    return TicketRow(ticket=Ticket(id=name, seq=0, session=name), owner=born, since_s=0.0)


def test_a_release_looks_at_who_is_granted_alone(crowded: Desk, eyes: Counting) -> None:
    """One unit comes free among hundreds who wait: one look, and it is the first one's."""
    crowded.release("holder0", "a test")
    assert eyes.looked_at == [1]
    assert sorted(crowded.look().permits) == ["holder1", "waiter0"]


def test_a_change_that_grants_nothing_looks_at_nobody(crowded: Desk, eyes: Counting) -> None:
    """A ticket joins, and one goes."""
    crowded.enqueue(asks("one more", eyes.birth()))
    crowded.withdraw("one more", "a test")
    assert eyes.looked_at == []


def test_every_waiter_is_looked_at_by_and_by(crowded: Desk, eyes: Counting) -> None:
    """A few at each tick, until everybody's turn has come."""
    seen: set[int] = set()
    for _ in range(-(-CROWD // reconcile.GLANCE)):
        eyes.looked_at.clear()
        crowded.tick()
        assert len(eyes.looked_at) <= reconcile.GLANCE + 1, "and whoever holds permits"
        seen.update(eyes.looked_at)
    assert seen >= set(range(1, CROWD + 1))


def test_what_was_forgotten_leaves_no_trace(crowded: Desk) -> None:
    """A decision that is made twice is written once: one line of the past, one seq."""
    crowded.release("holder0", "a test")
    told = [(what, name) for _, what, name, _, _, _ in crowded.look().past(2)]
    assert told == [("granted", "waiter0"), ("returned", "holder0")]
    seqs = [row.ticket.seq for row in crowded.look().tickets.values()]
    assert seqs == sorted(seqs)
    crowded.enqueue(asks("next", LinuxBackend().birth()))
    assert crowded.look().tickets["next"].ticket.seq == seqs[-1] + 1
