"""The rest of the model, rule by rule: holds, pools and their health, order, overtaking, service, targets, wake."""

from __future__ import annotations

from typing import Any

import pytest

from contain.budget.arbiter import (
    Health,
    Hold,
    Unknown,
    after,
    decide,
    enqueue,
    free,
    leave,
    never,
    release,
    render,
    settled,
    ticket_of,
)
from contain.budget.policy import ClassCost, preset
from tests.budget.scene import GIB, NOW_S, Scene

EIGHT = preset("shared", 8, 64 * GIB).replace(
    base=8,
    floor=4,
    ceiling=8,
    pools=(("gpu", 1), ("seat", 2), ("lane:light", 2), ("lane:long", 4), ("port:*", 1)),
)
"""Eight units without burst: what is granted is counted by hand."""
GPU = (("gpu", 1),)
SEAT = (("seat", 1),)


def hold(*covers: str, until_s: float = NOW_S + 60) -> Hold:
    """An operator's hold."""
    return Hold(id="h", owner="ann", reason="deploy", until_s=until_s, covers=covers)


@pytest.mark.parametrize(
    ("covers", "granted"), [((), []), (("full",), []), (("light",), [8]), (("gpu",), [8])]
)
def test_a_hold_covers_lanes(covers: tuple[str, ...], granted: list[int]) -> None:
    """What it covers waits, with the owner, the reason and the time that is left."""
    scene = Scene(EIGHT, holds=(hold(*covers),))
    ticket = scene.waits("s", 1, 8)
    assert scene.units() == granted
    if not granted:
        covered = ", ".join(covers) or "all"
        assert scene.lines(ticket) == [f"hold: ann holds {covered}: deploy, for another 60 s"]


def test_a_hold_ends_by_the_wall() -> None:
    """At its time, not after."""
    scene = Scene(EIGHT, holds=(hold(until_s=NOW_S),))
    scene.waits("s", 1)
    assert scene.units() == [1]


def test_who_is_on_hold_reserves_nothing() -> None:
    """No release can help it: keeping cores for it would only idle them."""
    scene = Scene(EIGHT, holds=(hold("long"),))
    scene.waits("s", 4, lane="long", unit_draws=("lane:long",))
    scene.waits("t", 1, 8)
    assert scene.units() == [8]


@pytest.mark.parametrize(
    ("health", "said"),
    [
        (
            Health(reason="429 from the provider", until_s=NOW_S + 30),
            "cooling: 429 from the provider, for another 30 s",
        ),
        (Health(reason="died at once, twice"), "quarantined: died at once, twice"),
    ],
)
def test_an_ill_pool_grants_nothing(health: Health, said: str) -> None:
    """Its tickets wait with the reason, and reserve nothing; `free` is 0; the holders are named."""
    scene = Scene(EIGHT, health={"seat": health})
    scene.holds("running", 1, draws=SEAT, holder="writer")
    ticket = scene.waits("s", 4, draws=SEAT)
    scene.waits("running", 1, 7)
    assert scene.granted() == {"running-3": 7}
    assert scene.lines(ticket) == [f"pool seat: needs 1, has 0 of 0; {said}; held by writer (1)"]
    asked = ClassCost(name="agent", draws=SEAT)
    assert free(scene.snapshot, scene.sample, EIGHT, scene.now, asked, "u") == 0


def test_a_pool_that_has_cooled_grants_again() -> None:
    """At its time."""
    scene = Scene(EIGHT, health={"seat": Health(reason="429", until_s=NOW_S)})
    scene.waits("s", 1, draws=SEAT)
    assert scene.units() == [1]


