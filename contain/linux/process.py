"""Attributes of our own Python process: the only importer of prctl. What belongs to a job is set by its init."""

from __future__ import annotations

from contain.linux import procfs


def name_process(name: str) -> None:
    """Gives this process a name in ps and top, where it has another (``python -m contain`` is a ``python``).

    Started through ``bin/contain`` the kernel has named it already, and prctl is not imported.
    """
    if procfs.glance("/proc/self/comm") == name:
        return
    try:
        import prctl
    except ImportError:
        return  # whoever leaves it out for its licence loses a name in ps, and nothing else
    prctl.set_name(name)
