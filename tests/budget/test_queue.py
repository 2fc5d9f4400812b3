"""Tickets and permits between real processes: who is granted when others end, are killed or vanish."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain.budget.registry.store import LOCK
from tests.budget.customer import UNITS, desk
from tests.budget.shop import Customer, open_shop
from tests.budget.stopping import stop_outside
from tests.session import WAIT_S, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.budget.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A registry of two units, and everybody who came."""
    with open_shop(tmp_path / "registry") as made:
        yield made


def test_who_comes_third_waits_and_is_next(shop: Shop) -> None:
    """Two units, two permits; the third is granted by the very commit that returns one."""
    first, second = shop.comes("a").hears("granted"), shop.comes("b").hears("granted")
    third = shop.comes("c")
    shop.waits("c")
    first.give_back()
    third.hears("granted")
    assert shop.stands() == (["b", "c"], [])
    second.give_back()
    third.give_back()
    assert shop.stands() == ([], [])


def test_a_killed_holder_is_noticed_by_who_waits(shop: Shop) -> None:
    """SIGKILL of a holder: its end is seen through its pidfd, and the permit goes on."""
    first, _ = shop.comes("a").hears("granted"), shop.comes("b").hears("granted")
    third = shop.comes("c")
    shop.waits("c")
    kill(first.process.pid)
    third.hears("granted")
    assert shop.stands() == (["b", "c"], [])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_waiter_that_ends_leaves_no_ticket(shop: Shop, number: int) -> None:
    """Whoever waits behind it is not held up."""
    first, _ = shop.comes("a").hears("granted"), shop.comes("b").hears("granted")
    third = shop.comes("c")
    shop.waits("c")
    fourth = shop.comes("d")
    shop.waits("c", "d")
    kill(third.process.pid, number)
    third.process.wait(WAIT_S)
    first.give_back()
    fourth.hears("granted")
    assert shop.stands() == (["b", "d"], [])


def test_a_dead_waiter_is_passed_over_by_whoever_would_grant_it(shop: Shop) -> None:
    """Nobody has looked at it since it died: its successor is stopped. It vanishes in the commit that has a unit."""
    first, _ = shop.comes("a").hears("granted"), shop.comes("b").hears("granted")
    third = shop.comes("c")
    shop.waits("c")
    fourth = shop.comes("d")
    shop.waits("c", "d")
    stop_outside(fourth.process, shop.folder / LOCK)
    kill(third.process.pid)
    third.process.wait(WAIT_S)
    assert shop.stands() == (["a", "b"], ["c", "d"])
    first.give_back()
    assert shop.stands() == (["b", "d"], [])
    kill(fourth.process.pid, signal.SIGCONT)
    fourth.hears("granted")


def test_a_dead_waiter_is_noticed_by_its_successor(shop: Shop) -> None:
    """The sentinel is stopped, and the third in line does not tick: it watches who is before it."""
    _, _ = shop.comes("a").hears("granted"), shop.comes("b").hears("granted")
    waiting = []
    for count, name in enumerate("cdef"):
        waiting.append(shop.comes(name))
        shop.waits(*"cdef"[: count + 1])
    for stopped in (waiting[0], waiting[1]):
        stop_outside(stopped.process, shop.folder / LOCK)
    kill(waiting[2].process.pid)
    shop.waits("c", "d", "f")


def test_the_last_in_line_is_looked_at_by_the_sentinel(shop: Shop) -> None:
    """Nobody else watches it: it vanishes by a tick."""
    _, _ = shop.comes("a").hears("granted"), shop.comes("b").hears("granted")
    shop.comes("c")
    shop.waits("c")
    last = shop.comes("d")
    shop.waits("c", "d")
    kill(last.process.pid)
    shop.waits("c")


def test_nobody_is_left_of_a_crowd_that_is_killed(shop: Shop) -> None:
    """A hundred random kills: never more permits than units, and none at last."""
    chance = random.Random(7)  # noqa: S311 - to be the same again
    alive: list[Customer] = []
    for number in range(100):
        alive.append(Customer(shop.folder, f"n{number}"))
        if len(alive) > 5:
            victim = alive.pop(chance.randrange(len(alive)))
            kill(victim.process.pid)
            victim.close()
        held, _ = shop.stands() if number else ([], [])
        assert len(held) <= UNITS, held
    for customer in alive:
        kill(customer.process.pid)
        customer.close()
    desk(str(shop.folder)).tick()
    assert shop.stands() == ([], [])


def test_what_became_of_a_request_is_on_record(shop: Shop) -> None:
    """A freed slot that nobody can explain is a fault."""
    shop.comes("a").hears("granted").give_back()
    killed = shop.comes("b").hears("granted")
    kill(killed.process.pid)
    killed.process.wait(WAIT_S)
    desk(str(shop.folder)).tick()
    told = [(what, name) for _, what, name, _, _, _ in reversed(desk(str(shop.folder)).look().past())]
    assert told == [
        ("asked", "a"),
        ("granted", "a"),
        ("returned", "a"),
        ("asked", "b"),
        ("granted", "b"),
        ("returned", "b"),
    ]


def reads(pid: int) -> int:
    """How many read calls a process has made so far: each look at the registry or the machine makes some."""
    counts = Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in counts if line.startswith("syscr"))


def test_who_waits_sleeps(shop: Shop) -> None:
    """Between its ticks a sentinel does nothing, whoever rings: it must not ring itself awake."""
    for name in ("a", "b"):
        shop.comes(name).hears("granted")
    waiting = shop.comes("c").process.pid
    wait_until(lambda: shop.stands()[1] == ["c"])
    before = reads(waiting)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(
            ["sleep", "60"], timeout=5, check=False
        )  # an observation's length: two ticks and a half
    assert reads(waiting) - before < 200
