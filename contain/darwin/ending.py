"""Ending a job by SIGKILL, and the proof that it is over: two clean censuses, the second at least 20 ms later.

killpg's own word counts for nothing: EPERM means that only dead ones are left, or that nobody may be signalled. It is
used only while its number is surely ours: its anchor is our unreaped child, or is seen alive in it. Else, and for whom
it did not reach, signals go to exact births.
"""

from __future__ import annotations

import errno
import os
import time

from contain.backend import birth_of
from contain.csignal import csignal as signal
from contain.darwin import birth, census, exact
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from contain.darwin.census import Census, Member, Tree
    from contain.darwin.libproc import Libproc
    from receipts import Blocker

SECOND_S = 0.02
PAUSES_S = (0.001, 0.002, 0.005, 0.01, 0.02)
HELPLESS_TRIES, HELPLESS_S = 20, 0.1
"""So often it is tried quickly; and then, where no signal would end anybody who is left, with this in between."""
KILL_S = 5.0
OUTLIVED_S = 1.0
"""For each of them to end by SIGKILL, once the rest is gone."""

FOREIGN = "another user's: it may not be signalled from here (foreign-uid)"
STUCK = "on its way out of the kernel (exiting): if it stays, only a reboot clears it"
STRAY = "left the group, and is still alive (stray)"
NOT_OURS = "has the job's number, but may be of another job: it is not signalled"

NOBODY: Callable[[], Iterable[Member]] = tuple


EMPTY, LIVE, UNKNOWN = "empty", "live", "unknown"


class Ending(Record):
    """How it stands: ``empty``, on proof only; ``live``; ``unknown``. And why, and who is in the way."""

    state: str
    why: str
    blockers: tuple[Blocker, ...] = ()

    @property
    def empty(self) -> bool:
        """True only on proof."""
        return self.state == EMPTY


class _Ender:
    """One job's end, as far as it has come."""

    def __init__(self, tree: Tree, strays: Callable[[], Iterable[Member]], *, pinned: bool) -> None:
        self.tree = tree
        self.libproc = tree.libproc
        self.proof = tree.proof
        self.strays = strays
        self.pinned = pinned
        self.reasons: dict[int, str] = {}
        self.clean_s: float | None = None
        self.members: tuple[Member, ...] = ()
        self.unknown: str | None = None
        self.anchor_lives = False

    def signal_all(self, number: int) -> None:
        """To the group, and to whom that does not reach."""
        anchor = self.tree.anchor()
        self.anchor_lives = anchor.state == birth.LIVE
        grouped = self._signal_group(number, anchor)
        found = self._census()
        for member in found.members:
            if grouped and member.in_group and member.state == birth.LIVE and number != signal.SIGKILL:
                continue  # it has it already
            self._signal(member, number)
        # The anchor ignores all but KILL; it is the last of its group when killpg may not be used.
        if number == signal.SIGKILL and not grouped and anchor.state == birth.LIVE:
            exact.send(self.libproc, birth_of(self.proof), number)

    def _signal_group(self, number: int, anchor: birth.Sight) -> bool:
        group = self.proof.pid
        leads = anchor.state == birth.LIVE and anchor.short is not None and anchor.short.group == group
        if group <= 1 or group == os.getpgrp() or not (self.pinned or leads):
            return False
        result, error = self.libproc.handle.call("killpg", group, number)
        return result == 0 and error != errno.EPERM

    def _signal(self, member: Member, number: int) -> None:
        unique_id = member.birth.unique_id or 0
        if member.state == birth.EXITING:
            self.reasons[unique_id] = STUCK
        elif not self._certain(member):
            self.reasons[unique_id] = NOT_OURS
        elif exact.send(self.libproc, member.birth, number) == exact.DENIED:
            self.reasons[unique_id] = FOREIGN

    def _certain(self, member: Member) -> bool:
        return self.pinned or self.anchor_lives or self.tree.is_ours(member)

    def _census(self) -> Census:
        found = self.tree.census()
        known = {member.birth.unique_id for member in found.members}
        strays = [member for member in self.strays() if member.birth.unique_id not in known]
        for member in strays:
            if member.state == birth.LIVE:
                self.reasons.setdefault(member.birth.unique_id or 0, STRAY)
        return found.replace(members=(*found.members, *strays))

    def is_over(self) -> bool:
        """One more census; True when it is the second clean one in a row, and late enough."""
        found = self._census()
        anchor = self.tree.anchor()
        self.members, self.unknown = found.members, found.unknown
        self.anchor_lives = anchor.state in birth.RUNNING
        if anchor.state == birth.UNKNOWN:
            self.unknown = anchor.why
        now_s = time.monotonic()
        if not found.clean or anchor.state not in (birth.ZOMBIE, birth.GONE):
            self.clean_s = None
            return False
        if self.clean_s is None:
            self.clean_s = now_s
        return now_s - self.clean_s >= SECOND_S

    def helpless(self) -> bool:
        """Nobody is left whom another signal would end."""
        return bool(self.members) and all(
            member.state != birth.LIVE or self.reasons.get(member.birth.unique_id or 0) in (FOREIGN, NOT_OURS)
            for member in self.members
        )

    def result(self) -> Ending:
        """What to say when it is not over."""
        surely = any(member.state != birth.UNKNOWN and self._certain(member) for member in self.members)
        state = LIVE if surely or self.anchor_lives else UNKNOWN
        if self.members:
            why = f"{len(self.members)} of its processes are still there"
        elif self.anchor_lives:
            why = "its anchor is alive"
        else:
            why = "what was clean once is to be seen clean again"
        if self.unknown is not None:
            why = f"{why}; {self.unknown}" if self.members else self.unknown
        if self.members and not surely and not self.anchor_lives:
            why = f"{why}, and cannot be told from another job's, or be seen"
        for member in self.members:
            self.reasons.setdefault(member.birth.unique_id or 0, _reason(member))
        return Ending(state=state, why=why, blockers=census.blockers(self.members, self.reasons))


