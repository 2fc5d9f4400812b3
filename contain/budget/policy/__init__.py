"""How much this machine may carry: numbers only. A preset maps cores and memory to them; a file may change any."""

from __future__ import annotations

from contain.budget.policy.file import check, set_value, show
from contain.budget.policy.presets import PRESETS, preset
from contain.budget.policy.record import AFTER_WAIT, LANE, LANES, ORDERS, SENSORS, ClassCost, Marks, Policy

__all__ = [
    "AFTER_WAIT",
    "LANE",
    "LANES",
    "ORDERS",
    "PRESETS",
    "SENSORS",
    "ClassCost",
    "Marks",
    "Policy",
    "check",
    "preset",
    "set_value",
    "show",
]
