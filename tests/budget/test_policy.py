"""The policy: presets as numbers, and a file that is read strictly."""

from __future__ import annotations

import pytest

from contain.budget.policy import PRESETS, check, preset, set_value, show
from contain.budget.policy.rules import problems
from contain.errors import BadPolicy

GIB = 1024
MACHINES = [
    (1, 1 * GIB),
    (2, 4 * GIB),
    (2, 24 * GIB),
    (4, 8 * GIB),
    (14, 64 * GIB),
    (18, 128 * GIB),
    (64, 256 * GIB),
]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_sound_on_every_machine(name: str, machine: tuple[int, int]) -> None:
    """Floor, base and ceiling in order, sizes at least 1; and what `show` prints makes the same policy."""
    policy = preset(name, *machine)
    assert problems(policy) == []
    assert all(size >= 1 for _, size in policy.pools)
    assert check(show(policy), *machine) == policy


@pytest.mark.parametrize(
    ("name", "machine", "floor", "base", "ceiling", "mem_floor"),
    [
        ("shared", (2, 24 * GIB), 1, 2, 4, 3072),
        ("shared", (18, 128 * GIB), 9, 16, 36, 4096),
        ("shared", (64, 256 * GIB), 32, 56, 128, 4096),
        ("governor", (18, 128 * GIB), 16, 16, 36, 4096),
        ("governor", (2, 4 * GIB), 2, 2, 2, 4096),
        ("pacer", (14, 64 * GIB), 7, 12, 12, 0),
    ],
)
def test_the_numbers_of_the_model(
    name: str, machine: tuple[int, int], floor: int, base: int, ceiling: int, mem_floor: int
) -> None:
    """As in the table of docs/BUDGET.md."""
    policy = preset(name, *machine)
    assert (policy.floor, policy.base, policy.ceiling, policy.mem_floor_mib) == (
        floor,
        base,
        ceiling,
        mem_floor,
    )


def test_a_full_job_starts_with_half_of_the_base() -> None:
    """On four cores and more; below, with the whole: half of two cores is no build."""
    assert [preset("shared", cores, 8 * GIB).cost("full").want_units for cores in (2, 3, 4, 8, 64)] == [
        2,
        3,
        2,
        4,
        28,
    ]


def test_a_file_changes_what_it_names() -> None:
    """And nothing else; pools and classes are added to the preset's."""
    policy = check(
        """
        preset = "governor"
        max_wait_s = 600
        mem_budget_mib = 40960
        [marks]
        charged_load = 2.0
        thrash_load = "none"
        [pools]
        gpu = 2
        "port:*" = 1
        [classes.train]
        lane = "long"
        want_units = 4
        draws = { gpu = 1 }
        unit_draws = ["lane:long"]
        """,
        18,
        128 * GIB,
    )
    before = preset("governor", 18, 128 * GIB)
    assert (policy.max_wait_s, policy.mem_budget_mib) == (600, 40960)
    assert (policy.marks.charged_load, policy.marks.thrash_load) == (2.0, None)
    assert (policy.size("gpu"), policy.size("port:80"), policy.size("simulator")) == (2, 1, 1)
    train = policy.cost("train")
    assert (train.lane, train.want_units, train.draws) == ("long", 4, (("gpu", 1),))
    changed = {"max_wait_s", "mem_budget_mib", "marks", "pools", "classes"}
    assert {k for k, v in policy.__dict__.items() if v != before.__dict__[k]} == changed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bsae = 3", "bsae is not known (is base meant?)"),
        ("cores = 3", "cores is not known"),
        ("[marks]\npsi_disk = 1", "marks.psi_disk is not known (is psi_io meant?)"),
        ("[classes.x]\nmem_gib = 1", "classes.x.mem_gib is not known (is mem_mib meant?)"),
        ("base = true", "base must be a whole number, and is True"),
        ("base = 2.5", "base must be a whole number, and is 2.5"),
        ("settle_s = nan", "settle_s must be a number, and is nan"),
        ('order = "lifo"', "order: 'lifo' is none of fair, fifo"),
        ('required = ["gpu"]', "required: 'gpu' is none of cpu, load1, memory, disk"),
        ('required = "cpu"', "required must be an array of strings"),
        ("base = 40", "floor <= base <= ceiling is not true of 9, 40, 36"),
        ("calm = 0", "calm must be more than 0"),
        ("pools = 3", "pools must be a table"),
        ("[pools]\ngpu = -1", "pools.gpu must be a number of at least 0, and is -1"),
        ("[pools]\ngpu = true", "pools.gpu must be a number of at least 0, and is True"),
        ("[classes]\nx = 1", "classes.x must be a table"),
        ("[classes.x]\ndraws = { gpu = 1 }", "classes.x: draws 1 from gpu, and this pool has 0"),
        ("[classes.x]\nlane = 'fast'", "classes.x.lane: 'fast' is none of full, light, long, server"),
        ("[classes.x]\nmin_units = 0", "classes.x: 0 < min_units <= want_units, or both 0"),
        ("max_wait_s = -1", "max_wait_s must be at least 0"),
        ("[classes.x]\nmax_wait_s = -1", "classes.x: mem_mib, expected_s and max_wait_s must be at least 0"),
        ("[marks]\npsi_io = -1", "marks.psi_io must be more than 0"),
        ("[marks]\ncpu_votes = 0", "marks.cpu_votes must be at least 1"),
        ("preset = 'fast'", "preset: 'fast' is none of shared, governor, pacer"),
        ("base = = 3", "The policy is no TOML"),
    ],
)
def test_a_mistake_is_told(text: str, said: str) -> None:
    """Never ignored, never guessed."""
    with pytest.raises(BadPolicy) as caught:
        check(text, 18, 128 * GIB)
    assert said in caught.value.message


def test_every_mistake_is_told_at_once() -> None:
    """Nobody corrects a file line by line."""
    with pytest.raises(BadPolicy) as caught:
        check("bsae = 3\nfloor = 'x'\n[marks]\nnope = 1", 18, 128 * GIB)
    assert all(name in caught.value.message for name in ("bsae", "floor", "marks.nope"))


@pytest.mark.parametrize(
    ("key", "value", "reads"),
    [
        ("base", "8", lambda policy: policy.base == 8),
        ("order", "fifo", lambda policy: policy.order == "fifo"),
        ("marks.psi_io", "55.5", lambda policy: policy.marks.psi_io == 55.5),
        ("pools.port:6298", "2", lambda policy: policy.size("port:6298") == 2),
        ("classes.other.want_units", "3", lambda policy: policy.cost("other").want_units == 3),
        ("classes.my class.min_units", "1", lambda policy: policy.cost("my class").min_units == 1),
    ],
)
def test_set_changes_one_number(key: str, value: str, reads: object) -> None:
    """The rest of the file stays as it was, comments too; setting it again replaces it."""
    before = "# ours\nfloor = 2 # low\n\n[marks] # of signals\npsi_cpu = 70\n"
    once = set_value(before, key, value, 8, 32 * GIB)
    twice = set_value(once, key, value, 8, 32 * GIB)
    assert once == twice
    assert callable(reads)
    assert reads(check(once, 8, 32 * GIB))
    assert [line for line in before.splitlines() if line not in once.splitlines()] == []


@pytest.mark.parametrize(
    ("key", "value"), [("bsae", "3"), ("base", "100"), ("marks.x", "1"), ("base", "three")]
)
def test_set_refuses_what_check_would(key: str, value: str) -> None:
    """And the file stays as it was, since nothing was returned."""
    with pytest.raises(BadPolicy):
        set_value("", key, value, 8, 32 * GIB)
