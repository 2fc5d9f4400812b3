"""`contain repair`: a registry that cannot be read is made anew from what is on disk beside it.

A tree counts unless it is proven gone: what the receipts say, and the lines that were written when permits were bound.
What of a permit is not known is taken for as much as there is, so nothing can be granted beside it that the machine
does not have:

    known by its line        its units and target, memory, draws and owner
    by its receipt alone     the base, the memory budget, every pool; its owner is the tree's own init

Nothing is ever released here: a permit that is rebuilt returns as any other does, when owner and tree are gone.
"""

from __future__ import annotations

import os

from contain.backend import birth_of
from contain.budget.arbiter import Permit, Ticket
from contain.budget.queue import wake
from contain.budget.registry import PermitRow, bindings
from contain.budget.registry.rebuild import rebuild
from contain.errors import RegistryDamaged, UnsafePlace
from contain.lifecycle import custody
from receipts import (
    HELD,
    PREPARED,
    RELEASED,
    Receipt,
    Record,
    Unreadable,
    decode_proof,
    encode,
    jsontext,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from contain.backend import Backend
    from contain.budget.arbiter import Now
    from contain.budget.policy import Policy
    from contain.budget.queue.desk import Desk
    from contain.budget.registry.bindings import Bindings
    from receipts import Proof

UNKNOWN = "unknown"
REBUILT = "rebuilt"


class Repaired(Record):
    """What a repair found and did. ``wrong`` None: the registry was well, and nothing was changed."""

    wrong: str | None
    kept: str | None = None
    """The name of what was moved aside."""
    rows: tuple[PermitRow, ...] = ()
    by_receipt_alone: int = 0
    """So many of the rows have no line: they count as the whole machine until they return."""
    torn_lines: int = 0
    unread: tuple[str, ...] = ()
    """Receipts and directories that could not be read, with why. What may live behind them is not counted."""


def repair(desk: Desk, backend: Backend, directories: Iterable[str | None]) -> Repaired:
    """Looks through the registry, in its lock, and rebuilds it where it is damaged.

    ``directories`` of receipts are read besides those that permits were bound in; None is the account's own.
    Raises LockUnavailable, and RegistryDamaged where the file is not what is in the way.
    """
    folder = desk.registry.folder
    with desk.registry.repairing() as wrong:
        if wrong is None:
            return Repaired(wrong=None)
        try:
            known = bindings.read(folder)
            search = _Search(backend, desk.policy, known, desk.now())
            search.look([*directories, *known.directories])
            rows = tuple(search.rows.values())
            kept = rebuild(folder, rows, desk.policy.base, desk.now().awake_s)
        except OSError as error:
            raise RegistryDamaged(
                f"The repair was not finished ({error}).",
                detail="unusable",
                advice="See to that, then run contain repair again.",
            ) from None
    for name in _waiters(folder):
        wake.ring(folder, name)
    return Repaired(
        wrong=wrong.message,
        kept=kept,
        rows=rows,
        by_receipt_alone=sum(row.permit.id not in known.rows for row in rows),
        torn_lines=known.torn,
        unread=tuple(search.unread),
    )


class _Search:
    """Every tree that is not proven gone, as a row."""

    def __init__(self, backend: Backend, policy: Policy, known: Bindings, now: Now) -> None:
        self._backend = backend
        self._policy = policy
        self._known = known
        self._now = now
        self._here = backend.birth().observer_namespace
        self._over: set[str] = set()
        self.rows: dict[str, PermitRow] = {}
        self.unread: list[str] = []

    def look(self, directories: Iterable[str | None]) -> None:
        """The receipts first: they know of ends. Then the lines whose receipts are not written yet, or are lost."""
        for directory in dict.fromkeys(directories):
            self._look_into(directory)
        for permit_id, row in self._known.rows.items():
            if permit_id in self.rows or permit_id in self._over or row.proof is None:
                continue
            if not self._gone(row.proof):
                self.rows[permit_id] = self._counted(row)

    def _look_into(self, directory: str | None) -> None:
        try:
            place, store = custody.opened(directory, self._backend, create=False)
        except UnsafePlace as error:
            if directory is not None and error.detail != "missing":
                self.unread.append(error.message)
            return
        with place:
            try:
                found = [(job_id, store.find(job_id)) for job_id in store.ids()]
            except Unreadable as error:
                self.unread.append(f"{place.path}: {error}")
                return
        for _, receipt in found:
            if isinstance(receipt, Unreadable):
                self.unread.append(f"{place.path}: {receipt}")
            elif receipt is not None:
                self._take(receipt, place.path)

    def _take(self, receipt: Receipt, directory: str) -> None:
        proof = receipt.proof
        if proof is None or proof.observer_namespace != self._here:
            return  # no permit of this registry: it has a proof, and one of this PID namespace
        text = jsontext.dumps(encode(proof))
        row = self._known.rows.get(receipt.permit_id)
        mine = row is not None and row.job_id == receipt.id and row.proof == text
        ended = receipt.state == RELEASED and receipt.empty is True
        if ended or self._backend.observe(proof).gone:
            if mine:
                self._over.add(receipt.permit_id)
            return
        # A host may use one id for many jobs; each of them is a tree that lives.
        permit_id = receipt.permit_id if receipt.permit_id not in self.rows else receipt.id
        if row is None or not mine:
            self.rows[permit_id] = self._by_receipt(permit_id, receipt, proof, text, directory)
        else:
            self.rows[permit_id] = self._counted(row, _state(receipt))

    def _gone(self, proof: str) -> bool:
        try:
            return self._backend.observe(decode_proof(jsontext.loads(proof))).gone
        except (ValueError, Unreadable):
            return False

    def _counted(self, row: PermitRow, state: str = "bound") -> PermitRow:
        """As its last line says: one is written before each change of its units and its target counts."""
        return row.replace(permit=row.permit.replace(state=state, how=REBUILT), state_s=self._now.awake_s)

    def _by_receipt(
        self, permit_id: str, receipt: Receipt, proof: Proof, text: str, directory: str
    ) -> PermitRow:
        """As much as there is: what it was granted is written nowhere."""
        rules, now_s = self._policy, self._now.awake_s
        mem_mib = rules.mem_budget_mib or 0
        draws = tuple((name, n) for name, n in rules.pools if n and not name.endswith("*"))
        ticket = Ticket(
            id=permit_id,
            seq=0,
            session=UNKNOWN,
            class_name=UNKNOWN,
            min_units=rules.base,
            want_units=rules.base,
            mem_mib=mem_mib,
            draws=draws,
            holder=receipt.command,
        )
        permit = Permit(
            id=permit_id,
            seq=0,
            session=UNKNOWN,
            class_name=UNKNOWN,
            state="held" if receipt.state == HELD else "running",  # never ended for not being opened
            units=rules.base,
            target=rules.base,
            min_units=rules.base,
            mem_mib=mem_mib,
            draws=draws,
            granted_at_s=now_s,
            served_at_s=now_s,
            holder=receipt.command,
            how=REBUILT,
        )
        return PermitRow(
            permit=permit,
            ticket=ticket,
            owner=birth_of(proof),
            since_s=now_s,
            state_s=now_s,
            proof=text,
            receipts=directory,
            job_id=receipt.id,
        )


def _state(receipt: Receipt) -> str:
    return "bound" if receipt.state == PREPARED else "held" if receipt.state == HELD else "running"


def _waiters(folder: str) -> list[str]:
    try:
        return os.listdir(os.path.join(folder, wake.FOLDER))
    except FileNotFoundError:
        return []
