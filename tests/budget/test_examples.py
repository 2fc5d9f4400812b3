"""The worked examples of the model: six machines, each with its sentence."""

from __future__ import annotations

import pytest

from contain.budget.arbiter import LimitState, Ticket
from contain.budget.policy import preset
from tests.budget.scene import GIB, Scene

LAPTOP = preset("shared", 2, 24 * GIB)
MAC_SHARED = preset("shared", 18, 128 * GIB)
MAC = preset("governor", 18, 128 * GIB)
MINI = preset("pacer", 14, 64 * GIB)
CI = preset("shared", 64, 256 * GIB)


def full(scene: Scene, session: str, *, resizable: bool = False) -> Ticket:
    """A plain full job of the scene's policy."""
    cost = scene.policy.cost("full")
    return scene.waits(session, cost.min_units, cost.want_units, resizable=resizable)


def test_the_laptop_has_its_numbers() -> None:
    """Two cores, 24 GiB: base 2, ceiling 4, floor 3,072 MiB."""
    assert (LAPTOP.base, LAPTOP.ceiling, LAPTOP.mem_floor_mib) == (2, 4, 3072)


def test_make_alone_gets_the_laptop() -> None:
    """Nobody else asks: two units."""
    scene = Scene(LAPTOP)
    full(scene, "make")
    assert scene.units() == [2]


def test_pytest_waits_five_seconds_after_make() -> None:
    """A young make is charged with what it has not taken yet, and the line says so with every number."""
    scene = Scene(LAPTOP).shows(busy=0.2)
    scene.holds("make", 2, age_s=5)
    pytest_ = scene.waits("pytest", 1, 2)
    assert scene.units() == []
    line = "cpu: needs 1, has 0 of 2; above 2 only under 1.4 busy, forecast 2.2"
    assert scene.lines(pytest_) == [line + "; held by make (2)"]


def test_pytest_bursts_while_make_sleeps() -> None:
    """Make has settled and sleeps: pytest gets one above the base."""
    scene = Scene(LAPTOP).shows(busy=0.3)
    scene.holds("make", 2, age_s=90)
    scene.waits("pytest", 1, 2)
    assert [(g.units, g.how) for g in scene.decide().grants] == [(1, "burst")]


def test_both_at_once_get_half() -> None:
    """Two sessions wait: each has its part."""
    scene = Scene(LAPTOP)
    full(scene, "make")
    full(scene, "pytest")
    assert scene.units() == [1, 1]


@pytest.mark.parametrize(("psi_io", "granted", "kinds"), [(80, [1], ["pressure"]), (96, [], ["pressure"])])
def test_foreign_io_leaves_one_or_none(psi_io: int, granted: list[int], kinds: list[str]) -> None:
    """Pressed by others: one at a time. Thrash: nobody."""
    scene = Scene(LAPTOP).shows(psi_io=psi_io)
    first = scene.waits("one", 1, 2)
    second = scene.waits("two", 1, 2)
    assert scene.units() == granted
    assert [reason.kind for reason in scene.why(second)][:1] == kinds
    assert [reason.kind for reason in scene.why(first)] == ([] if granted else ["pressure", "thrash"])


def test_the_mac_has_its_numbers() -> None:
    """Governor, 18 cores, 128 GiB: base 16, ceiling 36, jobs of four."""
    assert (MAC.base, MAC.ceiling, MAC.floor, MAC.cost("full").min_units) == (16, 36, 16, 4)


@pytest.mark.parametrize(
    ("young", "available", "granted"),
    [
        (0, 12_288, [4]),
        (0, 12_287, []),
        (1, 20_480, [4]),
        (1, 20_479, []),
        (2, 100_000, []),
    ],
)
def test_the_macs_burst_is_paced(young: int, available: int, granted: list[int]) -> None:
    """Busy 6.3: each young permit adds its four cores and 8 GiB to what a fifth one needs."""
    scene = Scene(MAC).shows(busy=6.3, load1=0.30 * 18, available_mib=available)
    for n in range(4 + young):
        scene.holds(f"old-{n}", 4, age_s=90 if n < 4 else 10)
    scene.waits("fifth", 4)
    assert scene.units() == granted


@pytest.mark.parametrize(("ratio", "granted"), [(1.48, [4]), (1.5, [4]), (2.4, [4]), (2.99, [4]), (3.0, [])])
def test_the_macs_load_leaves_one(ratio: float, granted: list[int]) -> None:
    """Load1 and charges over 1.5 a core: the first at 1.48 goes, the next would be 30.6 > 27; from 3.0 on none."""
    scene = Scene(MAC).shows(busy=2.0, load1=ratio * 18)
    scene.waits("first", 4)
    scene.waits("second", 4)
    assert scene.units() == granted


