"""``contain exec`` that waits as the native program, and goes on with the same ticket when it is Python again.

The command line comes back as it was, with ``--resumed=FD`` after the verb. FD is a pipe that this very process has
filled before: the ticket, and what the command line does not say. Nobody else's is taken: it names its writer's birth.
"""

from __future__ import annotations

import os
import sys

from contain.backend import Birth
from contain.budget.arbiter import Ticket
from contain.budget.registry.rows import TicketRow, dumps, loads
from contain.errors import UsageError
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from contain.backend import Backend
    from contain.job import Job

OPTION = "--resumed="
MOST_BYTES = 65_536
"""What a pipe takes without anybody who reads it."""


class Resumed(Record):
    """A wait that goes on: the ticket as it was asked for, and the id that its job has had since."""

    row: TicketRow
    job_id: str

    def job(self, job: Job) -> Job:
        """The job of this command line, under the ids that it has had since the first start."""
        return job.replace(id=self.job_id, permit_id=self.row.ticket.id)


class Kept(Record):
    """The same as it is in the pipe. ``ticket`` and ``owner``: JSON, as the registry has them."""

    ticket: str
    owner: str
    wake: str
    since_s: float
    until_s: float | None
    job_id: str

    def row(self) -> TicketRow:
        """Raises ValueError or TypeError."""
        return TicketRow(
            ticket=loads(Ticket, self.ticket),
            owner=loads(Birth, self.owner),
            wake=self.wake,
            since_s=self.since_s,
            until_s=self.until_s,
        )


class Native:
    """The way into the native waiter and back. Satisfies contain.budget.queue.waiting.Native."""

    def __init__(self, backend: Backend, job_id: str, before: list[str], after: list[str]) -> None:
        """``before`` and ``after``: this process's own command line, around the place of ``--resumed``."""
        self._backend = backend
        self._job_id = job_id
        self._before = before
        self._after = after

    def become(self, row: TicketRow, wake: Sequence[int]) -> None:
        """Returns only where it cannot be."""
        kept = Kept(
            ticket=dumps(row.ticket),
            owner=dumps(row.owner),
            wake=row.wake,
            since_s=row.since_s,
            until_s=row.until_s,
            job_id=self._job_id,
        )
        data = dumps(kept).encode()
        read, write = os.pipe()
        try:
            os.set_blocking(write, False)
            if os.write(write, data) == len(data):
                words = [*self._before, f"{OPTION}{read}", *self._after]
                self._backend.become_waiter(words, wake, [read], row.until_s)
        finally:
            os.close(read)
            os.close(write)


def native(backend: Backend, job: Job) -> Native | None:
    """None in front of a person, who is shown how it stands, and where this process cannot be started again.

    That is in a program that has called us: it would begin anew.
    """
    given = sys.argv[1:]
    at = len(sys.orig_argv) - len(given)
    if given[:1] != ["exec"] or sys.orig_argv[at:] != given:
        return None
    if job.shared_session or os.isatty(0) or os.isatty(2):
        return None
    rest = given[2:] if given[1:] and given[1].startswith(OPTION) else given[1:]
    return Native(backend, job.id, [*sys.orig_argv[:at], "exec"], rest)


def read(fd: int, backend: Backend) -> Resumed:
    """What this process wrote before it became the native waiter. Raises UsageError for anything else."""
    try:
        os.set_blocking(fd, False)
        kept = loads(Kept, os.read(fd, MOST_BYTES).decode())
        os.close(fd)
        row = kept.row()
    except (OSError, ValueError, TypeError) as error:
        raise _not_ours(type(error).__name__) from None
    if row.owner != backend.birth():
        raise _not_ours("another process wrote it")
    return Resumed(row=row, job_id=kept.job_id)


def _not_ours(why: str) -> UsageError:
    return UsageError(
        f"{OPTION.rstrip('=')} is contain's own, for a wait that goes on; this is none ({why}).",
        advice="Ask again without it.",
    )
