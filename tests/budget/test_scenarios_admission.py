"""Scenarios of admission between real processes and one real registry: the machine that they see is given to them."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.budget.customer import UNITS
from tests.budget.shop import Shop
from tests.session import WAIT_S, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CALM, BUSY = 0.1 * UNITS, 0.8 * UNITS


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A registry of two units, and everybody who came."""
    folder = tmp_path / "registry"
    folder.mkdir(mode=0o700)
    with ExitStack() as stack:
        yield Shop(folder, stack)


def test_a_calm_machine_bursts_up_to_the_ceiling(shop: Shop) -> None:
    """Two above the base, and not one more, also when everybody has looked again."""
    seen = {"ceiling": UNITS + 2, "settle_s": 0, "busy": 0.0}
    granted = [shop.comes(name, numbers=seen).hears("granted") for name in "abcd"]
    last = shop.comes("e", numbers=seen)
    shop.waits("e")
    assert shop.stands() == (["a", "b", "c", "d"], ["e"])
    granted[0].give_back()
    last.hears("granted")
    assert shop.stands() == (["b", "c", "d", "e"], [])


@pytest.mark.parametrize(
    ("busy", "available_mib", "bursts"), [(BUSY, 65_536, False), (CALM, 4_096, False), (CALM, 65_536, True)]
)
def test_a_burst_needs_idle_cores_and_memory(
    shop: Shop, busy: float, available_mib: int, *, bursts: bool
) -> None:
    """A machine of 80 % has none, nor has one with 4 GiB; the base has both."""
    seen = {"ceiling": UNITS + 1, "settle_s": 0, "busy": busy, "available_mib": available_mib}
    for name in "ab":
        shop.comes(name, numbers=seen).hears("granted")
    third = shop.comes("c", numbers=seen)
    if bursts:
        third.hears("granted")
    shop.waits(*([] if bursts else ["c"]))
    assert shop.stands()[0] == (["a", "b", "c"] if bursts else ["a", "b"])


def test_what_is_young_is_charged(shop: Shop) -> None:
    """Half busy, and two are younger than a minute: the third waits. Who charges nothing is granted there."""
    seen = {"ceiling": UNITS + 1, "busy": 0.5 * UNITS, "load1": 0.5 * UNITS}
    for name in "ab":
        shop.comes(name, numbers=seen).hears("granted")
    third = shop.comes("c", numbers=seen)
    shop.waits("c")
    kill(third.process.pid, signal.SIGINT)
    assert third.process.wait(WAIT_S) != 0
    assert shop.stands() == (["a", "b"], [])
    shop.comes("d", numbers={**seen, "settle_s": 0}).hears("granted")


def test_light_waits_for_memory(shop: Shop) -> None:
    """Of 1,024 MiB nobody gets anything: it waits, is in the queue, and is withdrawn by a signal."""
    light = shop.comes("a", numbers={"light": 1, "available_mib": 1_024})
    shop.waits("a")
    kill(light.process.pid, signal.SIGINT)
    assert light.process.wait(WAIT_S) != 0
    assert shop.stands() == ([], [])
    shop.comes("b", numbers={"light": 1}).hears("granted")


def test_two_wait_under_foreign_load_and_one_goes_when_it_falls(shop: Shop) -> None:
    """Neither waits for the other to be quiet: who sees the calm machine is granted, and the next by his return."""
    pressed = {"floor": UNITS, "busy": 1.0 * UNITS, "load1": 2.0 * UNITS}
    first = shop.comes("a", numbers=pressed).hears("granted")  # one-progress
    for name in "bc":
        shop.comes(name, numbers=pressed)
    shop.waits("b", "c")
    calm = shop.comes("d", numbers={"floor": UNITS})
    wait_until(lambda: len(shop.stands()[0]) == UNITS, what="one more has a permit")
    assert "a" in shop.stands()[0]
    first.give_back()
    assert calm.process.poll() is None
