"""What is true of every decision, on random machines. The independent auditor below adds everything up by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from contain.budget.arbiter import (
    Decision,
    Now,
    Sample,
    Snapshot,
    after,
    decide,
    enqueue,
    explain,
    free,
    ticket_of,
)
from contain.budget.arbiter.walk import Walk
from tests.budget.machines import asked, policies, samples, snapshots
from tests.budget.scene import NOW_S

if TYPE_CHECKING:
    from contain.budget.arbiter import Ticket
    from contain.budget.policy import ClassCost, Policy

pytestmark = pytest.mark.timeout(240)
"""Many examples: seconds on an idle machine, and more where others work too."""

NOW = Now(awake_s=NOW_S, wall_s=NOW_S)
thorough = settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def draws(one: Ticket, units: int) -> list[tuple[str, int]]:
    """(pool, tokens) that a grant of ``units`` takes."""
    return [*one.draws, *((pool, units) for pool in one.unit_draws)]


@st.composite
def moments(draw: st.DrawFn, *, failures: bool = True) -> tuple[Policy, Snapshot, Sample]:
    """A policy, a moment under it and a reading."""
    policy = draw(policies())
    return policy, draw(snapshots(policy)), draw(samples(failures=failures))


def audit(policy: Policy, snapshot: Snapshot, decision: Decision) -> None:
    """Nothing granted is above any size, and everything that is, is marked."""
    cpu = sum(max(one.units, one.target) for one in snapshot.permits)
    for grant in decision.grants:
        before, cpu = cpu, cpu + grant.units
        least = min(grant.ticket.min_units, policy.base)
        assert not grant.ticket.dormant
        assert least <= grant.units <= max(grant.ticket.want_units, least)
        allowed = {
            "limit": decision.limit.limit,
            "burst": policy.ceiling,
            "one-progress": cpu if before == 0 else -1,
        }
        assert not grant.units or cpu <= allowed[grant.how]
        assert grant.how != "burst" or decision.limit.limit == policy.base
    for permit_id, target in decision.targets:
        permit = next(one for one in snapshot.permits if one.id == permit_id)
        cpu += max(0, target - max(permit.units, permit.target))
        assert target <= max(policy.base, permit.target, permit.units)
        assert target <= max(permit.units, permit.target) or cpu <= decision.limit.limit, (
            "growth is within the limit"
        )


def audit_memory(policy: Policy, snapshot: Snapshot, sample: Sample, decision: Decision) -> None:
    """Budget, floor, and unknown memory."""
    mem = sum(one.mem_mib for one in snapshot.permits)
    for grant in decision.grants:
        asked_mib, available = grant.ticket.mem_mib, sample.available_mib
        mem += asked_mib
        assert not asked_mib or policy.mem_budget_mib is None or mem <= policy.mem_budget_mib
        assert available is None or isinstance(available, int), "unknown memory grants nothing"
        if available is not None:
            assert available >= policy.mem_floor_mib
            assert not asked_mib or available - asked_mib >= policy.mem_floor_mib


def audit_pools(policy: Policy, snapshot: Snapshot, decision: Decision) -> None:
    """Sizes and health."""
    tokens: dict[str, int] = {}
    for permit in snapshot.permits:
        for pool, n in permit.draws:
            tokens[pool] = tokens.get(pool, 0) + n
    for grant in decision.grants:
        for pool, n in draws(grant.ticket, grant.units):
            tokens[pool] = tokens.get(pool, 0) + n
            assert tokens[pool] <= policy.size(pool)
            assert pool not in snapshot.health, "cooling or quarantined"


@thorough
@given(moments())
def test_every_grant_passes_an_audit(moment: tuple[Policy, Snapshot, Sample]) -> None:
    """Limit, ceiling, memory, pools, health, sensors: counted again by other code."""
    policy, snapshot, sample = moment
    decision = decide(snapshot, sample, policy, NOW)
    audit(policy, snapshot, decision)
    audit_memory(policy, snapshot, sample, decision)
    audit_pools(policy, snapshot, decision)


@thorough
@given(moments())
def test_the_same_question_has_the_same_answer(moment: tuple[Policy, Snapshot, Sample]) -> None:
    """Deterministic: nothing but the four values is asked."""
    policy, snapshot, sample = moment
    first = decide(snapshot, sample, policy, NOW)
    assert decide(snapshot, sample, policy, NOW) == first


@thorough
@given(moments())
def test_who_waits_has_a_reason_and_who_is_granted_has_none(moment: tuple[Policy, Snapshot, Sample]) -> None:
    """`explain` is the other face of `decide`: by the same checks, so never of another opinion."""
    policy, snapshot, sample = moment
    granted = {grant.ticket.id for grant in decide(snapshot, sample, policy, NOW).grants}
    for ticket in snapshot.tickets:
        assert (explain(snapshot, sample, policy, NOW, ticket) == ()) == (ticket.id in granted), ticket


@thorough
@given(moments(), asked(), st.sampled_from(["a", "new"]))
def test_free_is_what_would_be_granted(
    moment: tuple[Policy, Snapshot, Sample], cost: ClassCost, session: str
) -> None:
    """`free` more tickets would be granted at once, all of them; one more, and that one waits."""
    policy, snapshot, sample = moment
    number = free(snapshot, sample, policy, NOW, cost, session)
    if number is None:
        return

    def granted(count: int) -> int:
        state = snapshot
        for n in range(count):
            state = enqueue(state, ticket_of(policy, cost, session, 1000 + n, f"new-{n}"), policy)
        return sum(one.ticket.id.startswith("new-") for one in decide(state, sample, policy, NOW).grants)

    assert granted(number) == number
    assert granted(number + 1) == number


@thorough
@given(moments(failures=False), st.integers(0, 65_536))
def test_more_memory_never_refuses_the_first(moment: tuple[Policy, Snapshot, Sample], more: int) -> None:
    """Whoever is first in the order and was granted is granted, and no less, when more memory is available."""
    policy, snapshot, sample = moment
    assert isinstance(sample.available_mib, int | float)
    _no_worse(policy, snapshot, (sample, sample.replace(available_mib=sample.available_mib + more)), snapshot)


@thorough
@given(moments(failures=False), st.data())
def test_fewer_permits_never_refuse_the_first(
    moment: tuple[Policy, Snapshot, Sample], data: st.DataObject
) -> None:
    """The same when a permit is returned."""
    policy, snapshot, sample = moment
    assume(snapshot.permits)
    gone = data.draw(st.sampled_from(snapshot.permits))
    fewer = snapshot.replace(permits=tuple(one for one in snapshot.permits if one is not gone))
    _no_worse(policy, snapshot, (sample, sample), fewer)


def _no_worse(policy: Policy, before: Snapshot, readings: tuple[Sample, Sample], then: Snapshot) -> None:
    waiting = [one for one in before.tickets if not one.dormant]
    assume(waiting)
    first = min(waiting, key=lambda one: one.seq)
    had = decide(before.replace(tickets=(first,)), readings[0], policy, NOW).grants
    has = decide(then.replace(tickets=(first,)), readings[1], policy, NOW).grants
    if had:
        assert has
        if has[0].how == "limit":
            assert has[0].units >= had[0].units


@thorough
@given(moments(failures=False))
def test_a_reservation_is_kept(moment: tuple[Policy, Snapshot, Sample]) -> None:
    """Safe backfill: whatever is granted past the first who waits leaves enough for it, or is none of what it lacks."""
    policy, snapshot, sample = moment
    walk = Walk(snapshot, sample, policy, NOW)
    head: Ticket | None = None
    cpu = mem = 0
    for ticket in walk._in_order():
        walk._consider(ticket)
        if head is None and walk.refused:
            head = walk.refused[0]
            cpu, mem, tokens = walk.room.used_cpu, walk.room.used_mem, dict(walk.room.used)
    if head is None:
        return
    least, room, budget = min(head.min_units, policy.base), walk.room, policy.mem_budget_mib
    if room.used_cpu > cpu and least:
        assert room.used_cpu + least <= room.limit
    if room.used_mem > mem and head.mem_mib and budget is not None:
        assert room.used_mem + head.mem_mib <= budget
    for pool, n in draws(head, least):
        if room.used.get(pool, 0) > tokens.get(pool, 0):
            assert room.used[pool] + n <= room.healthy_size(pool)


@thorough
@given(moments())
def test_stopping_early_changes_nothing(moment: tuple[Policy, Snapshot, Sample]) -> None:
    """Behind a dry head a walk that looks at everybody grants the same."""
    policy, snapshot, sample = moment
    early, whole = Walk(snapshot, sample, policy, NOW), Walk(snapshot, sample, policy, NOW)
    early.run()
    for ticket in whole._in_order():
        whole._consider(ticket)
    assert early.grants == whole.grants
    assert early.cpu_wanted == whole.cpu_wanted


@thorough
@given(moments())
def test_a_decision_applied_adds_up(moment: tuple[Policy, Snapshot, Sample]) -> None:
    """Every ticket either waits or is a permit, under one id; nobody is counted twice; overtaken only grows."""
    policy, snapshot, sample = moment
    decision = decide(snapshot, sample, policy, NOW)
    then = after(snapshot, decision, policy, NOW)
    before = [one.id for one in snapshot.tickets] + [one.id for one in snapshot.permits]
    assert sorted([one.id for one in then.tickets] + [one.id for one in then.permits]) == sorted(before)
    assert all(
        then.overtaken[seq] >= units for seq, units in snapshot.overtaken.items() if seq in then.overtaken
    )
    assert set(then.overtaken) <= {one.seq for one in then.tickets}
