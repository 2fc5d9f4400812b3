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
    return reading if isinstance(reading, (int, float)) else None


def busy_cores(sample: Sample, policy: Policy) -> float | None:
    """Busy cores; where the policy distrusts the counter, at least its share of load1."""
    busy, load = number(sample.busy), number(sample.load1)
    if busy is None or load is None or not policy.load_share:
        return busy
    return max(busy, load * policy.load_share)


def steady_signals(sample: Sample, policy: Policy) -> list[Signal]:
    """The processor's signals at their mark that no grant of ours moves, be they enough or not."""
    marks, cores = policy.marks, policy.cores
    load = None if marks.load is None else marks.load * cores
    return _over((("psi-cpu", sample.psi_cpu, marks.psi_cpu), ("load1", sample.load1, load))) + (
        [] if marks.blocked is None else _over((("blocked", sample.blocked, marks.blocked),))
    )


def charged_signals(sample: Sample, policy: Policy, busy: float | None, charge: float) -> list[Signal]:
    """Those that count what young permits may still take (``charge``, cores): each grant moves them."""
    marks, cores = policy.marks, policy.cores
    found: list[Signal] = []
    if busy is not None and marks.forecast is not None and busy + charge >= marks.forecast * cores:
        found.append(("forecast", busy + charge, marks.forecast * cores))
    if marks.charged_load is not None:
        load = number(sample.load1)
        if load is not None and load + charge > marks.charged_load * cores:
            found.append(("load1 and charges", load + charge, marks.charged_load * cores))
    return found


def stall_signals(sample: Sample, policy: Policy) -> list[Signal]:
    """For io and memory: each of them presses alone."""
    marks = policy.marks
    return _over(
        (("psi-io", sample.psi_io, marks.psi_io), ("psi-memory", sample.psi_memory, marks.psi_memory))
    )


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
        if mark is not None and isinstance(reading, (int, float)) and reading >= mark:
            found.append((name, reading, mark))
    return found
