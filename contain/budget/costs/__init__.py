"""What finished jobs took, and what the next of their kind is therefore asked with.

    keys        which runs are of one kind: class, tool, lane and project, never an argument
    estimate    what one run teaches, and what becomes of a cost by it; pure
    store       of one account: recalled before a ticket is made, learned after a job, never in the registry's lock
    file        the SQLite file below it

Nothing here is a job's error: without the file every class costs what its own numbers say.
"""

from __future__ import annotations

from contain.budget.costs.estimate import OUT_OF_MEMORY, LearnedCost, expected_memory_mib, expected_s
from contain.budget.costs.keys import key_of
from contain.budget.costs.store import Costs

__all__ = ["OUT_OF_MEMORY", "Costs", "LearnedCost", "expected_memory_mib", "expected_s", "key_of"]
