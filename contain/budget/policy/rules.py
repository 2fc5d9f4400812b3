"""What the numbers of a policy must satisfy together, whoever wrote them."""

from __future__ import annotations

from contain.budget.policy.record import AFTER_WAIT, LANE, ORDERS, SENSORS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.policy.record import ClassCost, Policy

POSITIVE = ("cores", "memory_mib", "floor", "base", "due_after", "step_s", "calm")
NOT_NEGATIVE = (
    "settle_s",
    "mem_floor_mib",
    "burst_mem_mib",
    "disk_floor_mib",
    "disk_floor_share",
    "load_share",
    "debt_s",
    "calm_s",
)


def problems(policy: Policy) -> list[str]:
    """What is wrong with the numbers, as clauses; empty if nothing is."""
    values = policy.__dict__
    wrong = [f"{name} must be more than 0" for name in POSITIVE if values[name] <= 0]
    wrong += [f"{name} must be at least 0" for name in NOT_NEGATIVE if values[name] < 0]
    if not policy.floor <= policy.base <= policy.ceiling:
        wrong.append(
            f"floor <= base <= ceiling is not true of {policy.floor}, {policy.base}, {policy.ceiling}"
        )
    if policy.max_wait_s is not None and policy.max_wait_s < 0:
        wrong.append("max_wait_s must be at least 0")
    if policy.order not in ORDERS:
        wrong.append(f"order: {policy.order!r} is none of {', '.join(ORDERS)}")
    if policy.after_wait not in AFTER_WAIT:
        wrong.append(f"after_wait: {policy.after_wait!r} is none of {', '.join(AFTER_WAIT)}")
    wrong += [
        f"required: {one!r} is none of {', '.join(SENSORS)}" for one in policy.required if one not in SENSORS
    ]
    if policy.marks.cpu_votes < 1:
        wrong.append("marks.cpu_votes must be at least 1")
    marks = policy.marks.__dict__
    wrong += [
        f"marks.{name} must be more than 0" for name, mark in marks.items() if mark is not None and mark <= 0
    ]
    if policy.mem_budget_mib is not None and policy.mem_budget_mib < 1:
        wrong.append("mem_budget_mib must be more than 0")
    for one in policy.classes:
        wrong += _of_class(policy, one)
    return wrong


def _of_class(policy: Policy, one: ClassCost) -> list[str]:
    where = f"classes.{one.name}"
    wrong = []
    if not 0 <= one.min_units <= one.want_units or (one.min_units == 0) != (one.want_units == 0):
        # A job that may start with no unit and wants some would run beside all accounts.
        wrong.append(f"{where}: 0 < min_units <= want_units, or both 0")
    if min(one.mem_mib, one.expected_s, one.max_wait_s or 0) < 0:
        wrong.append(f"{where}: mem_mib, expected_s and max_wait_s must be at least 0")
    for pool, n in (*one.draws, *((pool, 1) for pool in one.unit_draws)):
        if n > policy.size(pool):
            kind = "lane" if pool.startswith(LANE) else "pool"
            wrong.append(f"{where}: draws {n} from {pool}, and this {kind} has {policy.size(pool)}")
    return wrong