def test_ports_are_a_family_of_pools() -> None:
    """Each port is its own, of size 1, declared once for all."""
    scene = Scene(EIGHT)
    for session, port in (("a", 6298), ("b", 6298), ("c", 6299)):
        scene.waits(session, 1, draws=((f"port:{port}", 1),))
    assert list(scene.granted()) == ["a-1", "c-3"]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"draws": (("gpu", 2),)}, "impossible: needs 2 of gpu, and the policy has 1"),
        ({"draws": (("tpu", 1),)}, "impossible: needs 1 of tpu, and the policy has none"),
        ({"mem_mib": 1 << 20}, "impossible: needs 1,048,576 MiB of memory, and the policy has 49,152"),
        ({"unit_draws": ("lane:long",)}, "impossible: needs 8 of lane:long, and the policy has 4"),
    ],
)
def test_the_impossible_is_told_at_once(fields: dict[str, Any], line: str) -> None:
    """More than the whole: named for refusal, and never in anybody's way."""
    scene = Scene(EIGHT)
    ticket = scene.waits("s", 8, **fields)
    scene.waits("t", 1)
    decision = scene.decide()
    assert decision.impossible == (ticket.id,)
    assert [grant.ticket.session for grant in decision.grants] == ["t"]
    assert line in scene.lines(ticket)
    assert [render(reason, scene.now) for reason in never(EIGHT, ticket)] == [line]
    assert never(EIGHT, ticket.replace(mem_mib=0, draws=(), unit_draws=())) == ()


def test_a_pool_that_the_policy_lacks_makes_no_free_job() -> None:
    """A class that draws its units from it is impossible, and never a class without units."""
    asked = ClassCost(name="x", min_units=2, want_units=4, unit_draws=("lane:none",))
    ticket = ticket_of(EIGHT, asked, "s", 1, "x")
    assert ticket.min_units == 1
    scene = Scene(EIGHT)
    scene.snapshot = enqueue(scene.snapshot, ticket, EIGHT)
    assert scene.decide().impossible == ("x",)
    assert free(scene.snapshot, scene.sample, EIGHT, scene.now, asked, "s") == 0


def test_open_permits_count() -> None:
    """Who ran without a grant when its time was over has its units all the same, above the limit and marked."""
    scene = Scene(EIGHT)
    scene.holds("a", 8)
    scene.holds("b", 4, how="open")
    scene.waits("c", 1)
    assert scene.units() == []
    assert scene.decide().limit.limit == 8


def test_a_minimum_above_the_base_is_clamped() -> None:
    """The policy may have become smaller than the ticket."""
    scene = Scene(EIGHT)
    scene.waits("s", 20)
    assert scene.units() == [8]


def test_long_draws_its_units() -> None:
    """Half of the base at most, however many sessions want more."""
    scene = Scene(EIGHT)
    scene.waits("s", 1, 8, lane="long", unit_draws=("lane:long",))
    scene.waits("t", 1, 8, lane="long", unit_draws=("lane:long",))
    scene.waits("u", 1, 8)
    assert scene.granted() == {"s-1": 2, "t-2": 2, "u-3": 2}
    alone = Scene(EIGHT)
    alone.waits("s", 1, 8, lane="long", unit_draws=("lane:long",))
    assert alone.units() == [4]


def test_a_lane_follows_the_limit_where_the_policy_says_so() -> None:
    """The pacer's long lane is half of the limit in force."""
    policy = preset("pacer", 14, 64 * GIB)
    for limit, units in ((12, 4), (7, 3)):
        scene = Scene(policy, limit=limit)
        scene.snapshot = scene.snapshot.replace(
            limit=scene.snapshot.limit.replace(pressed_at_s=NOW_S, changed_at_s=NOW_S)
        )
        scene.waits("s", 1, 8, lane="long", unit_draws=("lane:long",))
        assert scene.units() == [units]


def test_a_queue_for_one_gpu_keeps_one_share_of_cores() -> None:
    """Of three who wait for it only the first could start when it comes back: the others keep no cores."""
    scene = Scene(EIGHT)
    scene.holds("trainer", 1, draws=GPU)
    for session in "abc":
        scene.waits(session, 2, draws=GPU)
    scene.waits("other", 1, 5)
    assert scene.granted() == {"other-5": 1}, "its part of five sessions"
    wide = Scene(EIGHT.replace(order="fifo"))
    wide.holds("trainer", 1, draws=GPU)
    for session in "abc":
        wide.waits(session, 2, draws=GPU)
    wide.waits("other", 1, 8)
    assert wide.granted() == {"other-5": 5}, "eight, less the trainer's one and the head's two"


