"""The governor's worked examples, from the peer whose rules the preset keeps: jobs of P = min(4, C) cores."""

from __future__ import annotations

import pytest

from contain.budget.arbiter import Disk, Unknown
from contain.budget.policy import preset
from tests.budget.scene import GIB, Scene

C = 18
MAC = preset("governor", C, 128 * GIB)
OPEN = 100_000
"""MiB available: enough for every burst."""


@pytest.mark.parametrize(
    ("cores", "memory_gib", "ceiling", "base", "simulators"),
    [
        (2, 4, 1, 1, 1),
        (4, 8, 1, 1, 1),
        (4, 16, 1, 1, 1),
        (8, 32, 2, 1, 1),
        (16, 64, 5, 2, 1),
        (18, 128, 9, 4, 1),
        (64, 256, 21, 10, 3),
    ],
)
def test_sizes_of_machines(cores: int, memory_gib: int, ceiling: int, base: int, simulators: int) -> None:
    """Ceiling and base in jobs, light like the base, two servers, and the simulators."""
    policy = preset("governor", cores, memory_gib * GIB)
    part = min(4, cores)
    assert (policy.ceiling // part, policy.base // part) == (ceiling, base)
    assert (policy.size("lane:light"), policy.size("lane:server")) == (base, 2)
    assert policy.size("simulator") == simulators


@pytest.mark.parametrize(
    ("load", "available", "granted"),
    [(1.5, 4096, [4]), (1.501, 4096, []), (1.5, 4095, []), (0.1, 4095, []), (0.1, 4096, [4])],
)
def test_a_mark_that_is_met_exactly_passes(load: float, available: int, granted: list[int]) -> None:
    """Healthy is: load not over its mark, memory not under its floor. Somebody settled runs, so no one-progress."""
    scene = Scene(MAC).shows(busy=2.0, load1=load * C, available_mib=available)
    scene.holds("old", 4)
    scene.waits("next", 4)
    assert scene.units() == granted


@pytest.mark.parametrize("failed", ["load1", "available_mib"])
def test_an_invalid_sample_refuses(failed: str) -> None:
    """A probe that failed is unknown, and unknown admits nobody, base or not."""
    scene = Scene(MAC).shows(**{failed: Unknown(why="timed out after 2 s")})
    ticket = scene.waits("first", 4)
    assert scene.units() == []
    assert [reason.kind for reason in scene.why(ticket)] == ["unknown"]
    assert "timed out after 2 s" in scene.lines(ticket)[0]


@pytest.mark.parametrize("busy", [None, Unknown(why="the first look only opens a window")])
def test_without_a_busy_share_there_is_no_burst(busy: Unknown | None) -> None:
    """The base is granted all the same."""
    scene = Scene(MAC).shows(busy=busy, load1=0.0, available_mib=OPEN)
    for n in range(5):
        scene.waits(f"s{n}", 4)
    assert scene.units() == [4] * 4


@pytest.mark.parametrize(
    ("held", "granted"), [(8, [4]), (9, [])], ids=["under the ceiling", "at the ceiling"]
)
def test_the_ceiling_is_nine_jobs(held: int, granted: list[int]) -> None:
    """However calm the machine is."""
    scene = Scene(MAC).shows(busy=0.0, load1=0.0, available_mib=OPEN)
    for n in range(held):
        scene.holds(f"old-{n}", 4)
    scene.waits("next", 4)
    assert scene.units() == granted


@pytest.mark.parametrize(
    ("young", "available", "granted"),
    [(0, 12_288, [4]), (0, 12_287, []), (1, 20_480, [4]), (1, 20_479, []), (2, OPEN, [])],
)
def test_a_burst_takes_the_larger_of_load_and_busy(young: int, available: int, granted: list[int]) -> None:
    """.30 load, .35 busy: 6.3 cores and four more for each young job, under .7 of 18."""
    scene = Scene(MAC).shows(busy=0.35 * C, load1=0.30 * C, available_mib=available)
    for n in range(4 + young):
        scene.holds(f"old-{n}", 4, age_s=30 if n < young else 90)
    scene.waits("next", 4)
    assert scene.units() == granted


def test_the_stall_of_october() -> None:
    """Ratio .52, 50 GB free, 13 waiting: a fifth job goes at once (9.36 < 12.6), a sixth not (13.36)."""
    scene = Scene(MAC).shows(busy=0.4 * C, load1=0.52 * C, available_mib=51_200)
    for n in range(4):
        scene.holds(f"old-{n}", 4)
    for n in range(13):
        scene.waits(f"s{n}", 4)
    assert [(grant.ticket.session, grant.units) for grant in scene.decide().grants] == [("s0", 4)]


@pytest.mark.parametrize(
    ("ratio", "young", "granted"),
    [(1.48, 0, [4]), (1.48, 1, []), (1.11, 1, [4]), (1.11, 2, [])],
)
def test_the_settle_charge(ratio: float, young: int, granted: list[int]) -> None:
    """Each job of the last minute weighs a whole share: 1.48 and .222 is over 1.5; 1.11 bears one and not two."""
    scene = Scene(MAC).shows(busy=1.0, load1=ratio * C, available_mib=OPEN)
    scene.holds("old", 4)
    for n in range(young):
        scene.holds(f"young-{n}", 4, age_s=30)
    scene.waits("next", 4)
    assert scene.units() == granted


def test_the_settle_charge_paces_one_decision() -> None:
    """Four waiters never start within one second at 1.48 again."""
    scene = Scene(MAC).shows(busy=1.0, load1=1.48 * C, available_mib=OPEN)
    scene.holds("old", 4)
    for n in range(4):
        scene.waits(f"s{n}", 4)
    assert scene.units() == [4]


@pytest.mark.parametrize("held_state", ["granted", "running", "cleanup", "held"])
def test_every_state_counts_as_held(held_state: str) -> None:
    """One-progress is for a machine that runs nothing of ours."""
    scene = Scene(MAC).shows(busy=1.0, load1=2.4 * C)
    scene.holds("old", 4, state=held_state)
    scene.waits("next", 4)
    assert scene.units() == []


@pytest.mark.parametrize("lane", ["light", "server"])
def test_light_and_server_do_not_count_as_held(lane: str) -> None:
    """They hold no cpu unit."""
    scene = Scene(MAC).shows(busy=1.0, load1=2.4 * C)
    scene.holds("other", 0, lane=lane, draws=((f"lane:{lane}", 1),))
    scene.waits("next", 4)
    assert scene.units() == [4]


def test_low_memory_is_never_passed() -> None:
    """One-progress excuses load alone."""
    scene = Scene(MAC).shows(busy=1.0, load1=2.4 * C, available_mib=4095)
    scene.waits("next", 4)
    assert scene.units() == []


@pytest.mark.parametrize(("available", "granted"), [(4096, [0]), (4095, [])])
def test_light_answers_to_memory_only(available: int, granted: list[int]) -> None:
    """Load five a core, a full job waiting before it: it starts, if the floor is kept."""
    scene = Scene(MAC).shows(busy=18.0, load1=5.0 * C, available_mib=available)
    scene.holds("gate", 4)
    scene.waits("full", 4)
    scene.waits("vitest", 0, lane="light", draws=(("lane:light", 1),))
    assert scene.units() == granted


def test_a_small_machine_needs_a_calm_minute() -> None:
    """Four cores, two jobs by the owner's word: the second in the first minute needs a load of at most half."""
    policy = preset("governor", 4, 16 * GIB).replace(base=8, floor=8, ceiling=8)
    for load, granted in ((0.5, [4]), (0.51, [])):
        scene = Scene(policy).shows(busy=0.0, load1=load * 4)
        scene.holds("first", 4, age_s=10)
        scene.waits("second", 4)
        assert scene.units() == granted


@pytest.mark.parametrize(("free_gib", "granted"), [(45, [4]), (20, [4]), (19, [])])
@pytest.mark.parametrize("volume", ["home", "work"])
def test_the_disk_guard(free_gib: int, granted: list[int], volume: str) -> None:
    """512 GiB of disk: 45 admits, 19 waits; it guards the home and the working directory's volume."""
    disks = {"home": Disk(free_mib=300 * GIB, total_mib=512 * GIB)}
    disks[volume] = Disk(free_mib=free_gib * GIB, total_mib=512 * GIB)
    scene = Scene(MAC).shows(disks=tuple(disks.items()))
    ticket = scene.waits("next", 4, volume="work")
    assert scene.units() == granted
    assert [(r.kind, r.resource) for r in scene.why(ticket)] == ([] if granted else [("disk", volume)])


def test_an_unknown_disk_refuses() -> None:
    """And the line says which, and why."""
    scene = Scene(MAC).shows(disks=(("home", Unknown(why="EIO")),))
    ticket = scene.waits("next", 4)
    assert scene.units() == []
    assert scene.lines(ticket) == ["unknown: the sensor for disk:home exists and failed: EIO"]


def test_fifo_keeps_the_head() -> None:
    """Only the first in the queue may be admitted; when it waits for its device, others who do not need it pass."""
    scene = Scene(MAC).shows(busy=15.0, load1=0.0, available_mib=OPEN)
    scene.holds("old", 12)
    scene.waits("simulated", 0, draws=(("simulator", 2),))
    scene.waits("head", 4)
    scene.waits("next", 4)
    decision = scene.decide()
    assert [grant.ticket.session for grant in decision.grants] == ["head"]
    assert decision.impossible == ("simulated-2",), "two simulators where there is one"


def test_a_gate_alone_does_not_hold_a_test_of_one_file() -> None:
    """One job in all, load five a core: the next full job waits, and light starts while the floor is kept."""
    one = MAC.replace(base=4, floor=4, ceiling=4)
    scene = Scene(one).shows(busy=18.0, load1=5.0 * C, available_mib=4096)
    scene.holds("gate", 4)
    full = scene.waits("full", 4)
    scene.waits("vitest", 0, lane="light", draws=(("lane:light", 1),))
    assert list(scene.granted()) == ["vitest-3"]
    assert [reason.kind for reason in scene.why(full)] == ["cpu", "pressure"]


def test_there_are_two_servers() -> None:
    """They take no unit; a third waits for one of them, and not at most for a time: this preset lets it wait."""
    scene = Scene(MAC)
    for name in ("vite", "next"):
        scene.holds(name, 0, lane="server", draws=(("lane:server", 1),))
    third = scene.waits("expo", 0, lane="server", draws=(("lane:server", 1),))
    scene.waits("full", 4)
    assert list(scene.granted()) == ["full-4"]
    assert [(r.kind, r.resource, r.need, r.has) for r in scene.why(third)] == [("lane", "lane:server", 1, 0)]
