"""One customer of a registry: ``python -m tests.budget.customer FOLDER NAME``.

A line on its input gives the permit back. The machine that it sees is idle and has two cores, so that a test decides
who waits, and not the load.
"""

from __future__ import annotations

import sys

from contain.budget.arbiter import Sample, Ticket
from contain.budget.policy import preset
from contain.budget.queue.desk import Desk
from contain.budget.queue.waiting import Waiting
from contain.budget.registry import Registry
from contain.linux.backend import LinuxBackend

UNITS = 2
"""Base of the policy: so many customers hold a permit at one time."""


def desk(folder: str) -> Desk:
    """A desk on a machine that is never pressed."""
    rules = preset("shared", UNITS, 24_000).replace(ceiling=UNITS)
    idle = Sample(busy=0.0, load1=0.0, available_mib=20_000.0)
    return Desk(Registry(folder, rules.base, say), rules, LinuxBackend(), lambda: idle, lambda: ((), {}))


def say(word: str) -> None:
    """A line for the test."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main() -> int:
    """Says ``asking``, then ``granted``, then ``returned``."""
    folder, name = sys.argv[1:3]
    counter = desk(folder)
    say("asking")
    ticket = Ticket(id=name, seq=0, session=name)
    waiting = Waiting(counter, LinuxBackend(), ticket, until_s=None, interrupts=None, tell=lambda _: None)
    waiting.run()
    say("granted")
    sys.stdin.readline()
    counter.release(name, "a line came")
    say("returned")
    return 0


if __name__ == "__main__":
    sys.exit(main())
