"""What one finished run teaches, and what a cost becomes by it. Pure: no clock, no file.

A peak that was passed is certain, a low one is luck: memory rises at once, and falls by a share of what is between.
Memory is MiB.
"""

from __future__ import annotations

from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.job import Outcome, Usage

MIB = 1 << 20
SHORTEST_S = 1.0
"""A shorter run failed early, or was a question: it says nothing of what the work takes."""
LARGEST_OWN_CODE = 125
"""From 126 on a shell says that its command was not there, or was killed."""
NOT_RUN = ("exec-failed", "setup-failed", "refused")

ENOUGH_RUNS = 2
"""So many whole runs before a cost is believed that is below the class's first guess."""
NOTABLE_MIB = 256
"""A class that draws no memory draws none for less than this, and so waits for nobody's memory."""
FALLS = 8
"""A lower peak takes an eighth of the difference off."""
FALLS_MIXED = 2
"""The same for a key that is shared by unlike commands: the largest of them must not be what all cost for long."""
MIXED = ("script", "other")
TIME_WEIGHT = 4
"""Seconds and busy cores move by a quarter of the difference."""
MORE_AFTER_OOM = 1.5
"""Nobody knows how much was missing."""

COUNTED, LOOKED_AT, LARGEST = "cgroup", "sampled", "largest-process"
OUT_OF_MEMORY = "out-of-memory"


class Lesson(Record):
    """What one run says. ``whole``: it ended by itself and was no short one; else all of it is "at least"."""

    whole: bool
    memory_mib: int
    source: str
    """As ``memory_source`` in a job's usage, or ``out-of-memory``."""
    wall_s: float
    busy: float | None = None


class LearnedCost(Record):
    """What is known of one key."""

    memory_mib: int = 0
    memory_source: str = ""
    """What the last change of ``memory_mib`` came from."""
    memory_runs: int = 0
    """Whole runs whose memory was that of the tree; only they can lower it."""
    wall_s: float = 0.0
    busy: float | None = None
    """Busy cores, on average; for people. It is bounded by the grants that it was measured under, so it must not
    become the next grant: that would only ever shrink."""
    runs: int = 0
    """Whole runs."""
    seen_at_s: float = 0.0
    """Wall time of the last lesson."""


def lesson(outcome: Outcome | None, usage: Usage | None, charged_mib: int) -> Lesson | None:
    """What this end teaches; None for nothing. ``charged_mib``: the memory that its permit was charged with."""
    if outcome is None or outcome.cause in NOT_RUN:
        return None
    peak_mib, source, wall_s, busy = 0, LARGEST, 0.0, None
    if usage is not None:
        peak_mib = -(-max(usage.peak_memory_bytes or 0, usage.max_rss_bytes) // MIB)
        source = usage.memory_source or LARGEST
        wall_s = (usage.wall_us or 0) / 1e6
    if outcome.cause == OUT_OF_MEMORY:
        # In a limit of its own the peak is that limit. Else the machine had no more, and the charge was too little.
        short_mib = peak_mib if source == COUNTED else max(peak_mib, charged_mib)
        return Lesson(
            whole=False, memory_mib=int(short_mib * MORE_AFTER_OOM), source=OUT_OF_MEMORY, wall_s=wall_s
        )
    if wall_s < SHORTEST_S and peak_mib <= max(charged_mib, NOTABLE_MIB):
        return None
    whole = outcome.cause == "exited" and (outcome.code or 0) <= LARGEST_OWN_CODE and wall_s >= SHORTEST_S
    if whole and usage is not None:
        busy = (usage.user_us + usage.system_us) / 1e6 / wall_s
    return Lesson(whole=whole, memory_mib=peak_mib, source=source, wall_s=wall_s, busy=busy)


def after(before: LearnedCost | None, one: Lesson, class_name: str, now_s: float) -> LearnedCost:
    """The cost with one more lesson."""
    cost = before or LearnedCost()
    of_tree = one.whole and one.source in (COUNTED, LOOKED_AT)
    if one.memory_mib >= cost.memory_mib:
        cost = cost.replace(memory_mib=one.memory_mib, memory_source=one.source)
    elif of_tree:
        falls = FALLS_MIXED if class_name in MIXED else FALLS
        less_mib = -(-(cost.memory_mib - one.memory_mib) // falls)
        cost = cost.replace(memory_mib=cost.memory_mib - less_mib, memory_source=one.source)
    if one.whole or one.wall_s > cost.wall_s:
        cost = cost.replace(wall_s=_moved(cost.wall_s, one.wall_s) if cost.runs else one.wall_s)
    if one.busy is not None:
        cost = cost.replace(busy=one.busy if cost.busy is None else _moved(cost.busy, one.busy))
    return cost.replace(runs=cost.runs + one.whole, memory_runs=cost.memory_runs + of_tree, seen_at_s=now_s)


def _moved(before: float, now: float) -> float:
    return before + (now - before) / TIME_WEIGHT


def expected_memory_mib(cost: LearnedCost, guess_mib: int) -> int:
    """What the next run is asked with, where the class would have said ``guess_mib``."""
    if guess_mib == 0 and cost.memory_mib < NOTABLE_MIB:
        return 0
    return cost.memory_mib if cost.memory_runs >= ENOUGH_RUNS else max(cost.memory_mib, guess_mib)


def expected_s(cost: LearnedCost, guess_s: float) -> float:
    """How long the next run is expected to take, where the class would have said ``guess_s``."""
    return cost.wall_s if cost.runs >= ENOUGH_RUNS else max(cost.wall_s, guess_s)
