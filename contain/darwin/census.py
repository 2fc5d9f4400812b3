"""Who is in a job's session, process group or coalition now.

One look proves nothing: a child in the middle of its fork is invisible for microseconds, which is why emptiness takes
two (contain.darwin.ending).
"""

from __future__ import annotations

import errno
import time

from contain.backend import Birth, birth_of
from contain.darwin import birth, layout
from receipts import Blocker, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from contain.darwin.libproc import Identity, Libproc
    from receipts import Anchor

SESSION, GROUP = "session", "group"

ROUND_FORKS = 50_000
"""A number is given again only after all others (99,900, less those in use) were. A unique id counts every fork, so
who is in our group with one this near to the anchor's is ours, whether or not the anchor is still there."""

ELDERS_S = 1.0
"""So long a number that an older process had is not asked for again: in that time no machine makes a round of forks."""

MOST_NAMED = 64


class Member(Record):
    """A process that is not proven to have ended."""

    birth: Birth
    name: str
    uid: int
    state: str
    """``live``, ``exiting`` or ``unknown``."""
    in_group: bool
    why: str
    tagged: bool = False
    """It was seen in the job's own coalition, so it is surely the job's."""


class Census(Record):
    """One look. ``unknown`` says why it may be incomplete, and None that it is whole."""

    members: tuple[Member, ...]
    unknown: str | None = None

    @property
    def clean(self) -> bool:
        """Whole, and nobody runs."""
        return not self.members and self.unknown is None


class Tree:
    """A job as it can be seen from outside: its anchor, and who is in its session or group, or its coalition."""

    def __init__(self, libproc: Libproc, proof: Anchor, own: Sequence[Birth] = ()) -> None:
        """Nothing is looked at yet. ``own``: who is in the coalition besides the job, because it is its supervisor."""
        self.libproc = libproc
        self.proof = proof
        self._own = own
        self._elders: set[int] = set()
        self._elders_s = 0.0

    def anchor(self) -> birth.Sight:
        """How the anchor itself is."""
        return birth.sight(self.libproc, birth_of(self.proof))

    def is_ours(self, member: Member) -> bool:
        """Whether it is of our job; of who has our group's or session's number, when nobody pins that."""
        return member.tagged or 0 < (member.birth.unique_id or 0) - self.proof.unique_id < ROUND_FORKS

    def younger(self) -> list[tuple[int, Identity | None]]:
        """Who was born after the anchor: nobody else can be in its session, or its descendant. None: not to be seen.

        Raises OSError where nobody can be listed.
        """
        now_s = time.monotonic()
        if now_s - self._elders_s > ELDERS_S:
            self._elders, self._elders_s = set(), now_s
        found: list[tuple[int, Identity | None]] = []
        for pid in self.libproc.listed(layout.ALL_PIDS):
            if pid in self._elders:
                continue
            try:
                identity = self.libproc.identity(pid)
            except OSError as error:
                if error.errno != errno.ESRCH:
                    found.append((pid, None))
                continue
            if identity.unique_id > self.proof.unique_id:
                found.append((pid, identity))
            else:
                self._elders.add(pid)
        return found

    def census(self) -> Census:
        """The job's members but for the anchor itself, and ``own``."""
        tagged: dict[int, int] = {}
        try:
            group = set(self.libproc.listed(layout.PGRP_ONLY, self.proof.pid))
            if self.proof.coalition is not None:
                tagged = self._in_coalition(self.proof.coalition)
                pids = group | set(tagged)
            else:
                pids = group | (self._in_session() if self.proof.scope == SESSION else set())
        except OSError as error:
            return Census(members=(), unknown=f"the processes could not be listed ({_named(error)})")
        own = {born.unique_id for born in self._own}
        members, unknown = [], None
        for pid in sorted(pids - {self.proof.pid}):
            try:
                member = look(self.libproc, pid, in_group=pid in group)
            except OSError as error:
                unknown = f"pid {pid} could not be looked at ({_named(error)})"
                continue
            if member is not None and member.birth.unique_id not in own:
                members.append(member.replace(tagged=tagged.get(pid) == member.birth.unique_id))
        if self.proof.coalition is not None and not members and unknown is None:
            unknown = self._uncounted(self.proof.coalition)
        return Census(members=tuple(members), unknown=unknown)

    def _in_coalition(self, coalition: int) -> dict[int, int]:
        """Everybody in it who is not on its way out: unique ids, by pid. Raises OSError."""
        found = {}
        for pid in self.libproc.listed(layout.ALL_PIDS):
            try:
                if self.libproc.coalition(pid) != coalition:
                    continue
                unique_id = self.libproc.identity(pid).unique_id
                if self.libproc.coalition(pid) == coalition:  # else the number has changed hands
                    found[pid] = unique_id
            except OSError as error:
                if error.errno != errno.ESRCH:
                    raise
        return found

    def _uncounted(self, coalition: int) -> str | None:
        """Nobody was seen: does the kernel count more in the coalition than what is ours? Its count misses nobody."""
        ours = sum(birth.sight(self.libproc, born).state == birth.LIVE for born in self._own)
        ours += self.anchor().state == birth.LIVE
        try:
            count = self.libproc.tasks(coalition)
        except OSError as error:
            return f"the processes of its coalition could not be counted ({_named(error)})"
        return None if count <= ours else f"{count - ours} of its coalition cannot be seen"

    def _in_session(self) -> set[int]:
        found = set()
        for pid, _ in self.younger():
            try:
                if self.libproc.session(pid) == self.proof.pid:
                    found.add(pid)
            except OSError as error:
                # Ended ones are in no session any more; what exits in our group is in the group's list.
                if error.errno != errno.ESRCH:
                    raise
        return found


