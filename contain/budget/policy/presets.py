"""The three presets: numbers from C cores and R MiB of memory. Division is of integers; sizes are at least 1."""

from __future__ import annotations

from contain.budget.policy.record import LANE, ClassCost, Marks, Policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 1024
SMALL_CORES = 4
"""Below this a full job may start with the whole base: half of two cores is not a build."""


def _lane_costs(least: int, most: int, server_wait_s: float | None = None) -> tuple[ClassCost, ...]:
    """What every preset has: one for each lane, and `other`. ``least`` to ``most`` units is a full job's start."""
    full = ClassCost(name="full", min_units=least, want_units=most, resizable=least < most)
    long = ClassCost(name="long", lane="long", min_units=least, want_units=most, unit_draws=(f"{LANE}long",))
    light = ClassCost(name="light", lane="light", min_units=0, want_units=0, draws=((f"{LANE}light", 1),))
    served = ClassCost(
        name="server",
        lane="server",
        min_units=0,
        want_units=0,
        draws=((f"{LANE}server", 1),),
        max_wait_s=server_wait_s,
    )
    return (full, ClassCost(name="other"), long, light, served)


def _shared(cores: int, memory_mib: int) -> Policy:
    """The default: most of the machine, fairly, above the base only while it is calm."""
    base = cores - cores // 8
    mem_floor_mib = min(4 * GIB, memory_mib // 8)
    most = base if cores < SMALL_CORES else (base + 1) // 2
    return Policy(
        name="shared",
        cores=cores,
        memory_mib=memory_mib,
        floor=max(1, cores // 2),
        base=base,
        ceiling=2 * cores,
        mem_budget_mib=memory_mib - max(mem_floor_mib, memory_mib // 4),
        mem_floor_mib=mem_floor_mib,
        burst_mem_mib=min(8 * GIB, memory_mib // 16),
        marks=Marks(
            cpu_votes=2,
            forecast=0.95,
            psi_cpu=60,
            load=1.5,
            psi_io=40,
            psi_memory=10,
            thrash_psi_io=90,
            thrash_psi_memory=25,
            thrash_load=3,
        ),
        pools=(
            (f"{LANE}light", max(1, cores // 4)),
            (f"{LANE}long", max(1, base // 2)),
            (f"{LANE}server", 2),
            ("port:*", 1),
        ),
        classes=_lane_costs(1, most, server_wait_s=0),
    )


def _governor(cores: int, memory_mib: int) -> Policy:
    """Jobs of P cores each, first come first served; a burst above the base is paced by memory and settling."""
    part = min(4, cores)
    jobs = max(1, min(cores // 4, memory_mib // (24 * GIB)))
    base = part * jobs
    ceiling = max(base, part * max(1, min(cores // 2, memory_mib // (12 * GIB))))
    return Policy(
        name="governor",
        cores=cores,
        memory_mib=memory_mib,
        floor=base,
        base=base,
        ceiling=ceiling,
        mem_floor_mib=4 * GIB,
        burst_mem_mib=8 * GIB,
        disk_floor_share=1.0,
        load_share=1.0,
        marks=Marks(cpu_votes=1, charged_load=1.5, thrash_load=3),
        required=("load1", "memory", "disk"),
        pools=(
            (f"{LANE}light", jobs),
            (f"{LANE}long", max(1, base // 2)),
            (f"{LANE}server", 2),
            ("simulator", max(1, min(cores // 4, memory_mib // 2 // (34 * GIB)))),
            ("port:*", 1),
        ),
        order="fifo",
        classes=_lane_costs(part, part),
    )


def _pacer(cores: int, memory_mib: int) -> Policy:
    """A smaller pool for many sessions, no burst, declared memory; a foreground call waits 75 s and then runs."""
    base = cores - cores // 7
    costs = {  # units, MiB
        "typecheck": (1, 4, 8),
        "build": (1, 4, 4),
        "test": (1, 8, 2),
        "browser": (1, 4, 2),
        "lint": (1, 2, 1),
    }
    heavy = [
        ClassCost(name=name, min_units=least, want_units=min(most, base), mem_mib=gib * GIB)
        for name, (least, most, gib) in costs.items()
    ]
    plain = [one for one in _lane_costs(1, min(4, base)) if one.lane != "server"]
    return Policy(
        name="pacer",
        cores=cores,
        memory_mib=memory_mib,
        floor=max(1, cores // 2),
        base=base,
        ceiling=base,
        mem_budget_mib=min(20 * GIB, memory_mib),
        marks=Marks(cpu_votes=1, load=4.0, blocked=max(4, cores)),
        pools=(
            (f"{LANE}light", max(1, cores // 4)),
            (f"{LANE}long", max(1, min(4, base // 2))),
            ("port:*", 1),
        ),
        limit_shares=((f"{LANE}long", 0.5),),
        classes=(
            *heavy,
            *plain,
            ClassCost(
                name="render",
                lane="long",
                want_units=min(4, base),
                mem_mib=2 * GIB,
                unit_draws=(f"{LANE}long",),
            ),
            ClassCost(name="server", lane="server", min_units=0, want_units=0),
        ),
        max_wait_s=75,
        after_wait="run",
        nice=5,
    )


PRESETS: dict[str, Callable[[int, int], Policy]] = {
    "shared": _shared,
    "governor": _governor,
    "pacer": _pacer,
}


def preset(name: str, cores: int, memory_mib: int) -> Policy:
    """The preset ``name`` on a machine of ``cores`` and ``memory_mib``. Raises KeyError for another name."""
    return PRESETS[name](cores, memory_mib)
