"""Negative controls: a rule is broken on purpose, and the test that holds it must fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contain.budget.arbiter import Health, accounts, checks, room, walk
from tests.budget import test_examples, test_fairness, test_governor, test_rules

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(240)
"""Many examples: seconds on an idle machine, and more where others work too."""

Patch = tuple[object, str, object]

NO_RESERVATION: Patch = (room.Room, "reserve", lambda *_: None)
NO_HEALTH: Patch = (room, "_ill", lambda *_: {})
NO_THRASH: Patch = (room.Room, "thrashing", lambda _: None)
NO_CHARGE: Patch = (room, "charged_signals", lambda *_: [])
NOBODY_DUE: Patch = (test_fairness, "POLICY", test_fairness.POLICY.replace(due_after=10**9))
NO_OVERTAKING: Patch = (accounts, "_overtaken", lambda *_: {})
BURST_ALWAYS: Patch = (checks, "bursts", lambda *_: True)
ALL_COST_THE_SAME: Patch = (accounts, "share", lambda *_: 0.1)
NO_DEBT: Patch = (test_fairness, "POLICY", test_fairness.POLICY.replace(debt_s=0.0))
EARLY_DUE: Patch = (test_fairness, "POLICY", test_fairness.POLICY.replace(due_after=1))
HOLDS_FORGOTTEN: Patch = (room, "_holds", lambda *_: ())

BROKEN: list[tuple[str, Patch, Callable[[], None]]] = [
    ("no reservation", NO_RESERVATION, test_rules.test_nobody_overtakes_on_what_is_short),
    ("no reservation, full size", NO_RESERVATION, test_fairness.test_a_full_size_ask_starts_within_one_job),
    (
        "ill pools grant",
        NO_HEALTH,
        lambda: test_rules.test_an_ill_pool_grants_nothing(Health(reason="x"), "quarantined: x"),
    ),
    ("no thrash", NO_THRASH, lambda: test_examples.test_foreign_io_leaves_one_or_none(96, [], ["pressure"])),
    ("no charge", NO_CHARGE, test_governor.test_the_settle_charge_paces_one_decision),
    ("nobody is due", NOBODY_DUE, test_fairness.test_minted_sessions_do_not_starve_anybody),
    ("overtaking is not counted", NO_OVERTAKING, test_rules.test_overtaking_is_counted_by_cost),
    ("bursts without bound", BURST_ALWAYS, lambda: test_governor.test_the_ceiling_is_nine_jobs(9, [])),
    ("holds are forgotten", HOLDS_FORGOTTEN, lambda: test_rules.test_a_hold_covers_lanes((), [])),
    ("debts are forgotten", NO_DEBT, test_fairness.test_to_go_away_for_a_moment_does_not_pay),
    ("due too early", EARLY_DUE, test_fairness.test_short_jobs_are_not_starved_by_long_ones),
    ("memory is free", ALL_COST_THE_SAME, test_rules.test_memory_is_service_too),
]


@pytest.mark.parametrize(
    ("patch", "holds"), [case[1:] for case in BROKEN], ids=[name for name, _, _ in BROKEN]
)
def test_a_broken_rule_is_noticed(
    patch: Patch,
    holds: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The control: whole, it passes. Broken, it does not."""
    holds()
    monkeypatch.setattr(*patch)
    with pytest.raises((AssertionError, KeyError, IndexError)):
        holds()


def test_unequal_service_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every grant cost the same, half an hour would not come out even."""
    monkeypatch.setattr(accounts, "share", lambda *_: 0.1)
    monkeypatch.setattr(walk, "share", lambda *_: 0.1)
    with pytest.raises(AssertionError):
        test_fairness.test_half_an_hour_of_eight_unequal_sessions("fair", monkeypatch)
