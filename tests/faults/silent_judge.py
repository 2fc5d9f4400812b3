"""A customer that is killed where others would be rung: after its commit, before the first bell."""

from __future__ import annotations

import os
import signal
import sys

from contain.budget.queue import wake
from tests.budget import customer


def ring(registry_folder: str, name: str) -> bool:
    """In the place of the product's; its own bell it does not need."""
    if name != sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
    return bool(registry_folder)


if __name__ == "__main__":
    wake.ring = ring
    sys.exit(customer.main())