def test_nobody_overtakes_on_what_is_short() -> None:
    """A head that needs six of the five that are free: a later ask for one waits behind it, and is told so."""
    scene = Scene(EIGHT)
    scene.holds("old", 3)
    scene.waits("head", 6)
    small = scene.waits("small", 1)
    assert scene.units() == []
    assert scene.lines(small) == ["behind those ahead in cpu: needs 1, has 0 of 8; waited for by head (6)"]


def test_an_unknown_cpu_guards_cpu_only() -> None:
    """Light draws none and starts; everybody else waits for the sensor."""
    scene = Scene(EIGHT).shows(busy=Unknown(why="EIO"))
    full = scene.waits("full", 1)
    scene.waits("light", 0, lane="light", draws=(("lane:light", 1),))
    assert list(scene.granted()) == ["light-2"]
    assert scene.lines(full) == ["unknown: the sensor for cpu exists and failed: EIO"]


def test_dormant_tickets_are_skipped() -> None:
    """Not granted, nothing reserved, no session of theirs active, not overtaken; `explain` says it."""
    scene = Scene(EIGHT)
    asleep = scene.waits("asleep", 8, dormant=True)
    scene.waits("awake", 1, 8)
    assert scene.units() == [8]
    assert scene.lines(asleep) == ["dormant: its owner did not answer; it is skipped until that speaks"]
    scene.step()
    assert scene.snapshot.overtaken == {}


def test_the_session_with_less_service_goes_first() -> None:
    """Within one session by seq; a grant counts before the next is looked at."""
    scene = Scene(EIGHT)
    for session in "aabb":
        scene.waits(session, 2, expected_s=60)
    scene.snapshot = scene.snapshot.replace(service={"a": 30.0, "b": 0.0})
    order = [grant.ticket.id for grant in scene.decide().grants]
    assert order == ["b-3", "b-4", "a-1", "a-2"], "b after one grant has 15, after two 30 and the later seq"


def test_the_due_goes_first() -> None:
    """Overtaken by sixteen times its own cost: nobody passes any more, whatever its session has used."""
    scene = Scene(EIGHT)
    scene.waits("greedy", 4, expected_s=60)
    scene.waits("modest", 8)
    scene.snapshot = scene.snapshot.replace(service={"greedy": 1e9}, overtaken={1: 16.0})
    assert list(scene.granted()) == ["greedy-1"]
    scene.snapshot = scene.snapshot.replace(overtaken={1: 15.9})
    assert list(scene.granted()) == ["modest-2"]


def test_overtaking_is_counted_by_cost() -> None:
    """Grants to a later seq count in its own cost, for the first of each session that waits; who left is forgotten."""
    scene = Scene(EIGHT)
    scene.holds("old", 1)
    for session, units in (("b", 8), ("b", 8), ("a", 3), ("c", 2), ("c", 8)):
        scene.waits(session, units, expected_s=80)
    scene.snapshot = scene.snapshot.replace(service={"a": 5.0, "b": 9.0, "c": 6.0, "old": 1.0})
    assert [grant.ticket.id for grant in scene.step().grants] == ["a-4", "c-5"]
    assert scene.snapshot.overtaken == {2: 5 / 8}
    assert leave(scene.snapshot, "b-2").overtaken == {}


def test_a_light_grant_is_overtaking_too() -> None:
    """It costs no service, but who waits for the lane was passed: one unit's cost."""
    scene = Scene(EIGHT)
    light: dict[str, Any] = {"lane": "light", "draws": (("lane:light", 1),), "expected_s": 8.0}
    for session in ("asleep", "b", "c"):
        scene.waits(session, 0, **light, dormant=session == "asleep")
    scene.holds("other", 0, draws=(("lane:light", 1),))
    scene.snapshot = scene.snapshot.replace(service={"b": 9.0})
    assert [grant.ticket.session for grant in scene.step().grants] == ["c"]
    assert scene.snapshot.overtaken == {2: 1.0}
    assert scene.snapshot.service["c"] == 0.0


def test_service_is_charged_and_corrected() -> None:
    """Half the machine for an expected minute is 30 s; it ran 20 s: 10 s."""
    scene = Scene(EIGHT)
    scene.waits("s", 4, expected_s=60)
    scene.step()
    assert scene.snapshot.service == {"s": 30.0}
    later = scene.now.replace(awake_s=scene.now.awake_s + 20)
    assert release(scene.snapshot, "s-1", EIGHT, later).service == {"s": pytest.approx(10.0)}


