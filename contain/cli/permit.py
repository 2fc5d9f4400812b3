"""A permit for one command of ``contain exec``: asked for, waited for in sight of a person, and given back."""

from __future__ import annotations

import os
import time

from contain.adapter import NoBudget
from contain.budget import asking
from contain.budget.local import LocalAdapter
from contain.budget.opening import open_budget
from contain.budget.parallelism import hints
from contain.budget.queue.waiting import Waiting
from contain.errors import WaitInterrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.adapter import BudgetAdapter
    from contain.backend import Backend
    from contain.budget.queue.desk import Desk
    from contain.budget.queue.waiting import Standing
    from contain.cli.exec_options import Options
    from contain.job import Job
    from contain.lifecycle.front import Front

REPEAT_S = 30.0
"""Off a terminal a reason that has changed is said again, at most so often."""


class Permit:
    """What a command has of the budget. ``give_back`` does nothing once the containment has been bound to it."""

    def __init__(self, job: Job, adapter: BudgetAdapter, desk: Desk | None = None) -> None:
        """``job`` has the environment that the grant asks for."""
        self.job = job
        self.adapter = adapter
        self._desk = desk

    def give_back(self, why: str) -> None:
        """Nothing was launched: the permit returns at once."""
        if self._desk is not None:
            self._desk.release(self.job.permit_id, why)


def ask(options: Options, backend: Backend, front: Front, receipts_path: str) -> Permit | None:
    """Waits for the command's turn; None when a signal ended the wait. Raises what stands in the way."""
    job = options.job
    cwd = job.cwd or os.getcwd()
    asked = asking.recognise((job.command, *job.args), cwd, terminal=job.shared_session)
    if not asked.takes_part:
        return Permit(job, NoBudget())  # a person sits in front of it, and starts the heavy things from there
    budget = open_budget(backend)
    voice = Voice()
    desk = budget.desk(backend, voice.line)
    session, _ = asking.session_of(os.environ, options.session)
    ticket = asking.ticket(job.permit_id, asked, budget.policy, session, options.holder or "")
    until_s = None if options.max_wait_ms is None else time.monotonic() + options.max_wait_ms / 1000
    if until_s is None and asked.lane == "server":
        until_s = time.monotonic()
    waiting = Waiting(desk, backend, ticket, until_s=until_s, interrupts=front, tell=voice.standing)
    try:
        row = waiting.run()
    except WaitInterrupted:
        return None
    finally:
        voice.done()
    width = asked.width(row.permit.units)
    environ = dict(os.environ if job.env is None else job.env)
    for name, value in hints(width, environ).items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
    return Permit(job.replace(env=environ), LocalAdapter(desk, job.permit_id, receipts_path), desk)


class Voice:
    """Says how it stands on standard error: one line that is written over on a terminal, else one line at a time."""

    def __init__(self) -> None:
        """Says nothing yet."""
        self._live = os.isatty(2)
        self._shown = ""
        self._said_s = float("-inf")

    def standing(self, standing: Standing) -> None:
        """A place in the queue, and every reason with its numbers."""
        text = f"waiting, place {standing.place} of {standing.waiting}"
        if standing.reasons:
            text += f": {'; '.join(standing.reasons)}"
        if standing.eta_s is not None:
            text += f" (next permit expected in {standing.eta_s:.0f} s)" if standing.eta_s else ""
        if self._live:
            columns = os.get_terminal_size(2).columns
            self._write(f"\r\033[K{('contain: ' + text)[: columns - 1]}")
            self._shown = text
        elif not self._shown or time.monotonic() - self._said_s >= REPEAT_S:
            self._shown, self._said_s = text, time.monotonic()
            self.line(text)

    def line(self, text: str) -> None:
        """A whole line."""
        self._write(f"contain: {text}\n")

    def done(self) -> None:
        """The wait is over; the live line goes."""
        if self._live and self._shown:
            self._write("\r\033[K")

    @staticmethod
    def _write(text: str) -> None:
        try:
            os.write(2, text.encode())
        except OSError:
            pass  # nobody listens
