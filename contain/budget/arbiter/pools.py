"""Every lane and pool of a policy: how much of it is out, who has it, and whether it is well. Pure."""

from __future__ import annotations

from contain.budget.arbiter.facts import Sample
from contain.budget.arbiter.reasons import Holding
from contain.budget.arbiter.room import Room
from receipts.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.arbiter.facts import Health, Now, Permit, Snapshot
    from contain.budget.policy import Policy

FAMILY = ":*"


class PoolState(Record):
    """How one pool stands. ``size`` is by policy and limit; ``health`` None: well. Amounts in tokens or units."""

    name: str
    size: int
    used: int
    health: Health | None = None
    holders: tuple[Holding, ...] = ()


def has_pool(policy: Policy, name: str) -> bool:
    """Whether the policy knows this very pool. A family (``port:*``) is none: its members are."""
    if name.endswith(FAMILY):
        return False
    known = dict(policy.pools)
    family = name.partition(":")[0] + FAMILY
    return name in known or (family in known and ":" in name)


def pool_states(snapshot: Snapshot, policy: Policy, now: Now) -> tuple[PoolState, ...]:
    """All that the policy lists, and of families (``port:*``) also each member that is drawn from or ill."""
    room = Room(snapshot, Sample(), policy, now)
    room.limit = snapshot.limit.limit
    names = dict.fromkeys([*(name for name, _ in policy.pools), *sorted(room.used), *sorted(room.ill)])
    return tuple(
        PoolState(
            name=name,
            size=room.healthy_size(name),
            used=room.used.get(name, 0),
            health=room.ill.get(name),
            holders=tuple(
                Holding(id=one.id, session=one.session, holder=one.holder, amount=amount)
                for one in snapshot.permits
                if (amount := drawn(one, name))
            ),
        )
        for name in names
    )


def drawn(permit: Permit, pool: str) -> int:
    """How much of a pool a permit has."""
    units = permit.accounted if pool in permit.unit_draws else 0
    return units + sum(n for name, n in permit.draws if name == pool)


def degraded(permit: Permit, snapshot: Snapshot, now: Now) -> tuple[str, ...]:
    """Pools that a permit holds tokens of and that are ill now: it may be working on something that is broken."""
    return tuple(
        pool
        for pool, health in snapshot.health.items()
        if (health.until_s is None or health.until_s > now.wall_s) and drawn(permit, pool)
    )
