"""A policy that asks no sensor: who waits is decided by the units, and not by what else runs on the machine."""

from __future__ import annotations


def units_policy(units: int = 1) -> str:
    """The text of its file; every full job takes one unit."""
    return f"""\
preset = "governor"
base = {units}
floor = {units}
ceiling = {units}
required = []
disk_floor_mib = 0
[marks]
charged_load = "none"
thrash_load = "none"
[classes.full]
min_units = 1
want_units = 1
"""
