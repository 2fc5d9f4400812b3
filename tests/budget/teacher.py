"""One process that learns: ``python -m tests.budget.teacher ROOT KEY COUNT`` says each lesson that was committed."""

from __future__ import annotations

import sys

from contain.budget.costs import Costs
from receipts import Outcome, Usage

MIB = 1 << 20


def usage(memory_mib: int, wall_s: float, source: str = "sampled", busy: float = 1.0) -> Usage:
    """What a job took."""
    return Usage(
        wall_us=int(wall_s * 1e6),
        user_us=int(wall_s * busy * 1e6),
        system_us=0,
        max_rss_bytes=(memory_mib if source == "largest-process" else memory_mib // 2) * MIB,
        processes=1,
        scope="waited-for",
        peak_memory_bytes=memory_mib * MIB,
        memory_source=source,
    )


def ended(code: int = 0) -> Outcome:
    """A command that ended by itself."""
    return Outcome(cause="exited", code=code)


def say(text: str) -> None:
    """A line for the test."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> int:
    """Waits for a line first, so that many begin together."""
    root, key, count = sys.argv[1:4]
    say("ready")
    sys.stdin.readline()
    learned = Costs(root, lambda text: say(f"said: {text}"))
    for number in range(int(count)):
        learned.learn(key, ended(), usage(100, 5.0), 0)
        say(f"learned {number + 1}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
