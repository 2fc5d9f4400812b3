"""What the sample says about pressure: which signals are at their mark. Every number is the policy's."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from contain.budget.arbiter.facts import Sample, Unknown
    from contain.budget.policy import Policy

Signal = tuple[str, float, float]
"""(its name, what it shows, its mark)"""


def number(reading: float | Unknown | None) -> float | None:
    """A reading that is a number; None if there is no sensor or it failed."""
    return reading if isinstance(reading, int | float) else None


def busy_cores(sample: Sample, policy: Policy) -> float | None:
    """Busy cores; where the policy distrusts the counter, at least its share of load1."""
    busy, load = number(sample.busy), number(sample.load1)
    if busy is None or load is None or not policy.load_share:
        return busy
    return max(busy, load * policy.load_share)


def cpu_signals(sample: Sample, policy: Policy, busy: float | None, charge: float) -> list[Signal]:
    """The processor's signals that are at their mark, be they enough or not. ``charge`` as in `Room`."""
    marks, cores = policy.marks, policy.cores
    load, psi, blocked = number(sample.load1), number(sample.psi_cpu), number(sample.blocked)
    found: list[Signal] = []
    if busy is not None and marks.forecast is not None and busy + charge >= marks.forecast * cores:
        found.append(("forecast", busy + charge, marks.forecast * cores))
    if psi is not None and marks.psi_cpu is not None and psi >= marks.psi_cpu:
        found.append(("psi-cpu", psi, marks.psi_cpu))
    if load is not None and marks.load is not None and load >= marks.load * cores:
        found.append(("load1", load, marks.load * cores))
    if load is not None and marks.charged_load is not None and load + charge > marks.charged_load * cores:
        found.append(("load1 and charges", load + charge, marks.charged_load * cores))
    if blocked is not None and marks.blocked is not None and blocked >= marks.blocked:
        found.append(("blocked", blocked, float(marks.blocked)))
    return found


def stall_signals(sample: Sample, policy: Policy) -> list[Signal]:
    """For io and memory: each of them presses alone."""
    marks = policy.marks
    pairs = (("psi-io", sample.psi_io, marks.psi_io), ("psi-memory", sample.psi_memory, marks.psi_memory))
    return _over(pairs)


def thrash(sample: Sample, policy: Policy) -> Signal | None:
    """The signal that says: nothing at all. load1 is asked only where io and memory cannot be."""
    marks = policy.marks
    stalls = (
        ("psi-io", sample.psi_io, marks.thrash_psi_io),
        ("psi-memory", sample.psi_memory, marks.thrash_psi_memory),
    )
    if all(number(has) is None or mark is None for _, has, mark in stalls):
        load = None if marks.thrash_load is None else marks.thrash_load * policy.cores
        found = _over((("load1", sample.load1, load),))
    else:
        found = _over(stalls)
    return found[0] if found else None


def _over(pairs: Iterable[tuple[str, float | Unknown | None, float | None]]) -> list[Signal]:
    found: list[Signal] = []
    for name, reading, mark in pairs:
        has = number(reading)
        if has is not None and mark is not None and has >= mark:
            found.append((name, has, mark))
    return found
