"""The checks of the model, in its order. One function answers `decide` and `explain`: no refusal without its reason."""

from __future__ import annotations

from contain.budget.arbiter.facts import Unknown
from contain.budget.arbiter.room import volumes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.arbiter.facts import Ticket
    from contain.budget.arbiter.room import Room

Failure = tuple[str, str, float, float]
"""(kind, resource, need, has)"""

SOFT = frozenset({"cpu", "pressure"})
"""Kinds that one job at a time may pass when nothing else runs: one-progress."""


def lowest(room: Room, ticket: Ticket) -> int:
    """The least units that the ticket can start with: a base that became smaller never makes it impossible."""
    return min(ticket.min_units, room.policy.base)


def least_draws(room: Room, ticket: Ticket) -> tuple[tuple[str, int], ...]:
    """(pool, tokens) of everything it draws, for its least units."""
    if not ticket.unit_draws:
        return ticket.draws
    units = lowest(room, ticket)
    return (*ticket.draws, *((pool, units) for pool in ticket.unit_draws))


def impossible(room: Room, ticket: Ticket) -> list[Failure]:
    """What is more than this machine's policy has at all: no release can ever help."""
    found: list[Failure] = []
    budget = room.policy.mem_budget_mib
    if budget is not None and ticket.mem_mib > budget:
        found.append(("impossible", "memory", ticket.mem_mib, budget))
    if not ticket.draws and not ticket.unit_draws:
        return found
    draws = least_draws(room, ticket)
    return found + [("impossible", pool, n, whole) for pool, n in draws if n > (whole := room.whole(pool))]


def suspended(room: Room, ticket: Ticket) -> bool:
    """A hold or an ill pool stands in the way: no release can help, so it reserves nothing until that is over."""
    if room.ill and any(pool in room.ill for pool in _pools(ticket)):
        return True
    return bool(room.holds) and any(_covers(hold.covers, ticket) for hold in room.holds)


def failures(room: Room, ticket: Ticket) -> list[Failure]:
    """Every check that fails now, in the model's order; empty means that the ticket can be granted."""
    found: list[Failure] = []
    if ticket.mem_mib or ticket.draws or ticket.unit_draws:
        found += impossible(room, ticket)
    if room.holds:
        found += [("hold", hold.id, 0, 0) for hold in room.holds if _covers(hold.covers, ticket)]
    found += [("unknown", name, 0, 0) for name, _ in room.failed_all]
    if room.sample.disks:
        _check_disk(room, ticket, found)
    _check_memory(room, ticket, found)
    if ticket.draws or ticket.unit_draws:
        _check_pools(room, ticket, found)
    if ticket.min_units:
        found += [("unknown", name, 0, 0) for name, _ in room.failed_cpu]
        _check_cpu(room, lowest(room, ticket), found)
        if room.pressing():
            found += [("pressure", name, mark, has) for name, has, mark in room.pressing()]
    return found


def bursts(room: Room, units: int) -> bool:
    """``units`` may go above the base: nothing ahead waits for cpu, and the machine is measured to be calm."""
    policy, forecast, available = room.policy, room.forecast(), room.available
    return (
        not room.reserved_cpu
        and room.limit >= policy.base
        and room.used_cpu + units <= policy.ceiling
        and forecast is not None
        and forecast < policy.calm * policy.cores
        and available is not None
        and available >= policy.mem_floor_mib + (room.young + 1) * policy.burst_mem_mib
    )


def disk_floor(room: Room, total_mib: float) -> float:
    """MiB that must stay free on a volume of this size."""
    return min(room.policy.disk_floor_mib, room.policy.disk_floor_share * total_mib)


def _covers(covers: tuple[str, ...], ticket: Ticket) -> bool:
    return (
        not covers
        or ticket.lane in covers
        or f"lane:{ticket.lane}" in covers
        or any(pool in covers for pool in _pools(ticket))
    )


def _pools(ticket: Ticket) -> tuple[str, ...]:
    return (*(pool for pool, _ in ticket.draws), *ticket.unit_draws)


def _check_disk(room: Room, ticket: Ticket, found: list[Failure]) -> None:
    disks = dict(room.sample.disks)
    for volume in volumes(ticket):
        reading = disks.get(volume)
        if isinstance(reading, Unknown):
            if "disk" in room.policy.required:
                found.append(("unknown", f"disk:{volume}", 0, 0))
        elif reading is not None and reading.free_mib < (floor := disk_floor(room, reading.total_mib)):
            found.append(("disk", volume, floor, reading.free_mib))


def _check_memory(room: Room, ticket: Ticket, found: list[Failure]) -> None:
    policy, mem, reserved = room.policy, ticket.mem_mib, room.reserved_mem
    raw = room.sample.available_mib
    if isinstance(raw, int | float) and raw < policy.mem_floor_mib:
        found.append(("memory", "available", policy.mem_floor_mib, raw))
    if not mem:
        return
    # Alone first: what fails only because of those ahead is told as `behind`.
    budget = policy.mem_budget_mib
    if budget is not None:
        _compare(("memory", "memory"), mem, budget - room.used_mem, reserved, found)
    if room.available is not None:
        _compare(("memory", "available"), mem, room.available - policy.mem_floor_mib, reserved, found)


def _check_pools(room: Room, ticket: Ticket, found: list[Failure]) -> None:
    for pool, n in least_draws(room, ticket):
        kind = "lane" if pool.startswith("lane:") else "pool"
        left = room.size(pool) - room.used.get(pool, 0)
        _compare((kind, pool), n, left, room.reserved.get(pool, 0), found)


def _check_cpu(room: Room, units: int, found: list[Failure]) -> None:
    if units <= room.free_cpu() or bursts(room, units):
        return
    left = room.limit - room.used_cpu
    if units > left:
        found.append(("cpu", "cpu", units, max(0, left)))
    if room.reserved_cpu:
        found.append(("behind", "cpu", units, max(0, left - room.reserved_cpu)))


def _compare(what: tuple[str, str], need: float, left: float, reserved: float, found: list[Failure]) -> None:
    kind, resource = what
    if need > left:
        found.append((kind, resource, need, max(0, left)))
    elif need > left - reserved:
        found.append(("behind", resource, need, max(0, left - reserved)))
