"""A look at a birth that goes on: a kqueue of its own, whose descriptor can be read when the process has ended."""

from __future__ import annotations

from contain.backend import Observation
from contain.darwin import birth
from contain.darwin.kqueue import Kqueue

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.backend import Birth
    from contain.darwin.libproc import Libproc


class Watch:
    """Satisfies contain.backend.Watched."""

    def __init__(self, libproc: Libproc, born: Birth | None, observation: Observation) -> None:
        """``observation``: of a look just before. Only who is live is watched."""
        self.observation = observation
        self._kqueue: Kqueue | None = None
        if born is None or observation.state != birth.LIVE:
            return
        try:
            self._kqueue = Kqueue(libproc.handle)
            attached = self._kqueue.watch_process(born.pid)
        except OSError as error:
            self._give_up(Observation(state=birth.UNKNOWN, why=f"it cannot be watched ({error.strerror})"))
            return
        # What is attached to is bound to that very process: looked at now, it is the right one, or it is not.
        again = birth.observation(birth.sight(libproc, born))
        if not attached or again.state != birth.LIVE:
            self._give_up(again)

    def _give_up(self, observation: Observation) -> None:
        self.observation = observation
        self.close()

    @property
    def fd(self) -> int:
        """-1 where nothing is watched."""
        return -1 if self._kqueue is None else self._kqueue.fd

    def close(self) -> None:
        """Lets go of the kqueue."""
        if self._kqueue is not None:
            self._kqueue.close()
            self._kqueue = None
