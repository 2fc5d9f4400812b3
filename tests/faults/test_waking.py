"""Who is rung by a commit: everybody for whom it changes what to wait for, and nobody else."""

from __future__ import annotations

import os
import select
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from contain.budget.arbiter import Ticket
from contain.budget.queue.wake import FOLDER, Bell
from contain.budget.registry import TicketRow
from tests.budget.customer import UNITS, desk
from tests.budget.shop import open_shop
from tests.session import kill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Line:
    """Waiters with bells, all of them this process, behind ``UNITS`` others who hold all there is."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        """Nobody waits yet."""
        self.folder = folder
        self.desk = desk(str(folder))
        self._stack = stack
        self.bells: dict[str, Bell] = {}
        for number in range(UNITS):
            self.joins(f"holder-{number}")

    def joins(self, name: str) -> None:
        """One more asks."""
        bell = self.bells[name] = Bell(str(self.folder), name)
        self._stack.callback(bell.close)
        owner = self.desk.owner()
        self.desk.enqueue(
            TicketRow(ticket=Ticket(id=name, seq=0, session=name), owner=owner, wake=name, since_s=0.0)
        )

    def rung(self) -> set[str]:
        """Who of those who wait was rung since the last look."""
        found = set()
        for name, bell in self.bells.items():
            if select.select([bell.fd], [], [], 0)[0]:
                bell.silence()
                found.add(name)
        return {name for name in found if not name.startswith("holder-")}


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    """Four wait: a, b, c and d."""
    folder = tmp_path / "registry"
    folder.mkdir(mode=0o700)
    with ExitStack() as stack:
        made = Line(folder, stack)
        for name in "abcd":
            made.joins(name)
        made.rung()
        yield made


def test_a_look_that_changes_nothing_rings_nobody(line: Line) -> None:
    """A sentinel that rang itself by every look would look for ever, on a core of its own."""
    line.desk.tick()
    assert line.rung() == set()


def test_the_first_is_rung_for_what_it_has_to_watch(line: Line) -> None:
    """It holds a pidfd of every permit: another permit is another process to watch."""
    line.desk.withdraw("holder-0", "it ends")  # a is granted
    assert line.rung() == {"a", "b", "c"}
    line.desk.tick()  # and again until it is bound: the first judge may have died before the bell
    assert line.rung() == {"a"}
    line.desk.bind("a", "no proof", "", "")
    assert line.rung() == {"b"}


@pytest.mark.parametrize(
    ("leaves", "rung"),
    [("a", {"a", "b", "c"}), ("b", {"b", "c"}), ("c", {"c", "d"}), ("d", {"d"})],
)
def test_who_has_another_place_is_rung(line: Line, leaves: str, rung: set[str]) -> None:
    """The new first and second have other duties, everybody else another predecessor; who was taken out is told."""
    line.desk.withdraw(leaves, "it leaves")
    assert line.rung() == rung


def test_a_new_one_wakes_nobody_else(line: Line) -> None:
    """Joining at the end is no news for those before it."""
    line.joins("e")
    assert line.rung() == {"e"}, "its own place is news to it"


def test_the_bell_of_who_was_killed_is_removed(tmp_path: Path) -> None:
    """Ten thousand killed waiters would leave ten thousand FIFOs."""
    with open_shop(tmp_path / "registry") as shop:
        shop.comes("a").hears("granted"), shop.comes("b").hears("granted")
        third = shop.comes("c")
        shop.waits("c")
        assert {path.name for path in (shop.folder / FOLDER).iterdir()} == {"a", "b", "c"}
        kill(third.process.pid)
        third.process.wait()
        desk(str(shop.folder)).tick()
        assert {path.name for path in (shop.folder / FOLDER).iterdir()} == {"a", "b"}


def test_an_old_bell_that_nobody_hears_is_removed(line: Line) -> None:
    """Who was killed between making it and the commit of its ticket has no row to tell of it."""
    folder = line.folder / FOLDER
    os.mkfifo(folder / "killed")
    os.mkfifo(folder / "just-made")
    for name in ("killed", "a"):
        os.utime(folder / name, (0, 0))
    line.desk.tick()
    left = {path.name for path in folder.iterdir()}
    assert left == {*line.bells, "just-made"}