def test_memory_is_service_too() -> None:
    """One unit with half of the memory is half of the machine."""
    scene = Scene(EIGHT)
    budget = EIGHT.mem_budget_mib
    assert budget is not None
    scene.waits("s", 1, mem_mib=budget // 2, expected_s=60)
    scene.step()
    assert scene.snapshot.service == {"s": 30.0}


def test_a_resize_closes_an_account() -> None:
    """Eight units for 10 s and then four for 10 s: 15 s of the machine."""
    scene = Scene(EIGHT)
    scene.waits("s", 8, expected_s=60)
    scene.step()
    middle = scene.now.replace(awake_s=scene.now.awake_s + 10)
    end = scene.now.replace(awake_s=scene.now.awake_s + 20)
    permit = settled(scene.snapshot.permits[0], EIGHT, middle, 4)
    snapshot = scene.snapshot.replace(permits=(permit,))
    assert release(snapshot, "s-1", EIGHT, end).service == {"s": pytest.approx(15.0)}


def test_a_new_session_starts_at_the_smallest_service() -> None:
    """It gains nothing by being new, and loses nothing; one that owes goes on owing."""
    scene = Scene(EIGHT, service={"a": 40.0, "b": 70.0, "old": 90.0})
    scene.holds("a", 1)
    scene.holds("b", 1)
    for session, service in (("new", 40.0), ("old", 90.0)):
        joined = enqueue(scene.snapshot, scene.waits(session, 1).replace(id="again", seq=99), EIGHT)
        assert joined.service[session] == service


def test_targets_go_back_to_the_part_and_not_below_the_minimum() -> None:
    """Two resizable permits, one session waiting: a part is two of eight."""
    scene = Scene(EIGHT)
    scene.holds("a", 5, resizable=True, min_units=1)
    scene.holds("b", 3, resizable=True, min_units=3)
    scene.waits("c", 1)
    decision = scene.decide()
    assert decision.targets == (("a-1", 2),)
    scene.snapshot = after(scene.snapshot, decision, EIGHT, scene.now)
    assert scene.units() == [], "still accounted"
    first, second = scene.snapshot.permits
    scene.snapshot = scene.snapshot.replace(permits=(settled(first, EIGHT, scene.now, 2), second))
    assert scene.units() == [1]


def test_the_smallest_grows_first() -> None:
    """Two free units among three and one: one gets both; no growth while pressed, and none of what is reserved."""
    scene = Scene(EIGHT)
    scene.holds("a", 5, resizable=True)
    scene.holds("b", 1, resizable=True)
    assert scene.decide().targets == (("b-2", 3),)
    assert scene.shows(psi_io=50).decide().targets == ()
    scene.shows(psi_io=0).waits("gpu", 2, mem_mib=2000)
    scene.shows(available_mib=0)
    assert scene.decide().targets == ()


def test_light_waiting_does_not_stop_growth() -> None:
    """It waits for its lane, not for cpu."""
    scene = Scene(EIGHT)
    scene.holds("a", 5, resizable=True)
    scene.holds("l", 0, draws=(("lane:light", 2),))
    scene.waits("m", 0, lane="light", draws=(("lane:light", 1),))
    assert scene.decide().targets == (("a-1", 8),)


def test_wake_names_whoever_must_look() -> None:
    """All granted and unbound, old and new; the oldest who waits; who has a new target. Nobody twice."""
    scene = Scene(EIGHT)
    scene.holds("unbound", 1, state="granted")
    scene.holds("big", 5, resizable=True)
    scene.waits("asleep", 1, dormant=True)
    scene.waits("new", 1)
    scene.waits("sentinel", 8)
    scene.waits("last", 8)
    assert scene.decide().wake == ("unbound-1", "new-4", "sentinel-5", "big-2")


def test_what_is_said_twice_is_decided_twice_the_same() -> None:
    """Deciding again on what was applied grants nothing more."""
    scene = Scene(EIGHT)
    for n in range(12):
        scene.waits(f"s{n}", 2, 3)
    assert scene.step().grants
    assert scene.decide().grants == ()
    assert decide(scene.snapshot, scene.sample, EIGHT, scene.now) == scene.decide()
