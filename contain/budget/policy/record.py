"""The policy as frozen records. Units are busy cores, memory is MiB, durations are awake seconds.

Mappings are tuples of pairs in the order of their declaration: a record stays hashable, and equal by value.
"""

from __future__ import annotations

from receipts.record import Record

LANES = ("full", "light", "long", "server")
ORDERS = ("fair", "fifo")
AFTER_WAIT = ("refuse", "run")
SENSORS = ("cpu", "load1", "memory", "disk")
"""What a policy may require. A required sensor that exists and fails refuses everybody who draws on it."""

LANE = "lane:"


class Marks(Record):
    """Where a signal says no. None: the signal is not asked. PSI marks are percent of the last ten seconds.

    ``forecast``, ``load`` and ``charged_load`` are multiplied by the cores; of the five for the processor
    ``cpu_votes`` must be reached together, since no single one of them tells the truth alone.
    """

    cpu_votes: int = 2
    forecast: float | None = None
    """Busy cores and what young permits may still take."""
    psi_cpu: float | None = None
    load: float | None = None
    charged_load: float | None = None
    """load1 and what young permits may still take; exactly the mark still passes."""
    blocked: int | None = None
    """Processes in uninterruptible wait."""
    psi_io: float | None = None
    psi_memory: float | None = None
    thrash_psi_io: float | None = None
    thrash_psi_memory: float | None = None
    thrash_load: float | None = None
    """Asked only where neither of the two above can be read."""


class ClassCost(Record):
    """What a named class costs under this policy. A class that has no cost of its own has its lane's."""

    name: str
    lane: str = "full"
    min_units: int = 1
    want_units: int = 1
    mem_mib: int = 0
    """0: not known, or none worth counting."""
    draws: tuple[tuple[str, int], ...] = ()
    unit_draws: tuple[str, ...] = ()
    """Pools from which it takes as many as its cpu units."""
    resizable: bool = False
    expected_s: float = 60.0
    max_wait_s: float | None = None
    """0: at once or not at all; None: as the policy says."""


class Policy(Record):
    """Everything that a decision is made of, besides what stands in the queue and what the machine shows."""

    name: str
    cores: int
    memory_mib: int
    floor: int
    base: int
    ceiling: int
    calm: float = 0.7
    """Above the base only while less than this share of the cores is busy."""
    settle_s: float = 60.0
    mem_budget_mib: int | None = None
    mem_floor_mib: int = 0
    burst_mem_mib: int = 0
    """Above the base: so much must be available over the floor, for itself and for each young permit."""
    disk_floor_mib: int = 20_480
    disk_floor_share: float = 0.05
    """The floor of a volume is the smaller of the two."""
    load_share: float = 0.0
    """Busy is never taken for less than this share of load1."""
    marks: Marks = Marks()
    required: tuple[str, ...] = ("cpu", "memory", "disk")
    step_s: float = 10.0
    calm_s: float = 60.0
    """The limit falls once in ``step_s``; it rises by one in ``step_s``, from ``calm_s`` after the pressure."""
    pools: tuple[tuple[str, int], ...] = ()
    """Whole sizes of lanes (``lane:light``) and pools. ``port:*`` is the size of each pool ``port:...``."""
    limit_shares: tuple[tuple[str, float], ...] = ()
    """Pools that are never larger than this share of the limit in force."""
    order: str = "fair"
    due_after: int = 16
    """fair: who was overtaken by so many times its own cost goes first, whatever its session has used."""
    debt_s: float = 60.0
    """fair: seconds of the whole machine that a session which comes back may owe."""
    classes: tuple[ClassCost, ...] = ()
    max_wait_s: float | None = None
    """None: for ever."""
    after_wait: str = "refuse"
    nice: int = 0

    def size(self, pool: str) -> int:
        """The whole size of a lane or pool; 0 if the policy has none of this name."""
        family = pool.partition(":")[0] + ":*"
        sizes = dict(self.pools)
        return sizes.get(pool, sizes.get(family, 0))

    def cost(self, name: str, lane: str = "full") -> ClassCost:
        """What a class costs: its own entry, else that of its lane."""
        costs = {one.name: one for one in self.classes}
        return costs.get(name) or costs.get(lane) or ClassCost(name=name, lane=lane)

    def lowest_units(self, asked: ClassCost) -> int:
        """The least that ``asked`` can start with here: its own minimum, but never more than could ever be free.

        Never nothing for a class that asks for units: a pool that the policy lacks makes it impossible, not free.
        """
        sizes = [self.base, *(self.size(pool) for pool in asked.unit_draws)]
        return max(min(asked.min_units, 1), min(asked.min_units, *sizes))