def test_ten_suites_on_the_shared_mac() -> None:
    """Base 16, ten of 2..8: eight get two, two wait. Later two burst at 10.5 busy, none at 13."""
    scene = Scene(MAC_SHARED)
    for n in range(10):
        scene.waits(f"s{n}", 2, 8)
    assert scene.policy.base == 16
    assert [grant.units for grant in scene.step().grants] == [2] * 8
    scene.now = scene.now.replace(awake_s=scene.now.awake_s + 120)
    assert [(g.units, g.how) for g in scene.shows(busy=10.5).decide().grants] == [(2, "burst")] * 2
    assert scene.shows(busy=13.0).units() == []


def test_three_typechecks_and_a_lint_on_the_mini() -> None:
    """Base 12, 20 GiB: two typechecks get three units, the third waits for memory and the lint behind it."""
    scene = Scene(MINI)
    assert scene.policy.base == 12
    check, lint = MINI.cost("typecheck"), MINI.cost("lint")
    tickets = [
        scene.waits(f"s{n}", check.min_units, check.want_units, mem_mib=check.mem_mib) for n in range(3)
    ]
    tickets.append(scene.waits("s3", lint.min_units, lint.want_units, mem_mib=lint.mem_mib))
    assert scene.granted() == {"s0-1": 3, "s1-2": 3}
    assert scene.lines(tickets[2])[0].startswith("memory: needs 8,192, has 4,096 of 20,480 MiB")
    assert [(reason.kind, reason.resource) for reason in scene.why(tickets[3])] == [("behind", "memory")]


def test_the_mini_shrinks_by_quarters() -> None:
    """Pressed by our own work: 12, 9, 7; ten seconds apart, and never below the floor."""
    scene = Scene(MINI).shows(busy=13.0, load1=80.0)
    scene.holds("ours", 12, cpu=12.0)
    assert [scene.step(10).limit.limit for _ in range(4)] == [9, 7, 7, 7]


def test_a_gpu_head_on_the_ci_machine() -> None:
    """Base 56. A head that waits for the gpu keeps its four units; the next gets its part of three."""
    policy = CI.replace(pools=(*CI.pools, ("gpu", 1)))
    assert policy.base == 56
    scene = Scene(policy)
    scene.holds("trainer", 4, draws=(("gpu", 1),))
    head = scene.waits("head", 4, draws=(("gpu", 1),))
    full(scene, "next")
    assert scene.granted() == {"next-3": 18}
    assert [(r.kind, r.resource, r.need, r.has) for r in scene.why(head)] == [("pool", "gpu", 1, 0)]
    full(scene, "last")
    many = Scene(policy)
    many.holds("trainer", 48, draws=(("gpu", 1),))
    many.waits("head", 4, draws=(("gpu", 1),))
    many.waits("next", 4, 28)
    assert many.units() == [4], "eight are left, of which four are the head's"


def test_alone_on_the_ci_machine() -> None:
    """28 at first; a resizable permit grows to the whole base while nobody waits, and goes back when one does."""
    scene = Scene(CI)
    ticket = full(scene, "alone", resizable=True)
    assert [grant.units for grant in scene.step().grants] == [28]
    assert scene.step().targets == ((ticket.id, 56),)
    assert scene.step(1).targets == ()
    full(scene, "second")
    decision = scene.step()
    assert (decision.grants, decision.targets) == ((), ((ticket.id, 28),))
    assert scene.snapshot.permits[0].units == 56, "accounted until the wrapper has let go"


def test_a_head_short_of_memory_lets_light_pass() -> None:
    """Whoever draws memory is behind it; a light job that draws none is not."""
    scene = Scene(CI).shows(available_mib=8_000)
    scene.waits("head", 1, mem_mib=6_000)
    behind = scene.waits("behind", 1, mem_mib=1_000)
    scene.waits("light", 0, lane="light", draws=(("lane:light", 1),))
    assert list(scene.granted()) == ["light-3"]
    assert [(reason.kind, reason.resource) for reason in scene.why(behind)] == [("behind", "available")]


def test_the_limit_comes_back_step_by_step() -> None:
    """Sixty seconds after the last pressed look it rises by one in ten seconds, looked at or not."""
    scene = Scene(MINI)
    scene.snapshot = scene.snapshot.replace(
        limit=LimitState(limit=7, changed_at_s=scene.now.awake_s, pressed_at_s=scene.now.awake_s)
    )
    seen = [scene.step(seconds).limit.limit for seconds in (59, 1, 9, 1, 25, 5, 1000)]
    assert seen == [7, 7, 7, 8, 10, 11, 12]
    idle = Scene(MINI).shows(busy=13.0, load1=80.0)
    assert idle.step(1000).limit.limit == 12, "nothing of ours runs: nothing to shrink"
