"""Attributes of our own Python process: the only importer of prctl. What belongs to a job is set by its init."""

from __future__ import annotations


def name_process(name: str) -> None:
    """Gives this process a name in ps and top, where it has another (``python -m contain`` is a ``python``).

    Started through ``bin/contain`` the kernel has named it already, and prctl is not imported.
    """
    with open("/proc/self/comm", encoding="utf-8", errors="replace") as source:
        if source.read().strip() == name:
            return
    import prctl

    prctl.set_name(name)
