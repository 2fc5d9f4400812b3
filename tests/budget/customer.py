"""One customer of a registry: ``python -m tests.budget.customer FOLDER NAME [FIELD=NUMBER...]``.

A line on its input gives the permit back. Its session is the NAME up to a dot. A FIELD is of the sample (busy, load1,
available_mib) or of the policy (ceiling, floor, settle_s); ``light=1`` asks for the light lane. The machine that it
sees is idle and has two cores, so that a test decides who waits, and not the load.
"""

from __future__ import annotations

import sys
from typing import Any

from contain.budget.arbiter import Sample, Ticket
from contain.budget.policy import preset
from contain.budget.queue.desk import Desk
from contain.budget.queue.waiting import Waiting
from contain.budget.registry import Registry
from contain.linux.backend import LinuxBackend

UNITS = 2
"""Base of the policy: so many customers hold a permit at one time."""


def desk(folder: str, backend: LinuxBackend | None = None, **numbers: float) -> Desk:
    """A desk on a machine that is never pressed, unless ``numbers`` say so."""
    rules = preset("shared", UNITS, 24_000).replace(ceiling=int(numbers.pop("ceiling", UNITS)))
    rules = rules.replace(
        settle_s=numbers.pop("settle_s", rules.settle_s), floor=int(numbers.pop("floor", rules.floor))
    )
    idle: dict[str, Any] = {"busy": 0.0, "load1": 0.0, "available_mib": 20_000.0}
    seen = Sample(**idle | numbers)
    return Desk(
        Registry(folder, rules.base, say), rules, backend or LinuxBackend(), lambda: seen, lambda: ((), {})
    )


def say(word: str) -> None:
    """A line for the test."""
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main() -> int:
    """Says ``asking``, then ``granted``, then ``returned``."""
    folder, name = sys.argv[1:3]
    numbers = {field: float(number) for field, _, number in (word.partition("=") for word in sys.argv[3:])}
    ticket = Ticket(id=name, seq=0, session=name.partition(".")[0])
    if numbers.pop("light", 0):
        ticket = ticket.replace(lane="light", min_units=0, want_units=0, draws=(("lane:light", 1),))
    counter = desk(folder, None, **numbers)
    say("asking")
    waiting = Waiting(counter, LinuxBackend(), ticket, until_s=None, interrupts=None, tell=lambda _: None)
    waiting.run()
    say("granted")
    sys.stdin.readline()
    counter.release(name, "a line came")
    say("returned")
    return 0


if __name__ == "__main__":
    sys.exit(main())
