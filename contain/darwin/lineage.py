"""Who has left the session or group: evidence in layers, and never a proof that nobody has.

1. the session, where the job has one of its own (contain.darwin.census);
2. descent: the parent's unique id, or its version at the fork, is a known member's. Misses who was born of a parent
   that lived and died between two looks;
3. a file that the command inherits open: who has it open is a descendant. Misses who closes what it did not open.

So the words are ``listed`` and ``not-observed``, and never "none". In a coalition of its own a job has nobody outside,
and nothing is looked for.
"""

from __future__ import annotations

import os

from contain.darwin import census, mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.darwin.census import Member, Tree
    from receipts import Anchor

LISTED, NOT_OBSERVED, EXCLUDED = "listed", "not-observed", "excluded"


def at_end(proof: Anchor, *, seen_outside: bool = False) -> str:
    """The honest word for a job that is proven over. Only a coalition that was counted empty excludes anybody."""
    if proof.coalition is not None:
        return EXCLUDED
    return LISTED if seen_outside else NOT_OBSERVED


class Lineage:
    """What is known of a job's descent. Ids of the dead are kept: their children come later."""

    def __init__(self, tree: Tree, marked: str | None) -> None:
        """``marked``: the path of the inherited file; None for none. In a coalition there is nothing to look for."""
        self._tree = tree
        self._libproc = tree.libproc
        self._proof = proof = tree.proof
        self._mark = marked
        self._versions: set[int] = set()
        self._ids = {proof.unique_id}
        self._foreign: set[int] = set()
        self._pids: dict[int, int] = {}
        """By unique id: who was seen outside or inside, and may be alive."""
        self.seen_outside = False

    def scan(self) -> None:
        """One look at every process that is younger than the anchor. What cannot be seen is left for the next."""
        if self._proof.coalition is not None:
            return
        try:
            young = self._tree.younger()
            self._versions.add(self._libproc.identity(self._proof.pid).version)
        except OSError:
            return
        marked = self._marked()  # after: who is in the one list and lives is in the other, if it has the mark
        found = [
            (identity.unique_id, pid, identity)
            for pid, identity in young
            if identity is not None and identity.unique_id not in self._foreign
        ]
        # A parent's id is lower than its children's, so one pass in their order finds every generation.
        for unique_id, pid, identity in sorted(found, key=lambda one: one[0]):
            ours = (
                unique_id in self._ids
                or identity.parent_unique_id in self._ids
                or (identity.parent_version != 0 and identity.parent_version in self._versions)
                or (marked is not None and pid in marked)
            )
            if ours:
                self._ids.add(unique_id)
                self._versions.add(identity.version)
                self._pids[unique_id] = pid
            elif marked is not None:
                self._foreign.add(unique_id)

    def _marked(self) -> frozenset[int] | None:
        """None: it cannot be told now, so nobody is called foreign for good."""
        if self._mark is None or not self._libproc.handle.has("proc_listpidspath"):
            return frozenset()
        try:
            return frozenset(self._libproc.with_open(self._mark)) - {os.getpid()}
        except OSError:
            return None

    def pids(self) -> tuple[int, ...]:
        """Everybody who is known and may be alive."""
        return tuple(self._pids.values())

    def strays(self) -> tuple[Member, ...]:
        """Known descendants that are alive outside of the session or group, after a fresh scan."""
        self.scan()
        found = []
        for unique_id, pid in list(self._pids.items()):
            member = census.known(self._libproc, self._proof.boot_id, pid, unique_id)
            if member is None:
                del self._pids[unique_id]
                continue
            inside = self._inside(pid)
            if not inside:
                found.append(member)
            self.seen_outside = self.seen_outside or inside is False
        return tuple(found)

    def _inside(self, pid: int) -> bool | None:
        """None: it cannot be told, of one that is exiting for instance. It counts, and is counted once."""
        try:
            if self._libproc.short(pid).group == self._proof.pid:
                return True
            return self._proof.scope == census.SESSION and self._libproc.session(pid) == self._proof.pid
        except OSError:
            return None

    def forget_mark(self) -> None:
        """Removes the inherited file."""
        if self._mark is not None:
            mark.remove(self._mark)
            self._mark = None

    @property
    def detached(self) -> str:
        """The honest word."""
        return at_end(self._proof, seen_outside=self.seen_outside)
