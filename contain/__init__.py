"""contain: one job, one containment, one receipt. See docs/ARCHITECTURE.md for the map, docs/API.md for the API.

What is imported from here is loaded when it is first named: the command line does not pay for the API.
"""

from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from contain.api.calls import run, start
    from contain.api.finished import Finished
    from contain.api.handle import Handle
    from contain.api.streams import DEVNULL, PIPE, STDOUT
    from contain.api.tasks import AsyncHandle, arun, astart
    from contain.errors import CommandFailed, CommandTimedOut, ContainError, ContainmentHeld
    from contain.job import Limits
    from receipts import Leftovers, Outcome, Receipt, Usage

__all__ = [
    "DEVNULL",
    "PIPE",
    "STDOUT",
    "AsyncHandle",
    "CommandFailed",
    "CommandTimedOut",
    "ContainError",
    "ContainmentHeld",
    "Finished",
    "Handle",
    "Leftovers",
    "Limits",
    "Outcome",
    "Receipt",
    "Usage",
    "arun",
    "astart",
    "run",
    "start",
    "version",
]

_HOMES = {
    "DEVNULL": "contain.api.streams",
    "PIPE": "contain.api.streams",
    "STDOUT": "contain.api.streams",
    "AsyncHandle": "contain.api.tasks",
    "CommandFailed": "contain.errors",
    "CommandTimedOut": "contain.errors",
    "ContainError": "contain.errors",
    "ContainmentHeld": "contain.errors",
    "Finished": "contain.api.finished",
    "Handle": "contain.api.handle",
    "Leftovers": "receipts",
    "Limits": "contain.job",
    "Outcome": "receipts",
    "Receipt": "receipts",
    "Usage": "receipts",
    "arun": "contain.api.tasks",
    "astart": "contain.api.tasks",
    "run": "contain.api.calls",
    "start": "contain.api.calls",
}


_loading = _thread.RLock()
"""Held while a name is loaded. A child that has copied half an import would wait for its other half for ever."""
_stilled: list[Any] = []


def _before_fork() -> None:
    """First the imports, then the engine: hooks that are registered while a fork waits are not called by it."""
    _loading.acquire()
    engine = sys.modules.get("contain.api.engine")
    if engine is not None:
        engine.before_fork()
        _stilled.append(engine)


def _after_fork(*, child: bool) -> None:
    if _stilled:
        engine = _stilled.pop()
        (engine.after_fork_in_child if child else engine.after_fork_in_parent)()
    _loading.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(child=False),
    after_in_child=lambda: _after_fork(child=True),
)


def __getattr__(name: str) -> object:
    """A name of the API, loaded from its home."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'contain' has no attribute {name!r}")
    with _loading:
        from importlib import import_module

        value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The API, loaded or not."""
    return sorted({*globals(), *__all__})


def version() -> str:
    """The installed version; ``unknown`` of a bare copy of the package, which says none."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("contain")
    except PackageNotFoundError:
        return "unknown"
