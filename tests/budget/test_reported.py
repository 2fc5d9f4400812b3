"""What users of other tools report (docs/SCENARIOS.md, second table), as decisions: each row is a machine in a line."""

from __future__ import annotations

import pytest

from contain.budget.policy import preset
from tests.budget.scene import GIB, Scene

EIGHT = preset("shared", 8, 32 * GIB)
LAPTOP = preset("shared", 2, 24 * GIB)


def test_a_stale_load_alone_refuses_nobody() -> None:
    """Load1 tells of a minute ago: nine a core, while nothing is busy or stalled, is over."""
    scene = Scene(EIGHT).shows(load1=9.0 * 8, busy=0.4)
    scene.holds("other", 1)
    scene.waits("next", 1)
    assert scene.units() == [1]
    assert scene.shows(busy=7.9).units() == [], "the control: busy as well, it is true"


def test_idle_cores_are_no_excuse_for_a_stalled_disk() -> None:
    """Two thirds of the time nobody gets on for io, and the processor idles: the second waits, and the line says io."""
    scene = Scene(EIGHT).shows(psi_io=66.0, busy=0.4)
    scene.holds("ld", 1)
    second = scene.waits("next", 1)
    assert scene.units() == []
    assert scene.lines(second) == ["pressure: psi-io is 66, the mark is 40"]


@pytest.mark.parametrize("lane", ["full", "light"])
def test_no_memory_no_grant_by_any_way(lane: str) -> None:
    """200 MiB: whoever asks, and also where nothing else runs, the reason is memory, with both numbers."""
    scene = Scene(LAPTOP).shows(available_mib=200)
    ticket = (
        scene.waits("next", 1)
        if lane == "full"
        else scene.waits("next", 0, lane="light", draws=(("lane:light", 1),))
    )
    assert scene.units() == []
    assert scene.lines(ticket)[0] == "available memory: needs 3,072, has 200 MiB"


def test_memory_that_is_not_taken_yet_is_charged() -> None:
    """Five of 4 GiB that take it seconds later: no more start than there is memory for, though all of it looks free."""
    scene = Scene(EIGHT).shows(available_mib=20 * GIB)
    for n in range(5):
        scene.waits(f"s{n}", 1, mem_mib=4 * GIB)
    started = scene.step().grants
    assert len(started) == 4, "20 GiB less a floor of 4"
    assert scene.units() == []


def test_memory_that_others_take_pauses_us() -> None:
    """A stranger eats what was free: new work waits, what runs goes on, and it ends when he does."""
    scene = Scene(LAPTOP)
    scene.waits("first", 1)
    scene.step()
    scene.shows(available_mib=2_000)
    scene.waits("second", 1)
    assert scene.step(120).grants == ()
    assert len(scene.snapshot.permits) == 1
    assert [grant.units for grant in scene.shows(available_mib=20_000).decide().grants] == [1]


def test_load_that_is_not_ours_does_not_shrink_us() -> None:
    """2.5 a core of somebody else for ten minutes, while one small job of ours runs: the limit stays the base."""
    scene = Scene(EIGHT).shows(load1=2.5 * 8, busy=8.0, psi_cpu=70.0)
    scene.holds("ours", 1, cpu=1.0)
    assert [scene.step(10).limit.limit for _ in range(60)] == [EIGHT.base] * 60
    scene.holds("ours too", 6, cpu=6.0)
    assert scene.step(10).limit.limit < EIGHT.base, "the control: load of our own does"


def test_thirty_on_an_idle_machine_do_not_start_at_once() -> None:
    """What each may take is charged before it is seen: in the first minute there are as many as the base."""
    scene = Scene(EIGHT)
    for n in range(30):
        scene.waits(f"s{n}", 1)
    first = [len(scene.step(1).grants) for _ in range(59)]
    assert sum(first) == EIGHT.base
    assert first[0] == EIGHT.base


def test_light_work_runs_beside_a_full_machine() -> None:
    """As many as the lane has: they take no unit, and nobody is asked whose they are."""
    scene = Scene(preset("shared", 32, 128 * GIB))
    scene.holds("gate", scene.policy.base)
    for n in range(9):
        scene.waits(f"s{n}", 0, lane="light", draws=(("lane:light", 1),))
    assert scene.units() == [0] * 8


def test_a_head_that_waits_for_a_port_lets_others_by() -> None:
    """Two who need one port never overlap; who needs none does not wait for it."""
    scene = Scene(EIGHT)
    scene.holds("server", 1, draws=(("port:6298", 1),))
    scene.waits("same port", 1, draws=(("port:6298", 1),))
    scene.waits("other port", 1, draws=(("port:6299", 1),))
    scene.waits("no port", 1)
    assert sorted(scene.granted()) == ["no port-4", "other port-3"]
