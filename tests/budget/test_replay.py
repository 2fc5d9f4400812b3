"""A log goes through the same functions again: the same grants, or what another policy would have done."""

from __future__ import annotations

from random import Random

import pytest

from contain.budget.arbiter import Ticket
from contain.budget.policy import preset
from contain.budget.replay import Event, Replay, same, what_if
from tests.budget.scene import CALM, GIB

POLICY = preset("shared", 8, 32 * GIB)


def asks(count: int, seed: int = 1) -> list[Event]:
    """Asks of six sessions, and a sample now and then, some of them pressed."""
    dice, at_s, log = Random(seed), 0.0, list[Event]()  # noqa: S311 - a recorded log, no secret
    for n in range(count):
        at_s += dice.choice((0.0, 0.5, 4.0))
        ticket = Ticket(
            id=f"t{n}",
            seq=n + 1,
            session=f"s{dice.randrange(6)}",
            want_units=dice.randrange(1, 5),
            mem_mib=dice.choice((0, 2000, 9000)),
            expected_s=dice.choice((5.0, 30.0)),
        )
        log.append(Event(kind="enqueue", at_s=at_s, id=ticket.id, ticket=ticket))
        if n % 10 == 0:
            sample = CALM.replace(busy=dice.uniform(0, 8), psi_io=dice.choice((0.0, 0.0, 50.0)))
            log.append(Event(kind="sample", at_s=at_s, sample=sample, uses=(("t0", 1.0, 100.0),)))
    return log


def test_a_log_replays_to_the_same_grants() -> None:
    """Byte for byte, for thousands of events; and it is the same twice."""
    log = what_if(asks(1500), POLICY, CALM)
    assert len(log) > 4000
    assert log == what_if(asks(1500), POLICY, CALM)
    assert same(log, POLICY, CALM) == ()


def test_a_changed_log_is_noticed() -> None:
    """One grant with another size, one that was never made, one that is missing."""
    log = what_if(asks(60), POLICY, CALM)
    grants = [n for n, event in enumerate(log) if event.kind == "grant"]
    first = log[grants[0]]
    changed = [*log[: grants[0]], first.replace(units=first.units + 1), *log[grants[0] + 1 :]]
    assert [(one.id, one.recorded, one.decided) for one in same(changed, POLICY, CALM)] == [
        (first.id, first.units + 1, first.units)
    ]
    missing = [event for event in log if event is not first]
    assert [(one.id, one.recorded, one.decided) for one in same(missing, POLICY, CALM)] == [
        (first.id, 0, first.units)
    ]


def test_another_policy_decides_otherwise() -> None:
    """Half of the machine: the same jobs, later."""
    log = what_if(asks(200), POLICY, CALM)
    small = POLICY.replace(base=4, floor=2, ceiling=4)
    slow = what_if(log, small, CALM)
    assert {event.id for event in slow if event.kind == "grant"} == {
        event.id for event in log if event.kind == "grant"
    }
    assert slow[-1].at_s > log[-1].at_s
    assert same(slow, POLICY, CALM) != ()


def test_true_lengths_may_be_given() -> None:
    """What a job takes alone is not what it took in the crowd."""
    log = asks(1)
    done = what_if(log, POLICY, CALM, seconds={"t0": 2.5})
    assert [event.at_s for event in done if event.kind == "release"] == [log[0].at_s + 2.5]


def test_settled_and_left_are_events_too() -> None:
    """A wrapper lets go of units, and a ticket goes: both are decided upon."""
    replay = Replay(POLICY, CALM)
    ticket = Ticket(id="a", seq=1, session="a", want_units=4, resizable=True)
    replay.apply(Event(kind="enqueue", at_s=0.0, ticket=ticket))
    decision = replay.apply(Event(kind="settled", at_s=1.0, id="a", units=4))
    assert decision is not None
    assert replay.snapshot.permits[0].units == POLICY.base, "it grew as soon as it was there"
    replay.apply(Event(kind="enqueue", at_s=2.0, ticket=ticket.replace(id="b", seq=2, session="b")))
    assert replay.snapshot.permits[0].target == 3
    replay.apply(Event(kind="leave", at_s=3.0, id="b"))
    assert replay.snapshot.tickets == ()
    assert replay.apply(Event(kind="grant", at_s=3.0, id="b")) is None


@pytest.mark.parametrize("name", ["shared", "governor", "pacer"])
def test_every_preset_replays(name: str) -> None:
    """And whoever can be granted is, at last."""
    policy = preset(name, 8, 64 * GIB)
    log = what_if(asks(200, seed=3), policy, CALM)
    assert same(log, policy, CALM) == ()
    assert sum(event.kind == "grant" for event in log) == 200
