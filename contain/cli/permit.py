"""A permit for one command of ``contain exec``: asked for, waited for in sight of a person, and given back."""

from __future__ import annotations

import os
import time

from contain.adapter import NoBudget
from contain.budget import asking, costs, nested
from contain.budget.arguments import added_arguments, lowered
from contain.budget.classes import jobs_options
from contain.budget.local import LocalAdapter, OuterAdapter
from contain.budget.opening import find_root, open_budget
from contain.budget.parallelism import hints, jobserver_fds
from contain.budget.queue.waiting import Waiting
from contain.budget.tenure import Tenure
from contain.cli import resume
from contain.errors import WaitInterrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable

    from contain.adapter import BudgetAdapter
    from contain.backend import Backend
    from contain.budget.arbiter import Ticket
    from contain.budget.classes import JobClass
    from contain.budget.jobserver import Jobserver
    from contain.budget.opening import Budget
    from contain.budget.queue.desk import Desk
    from contain.budget.queue.waiting import Standing
    from contain.budget.queue.wake import Bell
    from contain.budget.registry import PermitRow, TicketRow
    from contain.cli.exec_options import Options
    from contain.job import Job
    from contain.lifecycle.front import Front
    from receipts import Receipt

SHARES_TOKENS = frozenset({"compile", "build", "bundle", "install", "script", "test"})
"""Kinds that may start make, ninja or cargo; the others get no descriptors that they did not ask for."""

REPEAT_S = 30.0
"""Off a terminal a reason that has changed is said again, at most so often."""


class Permit:
    """What a command has of the budget. ``give_back`` does nothing once the containment has been bound to it."""

    def __init__(
        self,
        job: Job,
        adapter: BudgetAdapter,
        desk: Desk | None = None,
        tenure: Tenure | None = None,
        learn: Callable[[Receipt], None] | None = None,
    ) -> None:
        """``job`` has the environment that the grant asks for; ``tenure`` is to be carried beside it.

        ``learn`` takes the job's last receipt.
        """
        self.job = job
        self.adapter = adapter
        self.tenure = tenure
        self._desk = desk
        self._learn = learn

    def give_back(self, why: str) -> None:
        """Nothing was launched: the permit returns at once."""
        if self._desk is not None:
            self._desk.give_back(self.job.permit_id, why)

    def close(self) -> None:
        """The job is over."""
        if self.tenure is not None:
            self.tenure.close()

    def learn(self, receipt: Receipt | None) -> None:
        """After the last word: what the job took is what the next of its kind is asked with. Never an error."""
        if self._learn is not None and receipt is not None:
            self._learn(receipt)


def ask(options: Options, backend: Backend, front: Front, receipts_path: str) -> Permit | None:
    """Waits for the command's turn; None when a signal ended the wait. Raises what stands in the way."""
    resumed = None if options.resumed is None else resume.read(options.resumed, backend)
    job = options.job if resumed is None else resumed.job(options.job)
    cwd = job.cwd or os.getcwd()
    asked = asking.recognise((job.command, *job.args), cwd, terminal=job.shared_session)
    if not asked.takes_part and not options.draws and resumed is None:
        return Permit(job, NoBudget())  # a person sits in front of it, and starts the heavy things from there
    root = find_root(backend)
    # A ticket that stands was asked for outside: nobody is asked again.
    inside = None if resumed else nested.ask(root, os.environ, backend, options.draws)
    if inside is not None:
        return None if front.asked() else _nested(job, *inside)
    budget = open_budget(backend, root)
    voice = Voice()
    desk = budget.desk(voice.line)
    session, _ = asking.session_of(os.environ, backend, options.session)
    learned, key = budget.costs(voice.line), costs.key_of(asked, job.command, cwd)
    ticket = asking.ticket(
        job.permit_id, asked, budget.policy, session, options.holder or "", learned.recall(key)
    )
    ticket = asking.drawing(ticket, options.draws, budget.policy)
    stands = None if resumed is None else resumed.row
    waiting = _waiting(options, asked, budget, desk, front, (ticket, voice, stands))
    desk.registry.asked = front.stopped
    try:
        row = waiting.run(resume.native(backend, job), stands)
    except WaitInterrupted:
        if front.first is None:
            raise  # nobody signalled us: an operator has canceled it
        return None
    finally:
        voice.done()
        desk.registry.asked = None  # from here on signals are the command's
    if front.asked():
        desk.give_back(job.permit_id, "a signal came before anything was launched")
        return None
    try:
        job, tenure = _granted(job, asked, budget, desk, row, waiting.bell)
        adapter = LocalAdapter(desk, job.permit_id, receipts_path, tenure)

        def learn(receipt: Receipt) -> None:
            learned.learn(key, receipt.outcome, receipt.usage, row.ticket.mem_mib)

        return Permit(job, adapter, desk, tenure, learn)
    except BaseException as error:
        desk.give_back(job.permit_id, f"it could not be used ({type(error).__name__})")
        raise


