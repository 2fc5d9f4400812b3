"""What is used, reserved and left while one decision is being made: derived once, moved by grants and refusals."""

from __future__ import annotations

from contain.budget.arbiter.facts import Unknown
from contain.budget.arbiter.signals import (
    busy_cores,
    charged_signals,
    number,
    stall_signals,
    steady_signals,
    thrash,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from contain.budget.arbiter.facts import Grant, Health, Hold, Now, Permit, Sample, Snapshot, Ticket
    from contain.budget.arbiter.signals import Signal
    from contain.budget.policy import Policy

HOME = "home"


class Room:
    """The one mutable thing of a decision; nobody keeps it.

    ``used_*`` counts permits of every state, ``reserved_*`` what refused tickets ahead wait for, ``charge`` the cores
    that young permits may still take and have not yet, ``young`` the permits that do so.
    """

    def __init__(self, snapshot: Snapshot, sample: Sample, policy: Policy, now: Now) -> None:
        """Add everything up once; no part of the decision looks at the permits again."""
        self.sample, self.policy = sample, policy
        self.limit = policy.base
        self.reserved_cpu = self.reserved_mem = 0
        self.used: dict[str, int] = {}
        self.reserved: dict[str, int] = {}
        self.pools = dict(policy.pools)
        self._add(snapshot.permits, now.awake_s - policy.settle_s)
        self.busy = busy_cores(sample, policy)
        self.stalls = stall_signals(sample, policy)
        self.steady = steady_signals(sample, policy)
        available = number(sample.available_mib)
        self.available = None if available is None else available - self.mem_charge
        self.failed_all, self.failed_cpu = _failed(sample, policy)
        self.holds, self.ill = _holds(snapshot, now), _ill(snapshot, now)
        self._pressing: list[Signal] | None = None

    def _add(self, permits: tuple[Permit, ...], settled_at_s: float) -> None:
        """One loop and plain locals: this is most of what a decision costs while many run and few wait."""
        used, used_cpu, used_mem, young = self.used, 0, 0, 0
        ours = charge = mem_charge = 0.0
        for permit in permits:
            units, cpu, mem = permit.units, permit.cpu, permit.mem_mib
            units = max(units, permit.target)  # as in Permit.accounted
            used_cpu += units
            used_mem += mem
            ours += units if cpu is None else cpu
            if permit.draws or permit.unit_draws:
                self._draw(used, permit, units)
            if permit.granted_at_s > settled_at_s:
                # A burst asks memory for each young permit that runs on cpu units. What draws none is light or a
                # server: the model's burst was never paced by those.
                if units:
                    young += 1
                    taken = permit.cpu or 0.0
                    charge += units - taken if units > taken else 0.0
                if mem:
                    held = permit.rss_mib or 0.0
                    mem_charge += mem - held if mem > held else 0.0
        self.used_cpu, self.used_mem, self.young = used_cpu, used_mem, young
        self.ours, self.charge, self.mem_charge = ours, charge, mem_charge

    def work_is_ours(self) -> bool:
        """What we granted keeps at least half of the busy cores busy. Nobody's work is not ours."""
        return self.used_cpu > 0 and (self.busy is None or self.ours >= self.busy / 2)

    def forecast(self) -> float | None:
        """Busy cores once every young permit takes what it may."""
        return None if self.busy is None else self.busy + self.charge

    def pressing(self) -> list[Signal]:
        """The signals that press now; empty if not pressed. Grants of this decision count by their charges."""
        if self._pressing is None:
            found = self.steady + charged_signals(self.sample, self.policy, self.busy, self.charge)
            self._pressing = self.stalls + (found if len(found) >= self.policy.marks.cpu_votes else [])
        return self._pressing

    def thrashing(self) -> Signal | None:
        """The signal that says: nothing at all."""
        return thrash(self.sample, self.policy)

    def free_cpu(self) -> int:
        """Units within the limit that nobody has and nobody ahead waits for; negative after a burst."""
        return self.limit - self.used_cpu - self.reserved_cpu

    def size(self, pool: str) -> int:
        """What a lane or pool holds now: 0 while it is cooling or quarantined."""
        return 0 if pool in self.ill else self.healthy_size(pool)

    def whole(self, pool: str) -> int:
        """The policy's size of a lane or pool."""
        size = self.pools.get(pool)
        return self.policy.size(pool) if size is None else size

    def healthy_size(self, pool: str) -> int:
        """The size by policy and limit, whatever the pool's health."""
        size = self.whole(pool)
        for name, share in self.policy.limit_shares:
            if name == pool:
                return min(size, max(1, int(self.limit * share)))
        return size

    def free_of(self, pool: str) -> int:
        """What of a lane or pool nobody has and nobody ahead waits for."""
        return self.size(pool) - self.used.get(pool, 0) - self.reserved.get(pool, 0)

    def take(self, grant: Grant) -> None:
        """A grant of this decision: from here on it is used, and charged as any young permit is."""
        ticket, units = grant.ticket, grant.units
        self.used_cpu += units
        self.used_mem += ticket.mem_mib
        self.mem_charge += ticket.mem_mib
        if self.available is not None:
            self.available -= ticket.mem_mib
        self._draw(self.used, ticket, units)
        if units:
            self.young += 1
            self.charge += units
            self._pressing = None

    def reserve(self, ticket: Ticket) -> None:
        """A refusal: what the ticket waits for is kept from everybody behind it.

        Draws always are; cpu and memory only while its pools could hold it at all beside those ahead, once every
        permit is returned. Of twenty who wait for one gpu, one keeps cores free, not twenty.
        """
        units = min(ticket.min_units, self.policy.base)
        if ticket.draws or ticket.unit_draws:
            self._draw(self.reserved, ticket, units)
            pools = (*(pool for pool, _ in ticket.draws), *ticket.unit_draws)
            if any(self.reserved[pool] > self.healthy_size(pool) for pool in pools):
                return
        self.reserved_cpu += units
        self.reserved_mem += ticket.mem_mib

    @staticmethod
    def _draw(account: dict[str, int], one: Ticket | Permit, units: int) -> None:
        for pool, n in one.draws:
            account[pool] = account.get(pool, 0) + n
        for pool in one.unit_draws:
            account[pool] = account.get(pool, 0) + units


def _holds(snapshot: Snapshot, now: Now) -> tuple[Hold, ...]:
    return tuple([one for one in snapshot.holds if one.until_s > now.wall_s]) if snapshot.holds else ()


def _ill(snapshot: Snapshot, now: Now) -> dict[str, Health]:
    return {
        pool: health
        for pool, health in snapshot.health.items()
        if health.until_s is None or health.until_s > now.wall_s
    }


def _failed(sample: Sample, policy: Policy) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Required sensors that exist and failed, with why: those that guard everybody, those that guard cpu units."""
    failed = [
        (name, reading.why)
        for name, reading in (("cpu", sample.busy), ("load1", sample.load1))
        if isinstance(reading, Unknown) and name in policy.required
    ]
    memory = sample.available_mib
    everybody = (
        [("memory", memory.why)] if isinstance(memory, Unknown) and "memory" in policy.required else []
    )
    return everybody, failed


def volumes(ticket: Ticket) -> Iterable[str]:
    """The volumes that a ticket writes to: its account's home, and its working directory's."""
    return (HOME,) if ticket.volume is None or ticket.volume == HOME else (HOME, ticket.volume)
