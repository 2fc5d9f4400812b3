"""What a decision reads and what it says, as frozen records.

Units are busy cores, memory and disk are MiB. Times whose name ends in ``at_s`` are awake seconds of one clock that
stands still in suspend; ``until_s`` is wall time, since an operator means the clock on the wall.
"""

from __future__ import annotations

from contain.machine import Disk, Sample, Unknown
from receipts.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Decision", "Disk", "Grant", "Health", "Hold", "LimitState", "Now", "Permit", "Sample", "Snapshot", "Ticket",
    "Unknown",
]  # fmt: skip


class Now(Record):
    """One moment on both clocks."""

    awake_s: float
    wall_s: float = 0.0


class Ticket(Record):
    """A waiting request. ``min_units`` 0 draws no cpu at all."""

    id: str
    seq: int
    session: str
    class_name: str = "full"
    lane: str = "full"
    min_units: int = 1
    want_units: int = 1
    mem_mib: int = 0
    draws: tuple[tuple[str, int], ...] = ()
    unit_draws: tuple[str, ...] = ()
    """Pools from which it takes as many as its cpu units."""
    resizable: bool = False
    expected_s: float = 60.0
    volume: str | None = None
    """The volume of its working directory."""
    holder: str = ""
    dormant: bool = False


class Permit(Record):
    """A ticket that was granted, under the same id. What it draws is as in the ticket, for its present units."""

    id: str
    seq: int
    session: str
    class_name: str = "full"
    lane: str = "full"
    state: str = "granted"
    """granted (not bound yet), bound, running, cleanup or held: all of them count."""
    units: int
    target: int
    """What it should move to. Until the wrapper has followed downwards, ``units`` stay accounted."""
    min_units: int = 1
    mem_mib: int = 0
    draws: tuple[tuple[str, int], ...] = ()
    unit_draws: tuple[str, ...] = ()
    resizable: bool = False
    granted_at_s: float
    cpu: float | None = None
    """Measured busy cores; None: not known."""
    rss_mib: float | None = None
    holder: str = ""
    how: str = "limit"
    """limit, burst, one-progress, or open: it ran without a grant when its time was over."""
    charged: float = 0.0
    """Service that its session was charged at the grant."""
    served: float = 0.0
    """Service used until ``served_at_s``; a resize closes an account and opens the next."""
    served_at_s: float = 0.0

    @property
    def accounted(self) -> int:
        """Units that nobody else may have: it holds them, or was told that it may take them."""
        return max(self.units, self.target)


class Hold(Record):
    """An operator's pause of new grants. ``covers`` names lanes and pools; empty means all."""

    id: str
    owner: str
    reason: str
    until_s: float
    covers: tuple[str, ...] = ()


class Health(Record):
    """A pool that grants nothing: cooling until a time, or quarantined with a reason (``until_s`` None: for good)."""

    reason: str
    until_s: float | None = None


class LimitState(Record):
    """The limit and when it last moved; ``pressed_at_s`` is the last moment that was seen pressed."""

    limit: int
    changed_at_s: float = float("-inf")
    pressed_at_s: float = float("-inf")


class Snapshot(Record):
    """All that is waiting and all that is granted, at one moment; ``tickets`` are in the order of their seq."""

    limit: LimitState
    tickets: tuple[Ticket, ...] = ()
    permits: tuple[Permit, ...] = ()
    overtaken: Mapping[int, float] = {}
    """By seq: how many times its own cost was granted to later ones while it waited first of its session."""
    service: Mapping[str, float] = {}
    """By session: seconds of its share of the machine, counted for fairness."""
    holds: tuple[Hold, ...] = ()
    health: Mapping[str, Health] = {}


class Grant(Record):
    """A ticket may run with so many units; ``how`` as in a permit."""

    ticket: Ticket
    units: int
    how: str = "limit"


class Decision(Record):
    """What changes now. Applying it is `accounts.after`."""

    grants: tuple[Grant, ...] = ()
    targets: tuple[tuple[str, int], ...] = ()
    """(permit id, units to move to), only for those that change."""
    limit: LimitState
    wake: tuple[str, ...] = ()
    """Ids of tickets and permits whose owners must look."""
    impossible: tuple[str, ...] = ()
    """Ids of tickets that can never be granted under this policy: to be refused."""
    pressed: tuple[str, ...] = ()
    """The signals that pressed before the first grant."""
