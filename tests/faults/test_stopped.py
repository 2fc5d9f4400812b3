"""Who holds the lock, looks for all, was granted or judges, and is stopped or killed just then."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.budget.customer import desk
from tests.budget.shop import Customer, open_shop
from tests.session import WAIT_S, Session, kill, wait_until
from tests.survivors import stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.budget.shop import Shop

pytestmark = pytest.mark.timeout(200)
"""Many processes are started here, and a busy machine takes its time for each."""

HURRIED = (sys.executable, "-m", "tests.faults.hurried", "0.03")
SILENT = (sys.executable, "-m", "tests.faults.silent_judge")


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    """A registry of two units."""
    with open_shop(tmp_path / "registry") as made:
        yield made


@pytest.fixture
def bound(shop: Shop, receipts: Path) -> Iterator[dict[str, Session]]:
    """X and y hold the two units, each bound to a containment of its own that runs."""
    with Session(receipts) as first, Session(receipts) as second:
        sessions = {"x": first, "y": second}
        for name, session in sessions.items():
            shop.comes(name).hears("granted")
            bind(shop, name, session.start("sleep", "1000"))
        yield sessions


def bind(shop: Shop, name: str, prepared: dict[str, object]) -> None:
    """What a wrapper does with the proof of its containment."""
    proof = json.dumps(prepared["namespaceInit"])
    desk(str(shop.folder)).bind(name, proof, "", str(prepared["id"]))


def inside(shop: Shop, number: int) -> subprocess.Popen[str]:
    """A process that has got this signal while it held the lock."""
    words = [sys.executable, "-m", "tests.faults.in_the_lock", str(shop.folder), str(int(number))]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    return process


def test_a_stopped_holder_of_the_lock_is_named_and_then_the_wait_fails(shop: Shop) -> None:
    """After 5 s and 60 s (here: a part of them). When it goes on, so does everybody."""
    with inside(shop, signal.SIGSTOP) as holder:
        try:
            late = Customer(shop.folder, "late", HURRIED).hears("asking")
            told, error = late.process.communicate(timeout=WAIT_S)
            assert told == f"waiting for the registry's lock, which process {holder.pid} holds\n"
            assert f"LockUnavailable: process {holder.pid} has held the registry's lock" in error
        finally:
            kill(holder.pid, signal.SIGCONT)
        shop.comes("next").hears("granted")
        assert shop.stands() == (["half-written", "next"], [])
        holder.communicate("\n", timeout=WAIT_S)


@pytest.mark.slow
@pytest.mark.timeout(200)
def test_the_wait_for_a_stopped_holder_is_a_minute(shop: Shop) -> None:
    """The same with the patience that everybody has: once a minute, and not again for the withdrawal."""
    with inside(shop, signal.SIGSTOP) as holder:
        late = Customer(shop.folder, "late").hears("asking")
        assert "has held the registry's lock" in late.process.communicate(timeout=100)[1]
        kill(holder.pid)


def test_a_killed_holder_of_the_lock_has_changed_nothing(shop: Shop) -> None:
    """The lock is free at once, and what it had half written is not there."""
    with inside(shop, signal.SIGKILL) as holder:
        holder.wait(WAIT_S)
    shop.comes("next").hears("granted")
    assert shop.stands() == (["next"], [])


@pytest.mark.parametrize("between", [False, True], ids=["second", "third-that-became-second"])
def test_the_second_in_line_takes_over_from_a_stopped_sentinel(
    shop: Shop, bound: dict[str, Session], *, between: bool
) -> None:
    """What ends is noticed, the grant to the one that is stopped goes back, and that one is not forgotten."""
    first = shop.comes("a")
    shop.waits("a")
    if between:
        other = shop.comes("between")
        shop.waits("a", "between")
    second = shop.comes("b", HURRIED)
    wait_until(lambda: shop.stands()[1][-1] == "b", what="b waits")
    if between:
        stop(other.process.pid)  # so that its end tells nobody that it has left
        desk(str(shop.folder)).withdraw("between", "as an operator would")
    stop(first.process.pid)
    kill(shop.customers[0].process.pid)
    bound["x"].close()
    second.hears("granted")
    assert shop.stands() == (["b", "y"], ["a"])
    kill(first.process.pid, signal.SIGCONT)
    shop.customers[1].give_back()
    first.hears("granted")
    assert shop.stands() == (["a", "b"], [])


def test_a_judge_that_dies_before_the_bell_has_granted_all_the_same(shop: Shop) -> None:
    """What it committed is found by who was granted."""
    silent = shop.comes("x", SILENT).hears("granted")
    shop.comes("y").hears("granted")
    waiting = shop.comes("a")
    shop.waits("a")
    silent.give_back()
    assert silent.process.returncode == -signal.SIGKILL
    assert shop.stands() == (["a", "y"], [])
    waiting.hears("granted")


def test_a_permit_stays_while_the_tree_of_a_killed_owner_lives(shop: Shop, bound: dict[str, Session]) -> None:
    """Its state is cleanup; it returns when the kernel says that the tree is gone."""
    first = shop.comes("a")
    shop.waits("a")
    kill(shop.customers[0].process.pid)
    wait_until(lambda: state(shop, "x") == "cleanup", what="the owner's end is seen")
    assert shop.stands() == (["x", "y"], ["a"])
    bound["x"].close()
    first.hears("granted")
    assert shop.stands() == (["a", "y"], [])


def test_who_watches_another_place_is_told(shop: Shop, receipts: Path) -> None:
    """The last in line watches one that is granted before its predecessors; those and a holder are killed at once.

    Fair order: o has had nothing yet, so its ask goes before the second ones of s. Whoever does not know that it is
    the first now sleeps until somebody returns a permit, which may be in an hour.
    """
    holders = [shop.comes("s.0").hears("granted"), shop.comes("s.1").hears("granted")]
    with Session(receipts) as tree:
        bind(shop, "s.1", tree.start("sleep", "1000"))
        waiting = [shop.comes("s.2")]
        shop.waits("s.2")
        waiting.append(shop.comes("s.3"))
        shop.waits("s.2", "s.3")
        early = shop.comes("o.0")
        shop.waits("s.2", "s.3", "o.0")
        last = shop.comes("p.0")
        shop.waits("s.2", "s.3", "o.0", "p.0")
        holders[0].give_back()
        early.hears("granted")
        for one in (*waiting, holders[1]):
            kill(one.process.pid)
    last.hears("granted")
    desk(str(shop.folder)).tick()  # whoever asks next: a dead ticket is in nobody's way until then
    assert shop.stands() == (["o.0", "p.0"], [])


def state(shop: Shop, name: str) -> str:
    """The state of a permit."""
    return desk(str(shop.folder)).look().permits[name].permit.state
