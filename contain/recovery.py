"""A receipt and the live machine: what is true now. The only writer of receipts whose wrapper is gone.

Fails closed: only a birth that is *gone* releases. Live and unknown keep the receipt, and say why.
"""

from __future__ import annotations

import os
import time

from contain.backend import Observation
from contain.errors import ContainmentHeld, JobBusy, NoReceipt
from contain.job import Outcome
from contain.protocol import receipt_fields
from receipts import (
    EXITED,
    HELD,
    PREPARED,
    RELEASED,
    Busy,
    Held,
    Receipt,
    Record,
    Unreadable,
    Unwritable,
    encode,
    take,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from contain.backend import Backend
    from receipts import Blocker, Lock, Store

DYING_S = 0.5
"""How long trees whose wrappers have just died are given to be gone, all together, before they are called live."""

FINISH_S = 5.0
"""From the SIGKILL of ``--finish`` until the tree is called stuck."""

TOGETHER = 128
"""Receipts whose directory syncs are made as one; each keeps its lock open until then."""

FORGOTTEN = "forgotten"

OUTLIVED = "the rest is gone, but not who left it and was named"


class Finding(Record):
    """What ``inspect`` found for one id. ``settled``: nothing is left to do or to fear."""

    id: str
    state: str
    receipt: Receipt | None = None
    observation: Observation | None = None
    why: str | None = None
    held: Held | None = None
    settled: bool = False

    def reply(self) -> dict[str, object]:
        """As ``contain inspect`` prints it."""
        found: dict[str, object] = {} if self.receipt is None else receipt_fields(self.receipt)
        found |= {"event": "inspected", "id": self.id, "state": self.state}
        if self.observation is not None:
            found["observation"] = {"state": self.observation.state, "why": self.observation.why}
        if self.why is not None:
            found["why"] = self.why
        if self.held is not None:
            found["held"] = encode(self.held)
        return found


def no_receipt(store: Store, job_id: str) -> NoReceipt:
    """The error for an id that has no receipt."""
    return NoReceipt(
        f"There is no receipt {job_id} in {store.path}.",
        advice="Look for it in another DIR. A job that was refused, or was pruned long after its end, has none.",
        state="A job that ever could have run here has a receipt, so none of this id did.",
    )


def inspect(store: Store, backend: Backend, dir_fd: int, job_id: str, *, finish: bool = False) -> Finding:
    """Looks at one job, and releases or finishes it where that can be proven. Raises NoReceipt."""
    if not store.exists(job_id):
        raise no_receipt(store, job_id)
    return next(iter(inspect_all(store, backend, dir_fd, [job_id], finish=finish)))


def inspect_all(
    store: Store, backend: Backend, dir_fd: int, ids: list[str], *, finish: bool = False
) -> Iterator[Finding]:
    """The same for many. Findings come when they are durable, ``TOGETHER`` at a time."""
    patience = _Patience(FINISH_S if finish else DYING_S)
    for start in range(0, len(ids), TOGETHER):
        locks: list[Lock] = []
        found: list[Finding] = []
        try:
            with store.batch():
                found += [
                    _one(store, backend, dir_fd, job_id, locks, patience, finish=finish)
                    for job_id in ids[start : start + TOGETHER]
                ]
        finally:
            for lock in locks:
                lock.release()
        yield from found


def inspect_everything(store: Store, backend: Backend, dir_fd: int) -> Iterator[Finding]:
    """The same for all; and what wrappers left behind that were killed before their first receipt is cleared away."""
    yield from inspect_all(store, backend, dir_fd, store.ids())
    backend.sweep_cgroups()


class _Patience:
    """One time for all: a thousand trees that are stuck must not cost a thousand waits."""

    def __init__(self, wait_s: float) -> None:
        """Begins when it is first asked for."""
        self._wait_s = wait_s
        self._until_s: float | None = None

    def left_s(self) -> float:
        """Seconds that may still be waited."""
        if self._until_s is None:
            self._until_s = time.monotonic() + self._wait_s
        return max(0.0, self._until_s - time.monotonic())


def _one(
    store: Store,
    backend: Backend,
    dir_fd: int,
    job_id: str,
    locks: list[Lock],
    patience: _Patience,
    *,
    finish: bool,
) -> Finding:
    try:
        locks.append(take(dir_fd, job_id))
    except Busy as busy:
        return _busy(store, backend, job_id, busy)
    except Unwritable as error:
        return _unlocked(store, backend, job_id, error)
    found = store.find(job_id)
    if found is None:
        return Finding(id=job_id, state="none", why="its receipt was pruned meanwhile", settled=True)
    if isinstance(found, Unreadable):
        return _unreadable(store, job_id, found)
    if found.state == RELEASED:
        if found.cgroups:
            found = found.replace(cgroups=backend.remove_cgroups(job_id, found.cgroups) or None)
        return Finding(id=job_id, state=RELEASED, receipt=found, settled=True)
    return _settle(store, backend, found, patience, finish=finish)


def _unlocked(store: Store, backend: Backend, job_id: str, error: Unwritable) -> Finding:
    """The lock cannot be had (a read-only disk, say): it is looked at, and nothing is changed."""
    found = store.find(job_id)
    receipt = found if isinstance(found, Receipt) else None
    observation = None if receipt is None or receipt.proof is None else backend.observe(receipt.proof)
    state = HELD if receipt is None else receipt.state
    settled = receipt is not None and receipt.state == RELEASED
    why = f"its lock cannot be taken ({error})"
    return Finding(id=job_id, state=state, receipt=receipt, observation=observation, why=why, settled=settled)


def _busy(store: Store, backend: Backend, job_id: str, busy: Busy) -> Finding:
    """Somebody works on it. The birth is observed all the same; nothing is changed."""
    found = store.find(job_id)
    receipt = found if isinstance(found, Receipt) else None
    observation = None if receipt is None or receipt.proof is None else backend.observe(receipt.proof)
    return Finding(
        id=job_id,
        state="busy",
        receipt=receipt,
        observation=observation,
        why=f"{_holder(busy)} holds its lock",
    )


def _holder(busy: Busy) -> str:
    return "Another process" if busy.holder_pid is None else f"Process {busy.holder_pid}"


def _unreadable(store: Store, job_id: str, found: Unreadable) -> Finding:
    held = Held(
        reason=f"The receipt cannot be read: {found.reason}.",
        owner="the operator",
        advice=f"Look what damaged the file in {store.path}. When the job is surely gone, move the file away.",
        blockers=(),
    )
    return Finding(id=job_id, state=HELD, why=held.reason, held=held)


def _settle(
    store: Store, backend: Backend, receipt: Receipt, patience: _Patience, *, finish: bool
) -> Finding:
    if receipt.proof is None:
        held = Held(
            reason="The receipt has no proof.",
            owner="the operator",
            advice="contain inspect ID --forget --reason WHY.",
            blockers=(),
        )
        return Finding(id=receipt.id, state=HELD, receipt=receipt, held=held)
    observation = backend.observe(receipt.proof)
    was_alive = observation.state == "live"
    if was_alive:
        observation = backend.finish(receipt.proof, patience.left_s(), kill=finish)
    if not observation.gone:
        return _keep(receipt, observation, backend.blockers(receipt.proof))
    if left := _outlived(backend, receipt, kill=finish):
        return _keep(receipt, Observation(state="live", why=OUTLIVED), left)
    return _release(store, backend, receipt, observation, killed=finish and was_alive)


def _outlived(backend: Backend, receipt: Receipt, *, kill: bool = False) -> tuple[Blocker, ...]:
    """Who was named when the receipt was held, and lives: that the rest is gone does not release it."""
    if receipt.held is None or receipt.proof is None:
        return ()
    return backend.outlived(receipt.proof, receipt.held.blockers, kill=kill)


def _release(
    store: Store, backend: Backend, receipt: Receipt, observation: Observation, *, killed: bool
) -> Finding:
    left = backend.remove_cgroups(receipt.id, receipt.cgroups) if receipt.cgroups else ()
    if receipt.proof is not None:
        backend.unload(receipt.proof)
    released = receipt.replace(
        state=RELEASED,
        empty=True,
        outcome=receipt.outcome or _lost(receipt, killed=killed),
        ran=receipt.ran if receipt.outcome or receipt.state == PREPARED else None,
        ended_at=receipt.ended_at or time.time(),
        held=None,
        cgroups=left or None,
    )
    try:
        store.finish(released)
    except Unwritable as error:
        why = f"the tree is gone, but the disk did not take that ({error})"
        return Finding(id=receipt.id, state=receipt.state, receipt=receipt, observation=observation, why=why)
    return Finding(id=receipt.id, state=RELEASED, receipt=released, observation=observation, settled=True)


def _lost(receipt: Receipt, *, killed: bool) -> Outcome:
    """The wrapper died before it could write how the command ended, and nobody else saw it."""
    return Outcome(
        cause="wrapper-lost",
        by="inspect --finish" if killed else None,
        last_signal="KILL",
        detail="the command never ran" if receipt.state == PREPARED else "how the command ended was not seen",
    )


def _keep(receipt: Receipt, observation: Observation, blockers: tuple[Blocker, ...]) -> Finding:
    if observation.state == "live":
        held = Held(
            reason="The tree is still alive.",
            owner="contain inspect",
            advice="Remove what is named as in the way, or end it: contain inspect ID --finish.",
            blockers=blockers,
        )
    else:
        held = Held(
            reason=f"It cannot be told whether the tree is gone: {observation.why}.",
            owner="contain inspect",
            advice="Look from where it was started. If nothing can tell: contain inspect ID --forget --reason WHY.",
            blockers=(),
        )
    state = HELD if receipt.state in (HELD, EXITED) or observation.state != "live" else receipt.state
    return Finding(id=receipt.id, state=state, receipt=receipt, observation=observation, held=held)


def forget(store: Store, backend: Backend, dir_fd: int, job_id: str, reason: str) -> Finding:
    """The operator's way out of an unknown that nothing can settle: recorded, and never called empty.

    It looks first: what is gone is released as proven, and what is alive is not given up. Raises NoReceipt, JobBusy
    while somebody works on the job, and ContainmentHeld for a tree that is alive and for a receipt that cannot be
    read: its file is evidence, and only a person may move that away.
    """
    if not store.exists(job_id):
        raise no_receipt(store, job_id)
    try:
        lock = take(dir_fd, job_id)
    except Busy as busy:
        raise JobBusy(
            f"{_holder(busy)} holds the lock of {job_id}.",
            advice="Let it end first.",
            state="Nothing was changed.",
        ) from None
    with lock:
        found = store.find(job_id)
        if not isinstance(found, Receipt):
            held = _unreadable(store, job_id, found).held if isinstance(found, Unreadable) else None
            raise ContainmentHeld(
                held.reason if held else "The receipt is gone.",
                advice=held.advice if held else "Nothing is left to forget.",
                state="Nothing was changed.",
            )
        if found.state == RELEASED:
            return Finding(id=job_id, state=RELEASED, receipt=found, settled=True)
        observation = None if found.proof is None else backend.observe(found.proof)
        if observation is not None and observation.gone:
            if not _outlived(backend, found):
                return _release(store, backend, found, observation, killed=False)
            observation = Observation(state="live", why=OUTLIVED)
        if observation is not None and observation.state == "live":
            raise ContainmentHeld(
                f"The tree of {job_id} is alive: there is nothing unknown about it.",
                advice="End it: contain inspect ID --finish.",
                state="Nothing was changed.",
            )
        other = {**found.other, FORGOTTEN: {"reason": reason, "by": os.getuid(), "at": time.time()}}
        released = found.replace(state=RELEASED, empty=None, ended_at=time.time(), other=other, held=None)
        store.finish(released)
    return Finding(id=job_id, state=RELEASED, receipt=released, settled=True)
