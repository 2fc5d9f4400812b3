"""contain: one job, one containment, one receipt. See docs/ARCHITECTURE.md for the map."""

from __future__ import annotations


def version() -> str:
    """The installed version."""
    from importlib.metadata import version as installed

    return installed("contain")
