"""What a wrapper does for its permit while the job runs: it follows the target, and answers requests from inside.

The target is the judge's wish, the jobserver makes it true: upwards at once, downwards as its clients give tokens back.
The registry is told only what is true, so a unit is never given to somebody else while a child still has it.
"""

from __future__ import annotations

import time

from contain.errors import LockUnavailable, RegistryDamaged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from contain.backend import Containment
    from contain.budget.jobserver import Jobserver
    from contain.budget.nested import Answerer
    from contain.budget.queue.desk import Desk
    from contain.budget.queue.wake import Bell
    from contain.budget.registry import PermitRow
    from receipts import Proof

AUDIT_S = 2.0
"""How often tokens that nobody can hold any more are looked for, while any are out."""


class Tenure:
    """A permit in the hands of its wrapper. Satisfies contain.lifecycle.front.Companion."""

    def __init__(
        self, desk: Desk, row: PermitRow, bell: Bell, jobserver: Jobserver | None, answerer: Answerer | None
    ) -> None:
        """``bell`` rings when the target has changed; ``answerer`` None: nobody can ask from inside."""
        self._desk = desk
        self._permit_id = row.permit.id
        self._bell = bell
        self._jobserver = jobserver
        self._answerer = answerer
        self._units = row.permit.units
        self._audit_at_s = time.monotonic() + AUDIT_S
        if answerer is not None:
            answerer.units = self._units

    def prove(self, proof: Proof) -> None:
        """The permit is bound to this containment; requests from inside it can be told from others now."""
        if self._answerer is not None:
            self._answerer.prove(proof)

    def fds(self) -> Sequence[int]:
        """What to poll for reading."""
        found = [self._bell.fd]
        found += self._jobserver.fds() if self._jobserver is not None else ()
        found += self._answerer.fds() if self._answerer is not None else ()
        return found

    def due_s(self) -> float | None:
        """The next audit; None while no token is out."""
        return self._audit_at_s if self._jobserver is not None and self._jobserver.out else None

    def turn(self, ready: Iterable[int], containment: Containment) -> None:
        """Does what is due. Never waits, but for the registry's lock. A registry that is damaged ends no job."""
        try:
            self._turn(set(ready), containment)
        except (RegistryDamaged, LockUnavailable):
            pass  # what could not be said is said again at the next turn; until then the job is accounted as before

    def _turn(self, ready: set[int], containment: Containment) -> None:
        if self._answerer is not None:
            for extra in self._answerer.turn(ready):
                self._desk.release(extra, "the nested command that drew it has ended")
        rung = self._bell.fd in ready
        if rung:
            self._bell.silence()
        if self._jobserver is not None:
            self._follow(self._jobserver, containment, rung=rung)

    def _follow(self, jobserver: Jobserver, containment: Containment, *, rung: bool) -> None:
        if rung:
            row = self._desk.permit(self._permit_id)
            # A permit that was rebuilt may count for more than the job has: what cannot be resized is not.
            if row is not None and row.permit.resizable:
                self._units = row.permit.units
                jobserver.resize(row.permit.target)
        jobserver.settle()
        now_s = time.monotonic()
        if jobserver.out and now_s >= self._audit_at_s:
            jobserver.audit(containment.tasks())
        if now_s >= self._audit_at_s:
            self._audit_at_s = now_s + AUDIT_S
        if jobserver.units != self._units:
            self._desk.settle(self._permit_id, jobserver.units)
            self._units = jobserver.units
        if self._answerer is not None:
            self._answerer.units = self._units

    def close(self) -> None:
        """The job is over, or never began."""
        self._bell.close()
        if self._jobserver is not None:
            self._jobserver.close()
        if self._answerer is not None:
            self._answerer.close()