def _reason(member: Member) -> str:
    """Before anything was tried."""
    if member.state == birth.EXITING:
        return STUCK
    if member.state == birth.UNKNOWN:
        return member.why
    return FOREIGN if os.geteuid() not in (0, member.uid) else member.why


def named(members: Iterable[Member], reasons: Mapping[int, str] | None = None) -> tuple[Blocker, ...]:
    """For a receipt. ``reasons``: what trying has shown, by unique id."""
    found = tuple(members)
    looks = {member.birth.unique_id or 0: _reason(member) for member in found}
    return census.blockers(found, looks | dict(reasons or {}))


def kill(
    tree: Tree,
    *,
    pinned: bool,
    strays: Callable[[], Iterable[Member]] = NOBODY,
    wait_s: float = KILL_S,
) -> Ending:
    """SIGKILL, again and again, until it is proven over or ``wait_s`` have passed.

    ``pinned``: the anchor is an unreaped child of ours. ``strays``: who is known to have left, at each look.
    """
    ender = _Ender(tree, strays, pinned=pinned)
    until_s = time.monotonic() + wait_s
    tries = 0
    while True:
        if ender.clean_s is None:
            ender.signal_all(signal.SIGKILL)
        if ender.is_over():
            return Ending(state=EMPTY, why="two clean censuses")
        if time.monotonic() >= until_s:
            return ender.result()
        if tries >= HELPLESS_TRIES and ender.helpless():
            time.sleep(HELPLESS_S)
        else:
            time.sleep(PAUSES_S[min(tries, len(PAUSES_S) - 1)])
        tries += 1


def ask(tree: Tree, number: int, *, strays: Callable[[], Iterable[Member]] = NOBODY) -> None:
    """One signal to everybody, by who holds the anchor as an unreaped child."""
    _Ender(tree, strays, pinned=True).signal_all(number)


def observe(tree: Tree) -> Ending:
    """The same proof without a signal. Two looks, 20 ms apart, where the first finds nobody."""
    ender = _Ender(tree, NOBODY, pinned=False)
    while not ender.is_over():
        if ender.clean_s is None:
            return ender.result()
        time.sleep(SECOND_S)
    return Ending(state=EMPTY, why="its anchor has ended, and nobody was in its session or group, twice")


def strike(tree: Tree) -> None:
    """SIGKILL once, by who does not hold the anchor."""
    _Ender(tree, NOBODY, pinned=False).signal_all(signal.SIGKILL)


def blockers(tree: Tree) -> tuple[Blocker, ...]:
    """The anchor first, while it is there; then its members. Nobody is named who may be of another job."""
    ender = _Ender(tree, NOBODY, pinned=False)
    if ender.is_over():
        return ()
    found = ender.result()
    anchor = tree.anchor()
    if anchor.state not in birth.RUNNING:
        return found.blockers
    member = census.Member(
        birth=birth_of(tree.proof),
        name="contain-anchor",
        uid=tree.proof.uid,
        state=anchor.state,
        in_group=True,
        why=anchor.why,
    )
    return (*census.blockers((member,)), *found.blockers)


def outlived(
    libproc: Libproc, boot_id: str, recorded: Sequence[Blocker], *, kill: bool
) -> tuple[Blocker, ...]:
    """Who is still there of those that are recorded with their births; with ``kill``, after SIGKILL to each."""
    births = [(one.pid, one.unique_id) for one in recorded if one.unique_id is not None]
    until_s = time.monotonic() + (OUTLIVED_S if kill else 0.0)
    while True:
        seen = (census.known(libproc, boot_id, pid, unique_id) for pid, unique_id in births)
        found = tuple(member for member in seen if member is not None)
        denied = {
            member.birth.unique_id or 0: FOREIGN
            for member in found
            if kill and exact.send(libproc, member.birth, signal.SIGKILL) == exact.DENIED
        }
        if not found or time.monotonic() >= until_s:
            return named(found, denied)
        time.sleep(SECOND_S)
