"""One job from request to final reply, top to bottom. The only writer of a living job's receipt.

    prepare -> [receipt prepared] -> say prepared -> bind -> [receipt running] -> gate -> say running
            (an adapter that binds ``at_once`` saves the first receipt: nobody waits for it)
            -> the command ends -> ([receipt exited] -> say exited, when something is left)
            -> drained -> [receipt released] -> say exited, released
            or not drained in time -> [receipt held] -> say held

In brackets: durable before the next arrow. ``life`` is a generator: it yields the time until which it waits (monotonic
seconds; None: for ever) and is sent what happened, so that one loop can carry one job or a thousand.
"""

from __future__ import annotations

import os
import time

from contain.backend import Caught, CommandEnded, Drained, Emptied, SetupBroke, SignalSent
from contain.errors import ContainmentHeld, ReceiptUnwritable
from contain.job import Abort, Leftovers, Outcome, Usage
from contain.lifecycle import verdict
from contain.lifecycle.host import Ended, Go, Violated
from contain.protocol import refused
from receipts import EXITED, HELD, PREPARED, RELEASED, RUNNING, Held, Receipt, Unwritable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from contain.adapter import BudgetAdapter
    from contain.backend import Backend, Containment, Event
    from contain.errors import ContainError
    from contain.protocol import Request
    from receipts import Store

    Say = Callable[[str, Receipt | None, Mapping[str, object]], None]
    Steps = Generator[float | None, Event, None]

SETTLE_S = 0.02
"""A tree that is empty this soon after its command is "drained at once": no state ``exited`` of its own."""

SAMPLE_S = 1.0
"""How often a job that asks for it has its tree's memory looked at, at most."""

SAMPLE_SHARE = 0.005
"""Of this process's time: a look costs 50 us for each process of the tree, and a tree may have thousands."""

MARGIN_S = 1.0
"""How long after the init's own KILL the containment is killed from outside."""

DRAIN_S = 5.0
"""From SIGKILL of the containment until it is ``held``. Nothing is given up by that: ``inspect`` looks again."""