def _waiting(
    options: Options,
    asked: JobClass,
    budget: Budget,
    desk: Desk,
    front: Front,
    more: tuple[Ticket, Voice, TicketRow | None],
) -> Waiting:
    """The wait for ``more``: a ticket, who tells of it, and its row where it stands in the registry already."""
    ticket, voice, stands = more
    by_policy = options.max_wait_ms is None
    wait_s = asking.patience_s(asked, budget.policy) if by_policy else (options.max_wait_ms or 0) / 1000
    return Waiting(
        desk,
        budget.backend,
        ticket if stands is None else stands.ticket,
        until_s=(None if wait_s is None else time.monotonic() + wait_s) if stands is None else stands.until_s,
        interrupts=front,
        tell=voice.standing,
        runs_anyway=by_policy and budget.policy.after_wait == "run",
    )


def _nested(job: Job, outer: nested.Outer, connection: socket) -> Permit:
    """Under the outer permit. The environment is the outer job's already, and its jobserver is ours too."""
    environ = os.environ if job.env is None else job.env
    kept = tuple(fd for fd in jobserver_fds(environ.get("MAKEFLAGS", "")) if fd not in job.keep_fds)
    job = job.replace(permit_id=outer.permit_id, keep_fds=(*job.keep_fds, *kept))
    return Permit(job, OuterAdapter(outer, connection))


def _granted(
    job: Job, asked: JobClass, budget: Budget, desk: Desk, row: PermitRow, bell: Bell
) -> tuple[Job, Tenure]:
    """What follows the permit while the job runs, and the job with what it is told of its share."""
    environ = budget.backend.environment() if job.env is None else dict(job.env)
    server: Jobserver | None = None
    path = environ.get("PATH", os.defpath)
    if asked.name in SHARES_TOKENS and row.permit.units > 0:
        from contain.budget.jobserver import Jobserver
        from contain.budget.make import form_here

        server = Jobserver(
            budget.folder, row.permit.id, row.permit.units, form=form_here(budget.folder, path)
        )
    width = asked.width(row.permit.units)
    for name, value in hints(width, environ, server.auth if server is not None else None).items():
        if value is None:
            environ.pop(name, None)
        else:
            environ[name] = value
    environ[nested.VARIABLE] = row.permit.id
    limits = job.limits
    if budget.policy.nice and limits.nice is None:
        limits = limits.replace(nice=budget.policy.nice)
    # Nothing else tells of the memory of a whole tree where no cgroup counts it, and the next one is asked with it.
    job = job.replace(
        sample_memory=True,
        limits=limits,
        env=environ,
        args=_arguments(
            job, asked, width, server.form if server is not None else None, (budget.folder, path)
        ),
        keep_fds=(*job.keep_fds, *(server.keep_fds if server is not None else ())),
    )
    return job, Tenure(desk, row, bell, server, budget.answerer(desk, row.permit.id))


def _arguments(
    job: Job, asked: JobClass, width: int, form: str | None, where: tuple[str, str]
) -> tuple[str, ...]:
    """The command's own arguments, as wide as its permit and no wider. ``where``: the registry's folder, and a PATH."""
    if asked.name == "other":
        return job.args
    takes_tokens = asked.tool == "make" and form is not None
    if asked.tool == "ninja":
        from contain.budget.make import ninja_takes_tokens

        takes_tokens = ninja_takes_tokens(*where, form)
    args = lowered(job.args, jobs_options(job.command, asked), width, tokens=takes_tokens)
    if args != job.args:
        Voice.line(f"it may start {width} at a time, as its permit has it, and not as its command line says")
    return args if takes_tokens else (*args, *added_arguments(asked.tool, args, width))


class Voice:
    """Says how it stands on standard error: one line that is written over on a terminal, else one line at a time."""

    def __init__(self) -> None:
        """Says nothing yet."""
        self._live = os.isatty(2)
        self._shown = ""
        self._said_s = float("-inf")

    def standing(self, standing: Standing) -> None:
        """A place in the queue, and the first reason with its numbers."""
        text = f"waiting, place {standing.place} of {standing.waiting}"
        if standing.reasons:
            # What somebody has says more than who else waits; the rest is a question away.
            first, *others = sorted(standing.reasons, key=lambda line: line.startswith("behind"))
            text += f": {first}" + (f" (and {len(others)} more: contain why)" if others else "")
        if standing.eta_s is not None:
            text += f" (next permit expected in {standing.eta_s:.0f} s)" if standing.eta_s else ""
        if self._live:
            columns = os.get_terminal_size(2).columns
            self._write(f"\r\033[K{('contain: ' + text)[: columns - 1]}")
            self._shown = text
        elif not self._shown or time.monotonic() - self._said_s >= REPEAT_S:
            self._shown, self._said_s = text, time.monotonic()
            self.line(text)

    @classmethod
    def line(cls, text: str) -> None:
        """A whole line."""
        cls._write(f"contain: {text}\n")

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
