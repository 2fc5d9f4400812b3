"""One job under its anchor: the wrapper's hand on a living supervisor."""

from __future__ import annotations

import os

from contain.backend import (
    CommandEnded,
    CommandStopped,
    Drained,
    Emptied,
    SetupBroke,
    SignalSent,
)
from contain.darwin import census, ending, keyboard
from contain.darwin.lineage import LISTED, NOT_OBSERVED
from contain.errors import SetupFailed
from contain.job import LAUNCHD
from receipts import Blocker, Usage, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from contain.backend import Event
    from contain.darwin.libproc import Libproc
    from contain.darwin.supervisor import Supervisor
    from receipts import Anchor, LimitsInForce, Proof

MOST_SUPERVISORS = 3
"""One that finishes a killed one's job may be killed as well; whoever kills all of them wants the job held."""

GATE_S = 5.0


class AnchoredContainment:
    """The ``launchd``, ``session`` and ``group`` tiers; closing it ends the job."""

    leader, launcher = "anchor", "supervisor"
    proof: Proof
    cgroups: tuple[str, ...] = ()
    limits: LimitsInForce | None

    def __init__(
        self,
        supervisor: Supervisor,
        proof: Anchor,
        libproc: Libproc,
        limits: LimitsInForce | None,
        another: Callable[[], Supervisor],
    ) -> None:
        """Owns the supervisor. ``another`` starts one that finishes what a killed one has left."""
        self._supervisor = self._first = supervisor
        self._tree = census.Tree(libproc, proof, supervisor.own)
        self._anchor = proof
        self._another = another
        self._started = 1
        self._drained = False
        self._waiting: list[Event] = []
        self._blockers: tuple[Blocker, ...] = ()
        self._strays: Sequence[tuple[int, int]] = ()
        """(pid, unique id) of whom the supervisor knew outside of session and group when the command ended."""
        self.proof = proof
        self.tier = proof.scope if proof.coalition is None else LAUNCHD
        self.limits = limits
        self.detached: str | None = NOT_OBSERVED
        self._is_apart = proof.scope == census.GROUP  # in our session, on its terminal, and not in our group

    def fds(self) -> Sequence[int]:
        """The supervisor's channel, while there is one."""
        return () if self._supervisor.fileno() < 0 or self._drained else (self._supervisor.fileno(),)

    def events(self) -> list[Event]:
        """What the supervisor has said; its own end without the job's is answered by another one."""
        found, self._waiting = self._waiting, []
        while not self._drained and (message := self._supervisor.said()) is not None:
            event = self._event(message)
            if event is not None:
                found.append(event)
        if self._supervisor.over and not self._drained and self._supervisor.fileno() >= 0:
            # The anchor has seen that end too, and kills its group.
            found.append(SignalSent(signal="KILL"))
            self._replace()
        return found

    def _replace(self) -> None:
        ending.strike(self._tree)  # at once: a fresh interpreter takes its time on a busy machine
        gone = self._supervisor
        try:
            if self._started < MOST_SUPERVISORS:
                self._started += 1
                self._supervisor = self._successor()
        except SetupFailed:
            pass  # the job is held; whoever inspects its receipt goes on
        finally:
            # Last: the new channel must not get the old one's number, by which whoever polls knows it.
            gone.close()

    def _successor(self) -> Supervisor:
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            supervisor = self._another()
            supervisor.finish(encode(self._anchor), null)
        finally:
            os.close(null)
        return supervisor

    def _event(self, message: Mapping[str, Any]) -> Event | None:
        event = message["event"]
        if event == "ended":
            self._strays = message["strays"]
            self.detached = LISTED if self._strays else self.detached
            return CommandEnded(
                status=message["status"],
                exec_errno=message["exec_errno"],
                leftovers=message["leftovers"],
                usage=_usage(message["usage"]),
            )
        if event == "broke":
            return SetupBroke(step=message["step"], errno=message["errno"])
        if event == "sent":
            return SignalSent(signal=message["signal"])
        if event == "stopped":
            return CommandStopped(number=message["number"], group=message["group"])
        if event == "emptied":
            return Emptied(usage=_usage(message["usage"]))
        if event == "held":
            self._blockers = tuple(decode(Blocker, one, "blocker") for one in message["blockers"])
        if event == "drained":
            self._drained, self.detached = True, message["detached"]
            return Drained()
        return None

    def open_gate(self) -> bool:
        """Asks the supervisor to, and waits for its word."""
        foreground = self._is_apart and keyboard.is_ours_alone(self._tree.libproc)
        self._supervisor.order("go", foreground=foreground)
        while not self._supervisor.over:
            try:
                message = self._supervisor.answer(GATE_S)
            except SetupFailed:
                return False
            if message["event"] == "gate":
                return bool(message["open"])
            event = self._event(message)
            if event is not None:
                self._waiting.append(event)
                return False
        return False

    def cancel(self, grace_ms: int) -> None:
        """TERM and CONT to the group and whom that does not reach, KILL later."""
        self._supervisor.order("cancel", grace_ms=grace_ms)

    def signal(self, number: int) -> None:
        """Sent by the anchor: to its own unreaped child, or to its own group what a terminal would send there."""
        everybody = self._is_apart and number in keyboard.FOR_GROUPS
        self._supervisor.order("signal", number=number, everybody=everybody)

    def kill(self) -> None:
        """Through the supervisor, and once from here: it may be stopped."""
        self._supervisor.order("kill")
        if not self._drained:
            ending.strike(self._tree)

    def launcher_lost(self) -> bool:
        """True when the first supervisor is gone, at which the anchor ends the job."""
        return self._started > 1

    def memory_kills(self) -> int:
        """Darwin counts none for us."""
        return 0

    def memory_is_own(self) -> bool:
        """See contain.backend."""
        return False

    def sample(self) -> None:
        """Nothing: the command's own rusage has to do."""

    def peak_memory(self) -> tuple[int, str] | None:
        """Not known."""
        return None

    def tasks(self) -> int:
        """Processes, without the anchor."""
        return len(self._tree.census().members)

    def remove_cgroups(self) -> tuple[str, ...]:
        """There are none; but what launchd knows of the job is removed, before it is called released."""
        self._first.retire()
        return ()

    def members(self) -> tuple[Blocker, ...]:
        """The anchor first, as the init is on Linux, then who is seen; or who could not be ended, and why."""
        if self._blockers:
            return self._blockers
        seen = (census.known(self._tree.libproc, self._anchor.boot_id, *one) for one in self._strays)
        strays = ending.named(one for one in seen if one is not None)
        return (*ending.blockers(self._tree), *strays)

    def close(self) -> None:
        """Hangs up, at which a living supervisor ends the job."""
        if self._supervisor.fileno() >= 0:
            self._supervisor.close()

    def abandon(self) -> None:
        """See contain.backend."""
        self._supervisor.abandon()


def _usage(told: Mapping[str, Any]) -> Usage:
    return Usage(
        wall_us=None,
        user_us=told["user_us"],
        system_us=told["system_us"],
        max_rss_bytes=told["max_rss_bytes"],
        processes=told["processes"],
        scope="waited-for",
    )