class Life:
    """The state of one job on its way. ``run`` is the way; the rest are its steps, in order."""

    containment: Containment
    """Set when ``run`` has been advanced for the first time."""

    def __init__(
        self, request: Request, backend: Backend, store: Store, adapter: BudgetAdapter, say: Say
    ) -> None:
        """``say`` takes replies: the event, the receipt that it tells of, and what else there is to say.

        The job's lock is held by the caller, from before to after.
        """
        self._job = request.job
        self._spelled_id = request.spelled_id
        self._backend = backend
        self._store = store
        self._adapter = adapter
        self._say = say
        self.error: ContainError | None = None
        self._abort: Abort | None = None
        self._abort_at_end: Abort | None = None
        self._ended: CommandEnded | None = None
        self._broke: SetupBroke | None = None
        self._usage: Usage | None = None
        self._leftovers: Leftovers | None = None
        self._last_signal: str | None = None
        self._drained = False
        self._exit_said = False
        self._on_disk = False
        self._gate_at_s: float | None = None
        self._timeout_at_s: float | None = None
        self._settle_at_s: float | None = None
        self._kill_at_s: float | None = None
        self._held_at_s: float | None = None
        self._sample_at_s: float | None = None
        self._receipt: Receipt

    @property
    def receipt(self) -> Receipt | None:
        """As it stands; None before there is one. After the last reply: the last word."""
        return getattr(self, "_receipt", None)

    def run(self) -> Steps:
        """The whole life. Ends when the last reply is said; ``error`` then says what went wrong, if anything did.

        Raises what ``launch`` and ``ready`` of the backend raise, Duplicate and Unwritable: nothing is left then.
        """
        launch = self._backend.launch(self._job)
        try:
            self._store.claim(self._job.id)  # the file is made while the init sets itself up
            self.containment = launch.ready()
            try:
                yield from self._live()
            finally:
                self.containment.close()
        finally:
            launch.close()
            self._store.disclaim(self._job.id)

    def _live(self) -> Steps:
        try:
            self._prepare()
            event = yield from self._adapter.bind(self._receipt)
            if event is None:
                self._start()
            else:
                self._handle(event)
                self._stop_now(by="")
        except Unwritable as error:
            self._unwritable(error)
        while not self._drained and not self._too_late():
            self._handle((yield self._next_s()))
            self._act_on_time()
        if self._on_disk:
            self._finish()

    def _prepare(self) -> None:
        self._receipt = Receipt(
            id=self._job.id,
            permit_id=self._job.permit_id,
            state=PREPARED,
            tier=self.containment.tier,
            command=os.path.basename(self._job.command),
            wrapper_pid=os.getpid(),
            created_at=time.time(),
            proof=self.containment.proof,
            ran=False,
            limits=self.containment.limits,
            cgroups=self.containment.cgroups or None,
        )
        if not self._adapter.at_once:
            self._store.prepare(self._receipt)
        self._on_disk = True
        times = {
            "graceMs": self._job.grace_ms,
            "killMs": self._job.kill_ms,
            "timeoutMs": self._job.timeout_ms,
        }
        self._say("prepared", self._receipt, times)

    def _start(self) -> None:
        """``running`` is durable before the gate opens, so no command ever ran untold."""
        if self._adapter.at_once:
            self._receipt = self._receipt.replace(state=RUNNING)
            self._on_disk = False  # should the disk refuse, nothing ran and nothing is to be finished
            self._store.prepare(self._receipt)
            self._on_disk = True
        else:
            self._receipt = self._store.running(self._receipt)
        self._receipt = self._receipt.replace(ran=True)
        if not self.containment.open_gate():
            self._receipt = self._receipt.replace(ran=False)
            self._stop_now(by="")
            return
        self._gate_at_s = time.monotonic()
        if self._job.timeout_ms is not None:
            self._timeout_at_s = self._gate_at_s + self._job.timeout_ms / 1000
        if self._job.sample_memory:
            self._sample_at_s = self._gate_at_s + SAMPLE_S
        self._say("running", None, {"state": "running", "tier": self._receipt.tier})

    def _unwritable(self, error: Unwritable) -> None:
        """The disk said no. Before the gate nothing has run, and nothing will; later only the words are lost."""
        self.error = ReceiptUnwritable(
            f"A receipt could not be written ({error}).",
            advice="Free space where the receipts are, or give another DIR; then contain inspect.",
            state="The job is being ended." if self._gate_at_s is None else "The job's end is not on disk.",
        )
        if not self._drained:
            self._say("refused", None, refused(self.error, self._spelled_id))
            self._stop_now(by="receipt-unwritable")

    def _next_s(self) -> float | None:
        times = (
            self._timeout_at_s,
            self._settle_at_s,
            self._kill_at_s,
            self._held_at_s,
            self._sample_at_s,
        )
        return min((at_s for at_s in times if at_s is not None), default=None)

    def _too_late(self) -> bool:
        return self._held_at_s is not None and time.monotonic() >= self._held_at_s

    def _handle(self, event: Event) -> None:
        if isinstance(event, CommandEnded):
            self._command_ended(event)
        elif isinstance(event, Ended):
            self._end(event.abort)
        elif isinstance(event, Violated):
            self.error = self.error or event.error
            self._say("refused", None, refused(event.error, self._spelled_id))
            self._end(Abort(cause="refused", by=event.error.reason))
        elif isinstance(event, Caught):
            self.containment.signal(event.number)
        elif isinstance(event, Go):
            reason = "late-go" if self._gate_at_s is None else "second-go"
            self._say("ignored", None, {"reason": reason, "tier": self._receipt.tier})
        elif isinstance(event, SetupBroke):
            self._broke = event
            self._receipt = self._receipt.replace(ran=False)
        elif isinstance(event, SignalSent):
            self._signal_sent(event.signal)
        elif isinstance(event, Emptied):
            self._usage = self._with_memory(event.usage, self._usage.wall_us if self._usage else None)
        elif isinstance(event, Drained):
            self._drained = True

    def _command_ended(self, event: CommandEnded) -> None:
        """Latches the truth: nothing that happens later changes how the command ended."""
        now_s = time.monotonic()
        self._ended = event
        self._abort_at_end = self._abort
        wall_us = int((now_s - self._gate_at_s) * 1e6) if self._gate_at_s is not None else None
        self._usage = self._with_memory(event.usage, wall_us)
        self._timeout_at_s = None
        if event.exec_errno is not None:
            self._receipt = self._receipt.replace(ran=False)
        if event.leftovers:
            self._settle_at_s = now_s + SETTLE_S
        if self._kill_at_s is None and self._held_at_s is None:
            patience_ms = self._job.grace_ms + self._job.kill_ms if event.leftovers else 0
            self._kill_at_s = now_s + patience_ms / 1000 + MARGIN_S

    def _with_memory(self, usage: Usage, wall_us: int | None) -> Usage:
        """Completes what the init counted. Asked while the job's cgroups are there."""
        peak_bytes, source = self.containment.peak_memory() or (usage.max_rss_bytes, "largest-process")
        return usage.replace(wall_us=wall_us, peak_memory_bytes=peak_bytes, memory_source=source)

    def _signal_sent(self, signal: str) -> None:
        self._last_signal = signal
        if self._leftovers is not None:
            self._leftovers = self._leftovers.replace(signal=signal)
        if signal == "KILL" and self._held_at_s is None:
            self._kill_at_s = time.monotonic() + MARGIN_S

    def _end(self, abort: Abort) -> None:
        """Somebody wants an end. The first cause stays; a later one may only shorten the time."""
        if self._held_at_s is not None:
            return
        self._abort = self._abort or abort
        self._timeout_at_s = None
        if abort.grace_ms == 0 or self._gate_at_s is None:
            self._stop_now(by=abort.by)
            return
        self._last_signal = self._last_signal or "TERM"
        self.containment.cancel(abort.grace_ms)
        kill_at_s = time.monotonic() + abort.grace_ms / 1000 + MARGIN_S
        self._kill_at_s = (
            kill_at_s if self._kill_at_s is None or self._abort is abort else min(self._kill_at_s, kill_at_s)
        )

    def _stop_now(self, by: str) -> None:
        """SIGKILL through the pidfd. ``by`` names a cause of our own where there is none yet."""
        if self._abort is None and by:
            self._abort = Abort(cause="refused", by=by)
        if not self._drained:
            self.containment.kill()
            self._last_signal = "KILL"
            if self._leftovers is not None:
                self._leftovers = self._leftovers.replace(signal="KILL")
        self._kill_at_s = None
        if self._held_at_s is None:
            self._held_at_s = time.monotonic() + DRAIN_S

    def _act_on_time(self) -> None:
        now_s = time.monotonic()
        if self._drained:
            return
        if self._sample_at_s is not None and now_s >= self._sample_at_s:
            self.containment.sample()
            self._sample_at_s = now_s + max(SAMPLE_S, (time.monotonic() - now_s) / SAMPLE_SHARE)
        if self._settle_at_s is not None and now_s >= self._settle_at_s:
            self._settle_at_s = None
            self._name_leftovers()
        if self._timeout_at_s is not None and now_s >= self._timeout_at_s:
            self._end(Abort(cause="timed-out", by="timeoutMs", grace_ms=self._job.grace_ms))
        if self._kill_at_s is not None and now_s >= self._kill_at_s:
            self._stop_now(by="")

    def _name_leftovers(self) -> None:
        """Something outlives the command: the command's end goes to disk on its own, and is said."""
        left = [member for member in self.containment.members()[1:] if member.state not in ("Z", "X")]
        if left:
            names = tuple(member.name for member in left)
            self._leftovers = Leftovers(count=len(left), names=names, signal=self._last_signal)
        self._receipt = self._receipt.replace(
            state=EXITED, outcome=self._outcome(), usage=self._usage, leftovers=self._leftovers
        )
        try:
            self._store.exited(self._receipt)
        except Unwritable as error:
            self._unwritable(error)
            return
        self._say_exited()

    def _count_unseen(self) -> None:
        """Leftovers that were ended before this process had its turn to look: who they were is not known."""
        ended, usage, signal = self._ended, self._usage, self._last_signal
        if self._leftovers or self._abort or ended is None or usage is None or signal is None:
            return
        if ended.leftovers:
            count = max(1, usage.processes - ended.usage.processes)
            self._leftovers = Leftovers(count=count, names=(), signal=signal)

    def _say_exited(self) -> None:
        if not self._exit_said and self._receipt.outcome is not None:
            self._exit_said = True
            said = self._receipt.replace(state=EXITED, proof=None, ended_at=None)
            self._say("exited", said, {"empty": None})

    def _outcome(self) -> Outcome:
        # Whoever asked for an end after the command's own was too late to be its cause.
        abort = self._abort if self._ended is None else self._abort_at_end
        outcome = verdict.outcome(
            self._ended, self._broke, abort, self._job.limits, self.containment, drained=self._drained
        )
        asked = self._abort is not None or self._leftovers is not None
        return outcome.replace(last_signal=self._last_signal if asked else None)

    def _finish(self) -> None:
        """The last word. The outcome that was said before, if any, is the outcome."""
        self._count_unseen()
        outcome = self._receipt.outcome or self._outcome()
        # What it took to end the tree may have grown since ``exited`` was said; how the command ended may not.
        outcome = outcome.replace(
            last_signal=self._last_signal if outcome.last_signal or self._leftovers else None
        )
        receipt = self._receipt.replace(
            outcome=outcome,
            usage=self._usage,
            leftovers=self._leftovers,
            detached=self.containment.detached,
            ended_at=time.time(),
        )
        if self._drained:
            left = self.containment.remove_cgroups() or None
            receipt = receipt.replace(state=RELEASED, empty=True, cgroups=left)
        else:
            receipt = self._hold(receipt)
        try:
            self._store.finish(receipt)
        except Unwritable as error:
            self._unwritable(error)
            receipt = self._not_on_disk(receipt)
        self._receipt = receipt
        if self._gate_at_s is not None and self._ended is not None:
            self._say_exited()
        self._say(receipt.state, receipt, {})
        if receipt.state == RELEASED:
            self._adapter.release(receipt)

    def _hold(self, receipt: Receipt) -> Receipt:
        held = Held(
            reason=f"The tree was not proven empty within {DRAIN_S:g} s of SIGKILL.",
            owner="contain inspect",
            advice="Remove what is named as in the way; then contain inspect releases it, or --finish ends it.",
            blockers=self.containment.members(),
        )
        self.error = self.error or ContainmentHeld(
            held.reason, advice=held.advice, state="The receipt is held."
        )
        return receipt.replace(state=HELD, empty=False, held=held)

    def _not_on_disk(self, receipt: Receipt) -> Receipt:
        """``released`` may only be said when it is durable; the older receipt is, and ``inspect`` finishes it."""
        held = Held(
            reason="The tree is gone, but the disk did not take the receipt of it.",
            owner="contain inspect",
            advice="Free space where the receipts are; then contain inspect releases it.",
            blockers=(),
        )
        return receipt.replace(state=HELD, held=held, empty=None)
