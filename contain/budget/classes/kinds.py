"""What each class costs before anything was learned about it."""

from __future__ import annotations

from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

FULL, LIGHT, LONG, SERVER, NO_LANE = "full", "light", "long", "server", "none"

NARROW = 2
"""Workers of a job that holds no unit: enough for a focused check or a server, and no second build."""


class JobClass(Record):
    """A named kind of command with its costs.

    ``memory_mib`` is a first guess, to be replaced by what was learned and clamped by the policy to its budget: a small
    machine runs a typecheck alone rather than never. ``resizable``: the children take tokens from a jobserver, so the
    grant can follow the machine while the job runs.
    """

    name: str
    lane: str
    min_units: int
    want_units: int | None
    """Units: busy cores. None: as many as the policy gives one job of this lane."""
    memory_mib: int = 0
    pools: tuple[tuple[str, int], ...] = ()
    """Tokens of named pools besides the lane's."""
    resizable: bool = False
    tool: str = ""
    """The tool's own name, from our table; never a word of the command line that is not in it."""

    @property
    def takes_part(self) -> bool:
        """False for what a person sits in front of: no ticket, no permit."""
        return self.lane != NO_LANE

    def units(self, base: int, share: int) -> tuple[int, int]:
        """(min, want) on a machine of ``base`` units whose policy gives one job at most ``share``."""
        least = min(self.min_units, base)
        want = share if self.want_units is None else self.want_units
        return least, max(least, min(want, base))

    def draws(self, units: int) -> Mapping[str, int]:
        """Pool -> tokens that a grant of ``units`` takes from it. A lane is a pool."""
        lane = {
            LIGHT: {"lane:light": 1},
            SERVER: {"lane:server": 1},
            LONG: {"lane:long": units},
        }.get(self.lane, {})
        return {**lane, **dict(self.pools)}

    def width(self, units: int) -> int:
        """How many workers the children may start under a grant of ``units``: at least one."""
        return units if units > 0 else NARROW

    def focused(self, memory_mib: int = 0) -> JobClass:
        """The same work on a few named things: the light lane, which holds no unit and waits for memory alone."""
        return self.replace(lane=LIGHT, min_units=0, want_units=0, memory_mib=memory_mib, resizable=False)

    def exactly(self, units: int) -> JobClass:
        """The command itself says how many workers it starts: no more, no fewer, and no resizing."""
        if self.min_units == 0:
            return self
        return self.replace(min_units=units, want_units=units, resizable=False)


def _kind(name: str, lane: str, least: int, want: int | None, memory_mib: int) -> JobClass:
    return JobClass(name=name, lane=lane, min_units=least, want_units=want, memory_mib=memory_mib)


KINDS: Mapping[str, JobClass] = {
    kind.name: kind
    for kind in (
        _kind("test", FULL, 1, None, 2048),
        _kind("browser", FULL, 1, None, 2048),
        # One thread of the compiler, and gigabytes: it is the memory that makes ten at once a swap storm.
        _kind("typecheck", FULL, 1, 1, 4096),
        _kind("lint", FULL, 1, 2, 1024),
        _kind("format", FULL, 1, 1, 512),
        _kind("install", FULL, 1, 2, 1024),
        _kind("compile", FULL, 1, None, 2048),
        _kind("bundle", FULL, 1, 2, 2048),
        # What takes minutes of everything it gets: a lane of its own, so that a few cannot fill the machine.
        _kind("build", LONG, 1, None, 4096),
        _kind("render", LONG, 1, None, 2048),
        _kind("serve", SERVER, 0, 0, 1024),
        _kind("script", FULL, 1, None, 2048),
        _kind("other", FULL, 1, 1, 0),
        _kind("none", NO_LANE, 0, 0, 0),
    )
}
