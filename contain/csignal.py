"""``signal`` as C has it: the same calls and numbers, without the enums around them (ADR 0007).

``import signal`` makes an enum of every number, and brings ``enum``, ``functools`` and ``collections`` along: half of a
bare interpreter's own start, before every job.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as csignal
else:
    try:
        import _signal as csignal
    except ImportError:  # another Python
        import signal as csignal

__all__ = ["csignal", "name_of"]


def name_of(number: int) -> str:
    """``SIGTERM`` for 15; the number itself for one without a name."""
    for name, value in vars(csignal).items():
        if value == number and name.startswith("SIG") and not name.startswith("SIG_"):
            return name
    return str(number)
