"""Targets: resizable permits take what nobody waits for, and give it back when somebody does."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.arbiter.facts import Permit
    from contain.budget.arbiter.room import Room

RESIZED = frozenset({"granted", "bound", "running"})
"""States in which the command can still follow a target."""


def targets(
    permits: tuple[Permit, ...], room: Room, *, part: int, cpu_wanted: bool
) -> tuple[tuple[str, int], ...]:
    """(permit id, new target) for those whose target changes.

    Nobody waits for cpu: they grow toward the base, the smallest first, within the limit and the pools. Somebody
    does: back to the part of one session, never below their minimum.
    """
    able = [permit for permit in permits if permit.resizable and permit.state in RESIZED]
    if not able:
        return ()
    if cpu_wanted:
        goals = {one.id: max(one.min_units, part) for one in able}
        return tuple((one.id, goals[one.id]) for one in able if one.target > goals[one.id])
    goals = _grown(able, room)
    return tuple((one.id, goals[one.id]) for one in able if one.target != goals[one.id])


def _grown(able: list[Permit], room: Room) -> dict[str, int]:
    """What was still being given back is taken first: it is accounted anyway."""
    goals = {one.id: one.accounted for one in able}
    free = 0 if room.pressing() else room.free_cpu()
    # Copies: growing is no grant, and the room stays what the walk has left.
    pools = {pool: room.free_of(pool) for one in able for pool in one.unit_draws}
    heap = [(goals[one.id], one.seq, one.id, one.unit_draws) for one in able]
    heapify(heap)
    while free > 0 and heap:
        units, seq, permit, draws = heappop(heap)
        if units >= room.policy.base or any(pools[pool] < 1 for pool in draws):
            continue
        free -= 1
        for pool in draws:
            pools[pool] -= 1
        goals[permit] = units + 1
        heappush(heap, (units + 1, seq, permit, draws))
    return goals
