"""Rounds in which contestants take turns, and the row that comes of them."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Contestant = Callable[[], float]


def medians(contestants: Sequence[Contestant], rounds: int, warm_up: int = 2) -> list[list[float]]:
    """Each contestant's seconds, round by round. The order turns with each round, so that none is always first."""
    found: list[list[float]] = [[] for _ in contestants]
    for number in range(-warm_up, rounds):
        for place in range(len(contestants)):
            which = (place + number) % len(contestants)
            seconds = contestants[which]()
            if number >= 0:
                found[which].append(seconds)
    return found


def ratio(ours: list[float], theirs: list[float]) -> float:
    """The median of the round-by-round ratios: a machine that slows down slows both."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


class Table:
    """Rows, printed as they come; ``missed`` counts those over their target."""

    def __init__(self) -> None:
        """Prints the head."""
        self.missed = 0
        self._print("claim", "ours", "peer", "ratio", "target", "")

    def row(self, claim: str, ours: str, peer: str, value: float, target: float) -> None:
        """One claim: ``value`` is to be at most ``target``."""
        met = value <= target
        self.missed += not met
        self._print(claim, ours, peer, f"{value:.2f}", f"{target:g}", "ok" if met else "MISSED")

    @staticmethod
    def _print(claim: str, ours: str, peer: str, value: str, target: str, verdict: str) -> None:
        sys.stdout.write(f"{claim:<66} {ours:>10} {peer:>22} {value:>7} {target:>7} {verdict}\n")
        sys.stdout.flush()


def ms(times_s: list[float]) -> str:
    """The median in milliseconds."""
    return f"{statistics.median(times_s) * 1000:.2f} ms"
