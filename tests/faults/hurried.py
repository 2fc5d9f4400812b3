"""A customer whose patience is a part of everybody's: ``python -m tests.faults.hurried PART FOLDER NAME``.

The code is the product's; only its constants of many seconds are smaller, so that a test need not wait for them.
"""

from __future__ import annotations

import sys

from contain.budget.queue import reconcile, waiting
from contain.budget.registry import lock, store
from tests.budget import customer

PATIENCE = (
    (waiting, "SECOND_TICK_S"),
    (lock, "NAMED_AFTER_S"),
    (store, "GIVE_UP_S"),
    (reconcile, "UNBOUND_S"),
)


def main() -> int:
    """The customer's own end."""
    part = float(sys.argv.pop(1))
    for module, name in PATIENCE:
        setattr(module, name, getattr(module, name) * part)
    return customer.main()


if __name__ == "__main__":
    sys.exit(main())