def _named(error: OSError) -> str:
    return errno.errorcode.get(error.errno or 0, "no errno")


def look(libproc: Libproc, pid: int, *, in_group: bool) -> Member | None:
    """A member as it is now; None for one that has ended. Raises OSError where that cannot be told."""
    try:
        born = birth.take(libproc, pid)
    except OSError as error:
        if error.errno == errno.ESRCH:
            entry = libproc.entry(pid)
            if entry is None or entry.status == layout.ZOMBIE_STATUS:
                return None  # whoever it was, should proc_pidinfo hide the dead
        raise
    seen = birth.sight(libproc, born)
    if seen.state in (birth.ZOMBIE, birth.GONE):
        return None
    name, uid = ("?", -1) if seen.short is None else (seen.short.name, seen.short.uid)
    return Member(birth=born, name=name, uid=uid, state=seen.state, in_group=in_group, why=seen.why)


def known(libproc: Libproc, boot_id: str, pid: int, unique_id: int) -> Member | None:
    """That very process as it is now, wherever it is; None when it has ended. One that cannot be seen is unknown."""
    try:
        member = look(libproc, pid, in_group=False)
    except OSError as error:
        born = Birth(boot_id=boot_id, observer_namespace=0, pid=pid, start_ticks=0, unique_id=unique_id)
        why = f"it could not be looked at ({_named(error)})"
        return Member(birth=born, name="?", uid=-1, state=birth.UNKNOWN, in_group=False, why=why)
    return member if member is not None and member.birth.unique_id == unique_id else None


LETTERS = {birth.LIVE: "R", birth.EXITING: "E", birth.UNKNOWN: "?"}


def blockers(members: tuple[Member, ...], why: dict[int, str] | None = None) -> tuple[Blocker, ...]:
    """For a receipt. ``why``: a better reason than the look's, by unique id."""
    reasons = why or {}
    return tuple(
        Blocker(
            pid=member.birth.pid,
            name=member.name,
            state=LETTERS.get(member.state, "?"),
            wchan=None,
            tracer=None,
            freezer=None,
            why=reasons.get(member.birth.unique_id or 0, member.why),
            unique_id=member.birth.unique_id,
        )
        for member in members[:MOST_NAMED]
    )
