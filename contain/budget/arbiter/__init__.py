"""Who may run now: pure functions of a snapshot, a sample, the policy and the time. Nothing here reads the machine."""

from __future__ import annotations

from contain.budget.arbiter.accounts import after, enqueue, leave, measured, release, run_anyway, settled
from contain.budget.arbiter.explain import explain, free, never, ticket_of
from contain.budget.arbiter.facts import (
    Decision,
    Disk,
    Grant,
    Health,
    Hold,
    LimitState,
    Now,
    Permit,
    Sample,
    Snapshot,
    Ticket,
    Unknown,
)
from contain.budget.arbiter.pools import PoolState, degraded, has_pool, pool_states
from contain.budget.arbiter.reasons import Holding, Reason, render
from contain.budget.arbiter.walk import decide

__all__ = [
    "Decision",
    "Disk",
    "Grant",
    "Health",
    "Hold",
    "Holding",
    "LimitState",
    "Now",
    "Permit",
    "PoolState",
    "Reason",
    "Sample",
    "Snapshot",
    "Ticket",
    "Unknown",
    "after",
    "decide",
    "degraded",
    "enqueue",
    "explain",
    "free",
    "has_pool",
    "leave",
    "measured",
    "never",
    "pool_states",
    "release",
    "render",
    "run_anyway",
    "settled",
    "ticket_of",
]
