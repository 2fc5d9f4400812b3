"""One permit of a host, from its ask to its return: what the registry and the machine say of it, as messages.

    waiting --> granted --> bound --> gone
       ^__________|  (not taken for 10 s: its place again)

Nothing here knows lines or pipes: it is told by records and says by a callback, so that the API can have it too.
Nothing here waits but for the registry's lock. The permit returns on evidence alone: a receipt that says released and
empty for this permit and this proof, or the tree seen to be gone.
"""

from __future__ import annotations

import os
import time

from contain.budget import asking
from contain.budget.classes import KINDS
from contain.budget.parallelism import hints
from contain.budget.queue import wake
from contain.budget.queue.waiting import TICK_S, Waiting
from contain.errors import (
    ContainError,
    EvidenceLacking,
    JobBusy,
    LockUnavailable,
    PermitLost,
    RegistryDamaged,
)
from contain.lifecycle import custody
from contain.protocol import violation
from receipts import RELEASED, Receipt, Record, Unreadable, decode_proof, encode, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from contain.backend import Backend, Observation, Watched
    from contain.budget.arbiter import Ticket
    from contain.budget.classes import JobClass
    from contain.budget.messages import Ask, Bind
    from contain.budget.queue.desk import Desk
    from contain.budget.queue.waiting import Standing
    from contain.budget.registry import PermitRow

    Say = Callable[[str, Mapping[str, object]], None]
    """(event, fields)"""

SERVER = "server"
TREE_GONE = "its tree is gone"
WAITING, GRANTED, BOUND, GONE = "waiting", "granted", "bound", "gone"


class Tied(Record):
    """What a permit is bound to."""

    proof: str
    receipts: str
    job_id: str


class Hosted:
    """Made by ``begin``. ``fds`` and ``due_s`` say what to sleep for, ``turn`` is told what came."""

    def __init__(self, desk: Desk, backend: Backend, asked: JobClass, ask: Ask, say: Say) -> None:
        """Nothing is asked of the registry yet."""
        self._desk = desk
        self._backend = backend
        self._class = asked
        self._id = ask.id
        self._say = say
        self.state = WAITING
        until_s = None if ask.max_wait_ms is None else time.monotonic() + ask.max_wait_ms / 1000
        if until_s is None and asked.lane == SERVER:
            until_s = time.monotonic()
        ticket = self._ticket(ask)
        self._waiting = Waiting(desk, backend, ticket, until_s=until_s, interrupts=None, tell=self._tell)
        self._standing: Standing | None = None
        self._target = 0
        self._tied: Tied | None = None
        self._watched: Watched | None = None
        self._ended = False
        self._again_at_s: float | None = None

    def _ticket(self, ask: Ask) -> Ticket:
        session, _ = asking.session_of(os.environ, self._backend, ask.session)
        ticket = asking.ticket(ask.id, self._class, self._desk.policy, session, ask.holder)
        ticket = asking.drawing(ticket, ask.draws, self._desk.policy)
        return ticket if ask.resizable else ticket.replace(resizable=False)

    def begin(self) -> None:
        """Joins the queue. Raises ContainError; then nothing is left."""
        if os.path.lexists(wake.path_of(self._desk.registry.folder, self._id)):
            raise JobBusy(f"The permit {self._id} is in use.", advice="Choose a new id for every permit.")
        self._waiting.begin()
        self._step()

    # -- the loop's side -------------------------------------------------------------------------------------------

    def fds(self) -> list[int]:
        """Each can be read when something may have changed."""
        if self.state == WAITING:
            return self._waiting.fds()
        watched = self._watched
        watching = watched is not None and watched.fd >= 0 and not self._ended
        return [self._waiting.bell.fd, *([watched.fd] if watched is not None and watching else ())]

    @property
    def due_s(self) -> float | None:
        """When (monotonic) it wants a turn in any case."""
        return self._waiting.due_s if self.state == WAITING and self._again_at_s is None else self._again_at_s

    def turn(self, ready: Collection[int]) -> None:
        """Something came, or the time. Raises ContainError where the wait has ended without a permit."""
        self._again_at_s = None
        if self.state == WAITING:
            self._waiting.wake(ready)
            self._step()
            return
        if self._watched is not None and self._watched.fd in ready:
            self._ended = True
        self._waiting.bell.silence()
        try:
            self._look()
        except (RegistryDamaged, LockUnavailable):
            self._again_at_s = time.monotonic() + TICK_S  # nothing is lost by looking again

    def _look(self) -> None:
        if self._ended:
            self._return(TREE_GONE)
            return
        row = self._desk.permit(self._id)
        if row is None:
            if self._tied is not None and self._observed(self._tied).gone:
                self._over("returned", {"why": TREE_GONE})  # somebody saw it before us
            elif self._tied is not None:
                self._over("lost", {"why": "it was taken back, as contain release --force does"})
            return  # else not taken in time: it waits in its place, and the bind says so
        if row.permit.target != self._target:
            self._target = row.permit.target
            self._say("target", {"units": self._target})

    def _step(self) -> None:
        try:
            row = self._waiting.step()
        except BaseException as error:
            self.give_up(type(error).__name__)
            raise
        if row is not None:
            self._granted(row)

    def _tell(self, standing: Standing) -> None:
        """Only what has changed is said; an estimate alone changes all the time."""
        before = self._standing
        self._standing = standing
        if before is not None and before.replace(eta_s=None) == standing.replace(eta_s=None):
            return
        self._say(
            WAITING,
            {
                "place": standing.place,
                "waiting": standing.waiting,
                "reasons": list(standing.reasons),
                "etaS": None if standing.eta_s is None else round(standing.eta_s, 1),
            },
        )

    def _granted(self, row: PermitRow) -> None:
        permit = row.permit
        self.state, self._target = GRANTED, permit.target
        found = hints(self._class.width(permit.units), os.environ)
        self._say(
            GRANTED,
            {
                "units": permit.units,
                "memoryMib": permit.mem_mib,
                "draws": dict(permit.draws),
                "how": permit.how,
                "env": {
                    "set": {name: value for name, value in found.items() if value is not None},
                    "unset": [name for name, value in found.items() if value is None],
                },
            },
        )

    # -- the host's side -------------------------------------------------------------------------------------------

    def bind(self, said: Bind) -> None:
        """Raises PermitLost for a grant that was not taken in time: then it waits again, in its place."""
        if self.state != GRANTED:
            raise violation(f"The permit is {self.state}: only a granted one can be bound.")
        proof = jsontext.dumps(encode(said.proof))
        tied = Tied(proof=proof, receipts=said.receipts, job_id=said.job_id)
        receipt = _receipt(self._backend, tied)
        if not isinstance(receipt, Receipt) or not self._is_of(receipt, tied):
            raise EvidenceLacking(
                f"No receipt {said.job_id} in {said.receipts} names this permit and this proof.",
                detail="bind",
                advice="Send the id of the ask as permitId of the job, and bind with what prepared says.",
            )
        try:
            self._desk.bind(self._id, proof, said.receipts, said.job_id)
        except PermitLost:
            self.state, self._standing = WAITING, None
            self._again_at_s = 0.0  # in the next turn, so that this refusal is said before
            raise
        self.state, self._tied = BOUND, tied
        self._say(BOUND, {})
        self._watched = self._backend.watch(said.proof)
        if self._watched.observation.gone:
            self._ended, self._again_at_s = True, 0.0

    def settled(self, units: int) -> None:
        """The job holds ``units``; what it had above them is free."""
        row = self._desk.permit(self._id)
        if row is None or self.state == WAITING or units > row.permit.accounted:
            has = "none" if row is None else str(row.permit.accounted)
            raise violation(f"The permit has {has}; its job cannot hold {units}.")
        self._desk.settle(self._id, units)
        self._say("settled", {"units": units})

    def release(self) -> None:
        """Raises EvidenceLacking: then the permit stays."""
        tied = self._tied
        if tied is None:
            raise violation(f"The permit is {self.state}: only a bound one can be released. Withdraw it.")
        receipt = _receipt(self._backend, tied)
        seen = isinstance(receipt, Receipt) and self._is_of(receipt, tied)
        if seen and isinstance(receipt, Receipt) and (receipt.state, receipt.empty) == (RELEASED, True):
            self._return("its receipt says released, empty")
            return
        seen_now = self._observed(tied)
        if seen_now.gone:
            self._return(TREE_GONE)
            return
        says = (
            f"says {receipt.state}" if seen and isinstance(receipt, Receipt) else "is not there, or another's"
        )
        raise EvidenceLacking(
            f"The receipt of {tied.job_id} {says}; the tree is {seen_now.state}.",
            detail="release",
            advice="Wait until it says released and empty, or look: contain inspect DIR ID.",
        )

    def withdraw(self) -> None:
        """Before anything is bound."""
        if self.state == BOUND:
            raise violation("The permit is bound: it returns when its tree is gone. Release it then.")
        self.give_up("withdrawn by its host")
        self._say("withdrawn", {})

    def give_up(self, why: str) -> None:
        """What waits leaves the queue, what was granted returns, what is bound follows its tree."""
        if self.state in (WAITING, GRANTED):
            try:
                self._waiting.withdraw(why)
            finally:
                self._close()

    def _is_of(self, receipt: Receipt, tied: Tied) -> bool:
        return (
            receipt.permit_id == self._id
            and receipt.proof is not None
            and jsontext.dumps(encode(receipt.proof)) == tied.proof
        )

    def _observed(self, tied: Tied) -> Observation:
        return self._backend.observe(decode_proof(jsontext.loads(tied.proof)))

    def _return(self, why: str) -> None:
        self._desk.release(self._id, why)
        self._over("returned", {"why": why})

    def _over(self, event: str, fields: Mapping[str, object]) -> None:
        self._close()
        self._say(event, fields)

    def _close(self) -> None:
        if self.state != GONE:
            self.state = GONE
            self._waiting.end()
            if self._watched is not None:
                self._watched.close()
                self._watched = None


def class_of(ask: Ask) -> JobClass:
    """What the work is, by its name or by its command line."""
    if ask.kind is not None:
        return KINDS[ask.kind]
    return asking.recognise(ask.words, ask.cwd or os.getcwd(), terminal=False)


def _receipt(backend: Backend, tied: Tied) -> Receipt | Unreadable | None:
    """The receipt as it stands; None where there is none, or its directory is not safe to believe."""
    try:
        place, store = custody.opened(tied.receipts, backend, create=False)
    except ContainError:
        return None
    with place:
        return store.find(tied.job_id)
