"""One job in its namespace: the wrapper's hand on a living init."""

from __future__ import annotations

import os
import select
import time

from contain.backend import CommandEnded, CommandStopped, Drained, Emptied, SetupBroke, SignalSent
from contain.csignal import csignal as signal
from contain.errors import SetupFailed
from contain.linux import birth, census, channel, native
from receipts import Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from contain.backend import Event
    from contain.linux.cgroup import MemoryKills
    from contain.linux.channel import Channel
    from contain.linux.keeper import Keeper, Launched
    from contain.linux.tree_limits import TreeLimits
    from contain.linux.tree_memory import TreeMemory
    from receipts import Blocker, NamespaceInit, Proof

INIT_S = 5.0
"""The init's set-up takes a fifth of a millisecond; this bounds one that something has stopped."""

VERDICT_S = 0.2
"""The keeper's death kills the init some microseconds before the keeper's own pidfd says so: look that long."""


class NamespaceContainment:
    """The ``namespace`` tier. Made by ``LinuxBackend.prepare``; closing it ends the job."""

    leader, launcher = "init", "keeper"
    tier = "namespace"
    proof: Proof
    detached: str | None = None

    def __init__(
        self,
        keeper: Keeper,
        launched: Launched,
        control: Channel,
        gate: int,
        memory: MemoryKills,
        tree: TreeLimits | None,
        samples: TreeMemory | None,
    ) -> None:
        """Owns the launched pidfd, ``control``, ``gate`` and ``tree``; borrows the keeper. Raises SetupFailed.

        ``memory`` counts around the wrapper; a leaf with a counter of its own takes its place.
        """
        self._keeper = keeper
        self._pidfd = launched.pidfd
        self._control = control
        self._gate = gate
        self._armed = False
        self._over = False
        self._waiting: list[Event] = []
        self._tree = tree
        self._samples = samples
        self.limits = None if tree is None else tree.in_force
        self.cgroups = () if tree is None else tree.cgroups
        self._own_memory = None if tree is None else tree.memory
        self._memory = self._own_memory or memory
        self._memory_kills = 0
        try:
            self.proof = self._take_proof(launched.pid)
        except BaseException:
            self.close()
            raise

    def _take_proof(self, pid: int) -> NamespaceInit:
        """Looks from outside while the init sets itself up; only then tells it to hide: undumpable, it shows less."""
        try:
            proof = birth.take(pid, self._pidfd)
        except SetupFailed:
            self._await(native.READY, "ready")  # raises the better reason where the init has said one
            if birth.ended(self._pidfd):
                self._await(native.ARMED, "ready")  # the same, where the command's process failed after READY
            raise
        ready = self._await(native.READY, "ready")
        if ready.pid != 1:
            raise SetupFailed(
                f"The init sees itself as pid {ready.pid}.", step="ready", advice="Report this: it is a bug."
            )
        self._send(native.arm_order())
        return proof.replace(proc="fresh" if ready.proc_fresh else "host")

    def _await(self, kind: int, step: str) -> Any:
        deadline_s = time.monotonic() + INIT_S
        while time.monotonic() < deadline_s:
            message = self._receive(deadline_s)
            if message is None:
                break
            if message.kind == kind:
                return message
            event = self._event(message)
            if isinstance(event, SetupBroke):
                raise SetupFailed(
                    f"The init failed at step {event.step} ({os.strerror(event.errno)}).",
                    step=event.step,
                    detail=str(event.errno),
                    advice="Nothing was started; the step and the reason say what this machine refuses.",
                )
        why = "ended" if birth.ended(self._pidfd) else f"said nothing for {INIT_S:g} s"
        raise SetupFailed(
            f"The init {why} before it was set up.", step=step, advice="Ask again with a new contain run."
        )

    def _receive(self, deadline_s: float) -> Any:  # a C struct, or None for EOF and for the deadline
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        if not poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            return None
        try:
            data = self._receive_now()
        except OSError:
            return None
        return native.report(data) if len(data) == native.REPORT_BYTES else None

    def _receive_now(self) -> bytes:
        try:
            return self._control.recv(native.REPORT_BYTES)
        except ConnectionResetError:
            # The init left with an order of ours unread (unix_release_sock, net/unix/af_unix.c). That is said once,
            # before what it had reported: the command's wait status may be next.
            return self._control.recv(native.REPORT_BYTES)

    def _send(self, order: bytes) -> None:
        try:
            self._control.send(order)
        except OSError:
            pass  # the init is gone: its pidfd says so, to whoever waits for it

    @staticmethod
    def _event(message: Any) -> Event | None:
        usage = Usage(
            user_us=message.user_us,
            system_us=message.system_us,
            max_rss_bytes=message.max_rss_bytes,
            processes=message.reaped,
            read_bytes=message.read_bytes,
            written_bytes=message.written_bytes,
            wall_us=None,
            scope="waited-for",
        )
        if message.kind == native.EXITED:
            exec_errno = message.error if message.step == native.STEP_EXEC else None
            return CommandEnded(
                status=message.status, exec_errno=exec_errno, leftovers=bool(message.leftovers), usage=usage
            )
        if message.kind == native.FAILED:
            return SetupBroke(step=native.STEPS.get(message.step, "unknown"), errno=message.error)
        if message.kind in (native.SENT_TERM, native.SENT_KILL):
            return SignalSent(signal="TERM" if message.kind == native.SENT_TERM else "KILL")
        if message.kind == native.STOPPED:
            return CommandStopped()
        return Emptied(usage=usage) if message.kind == native.EMPTY else None

    def fds(self) -> Sequence[int]:
        """The pidfd, and the control socket while it may still speak."""
        return (self._pidfd,) if self._over else (self._control.fileno(), self._pidfd)

    def events(self) -> list[Event]:
        """Reports first, the end last: a report that was sent before the end must not be lost to it."""
        found, self._waiting = self._waiting, []
        drained = birth.ended(self._pidfd)
        while not self._over and birth.ended(self._control.fileno()):
            message = self._receive(time.monotonic())
            if message is None:
                self._over = True
            elif message.kind == native.ARMED:
                self._armed = True
            elif event := self._event(message):
                found.append(event)
        return [*found, Drained()] if drained else found

    def open_gate(self) -> bool:
        """Writes the one byte, once the init has said that it is armed and can no longer be traced."""
        deadline_s = time.monotonic() + INIT_S
        while not self._armed and not self._over and time.monotonic() < deadline_s:
            message = self._receive(deadline_s)
            if message is None:
                return False
            self._armed = message.kind == native.ARMED
            if not self._armed and (event := self._event(message)):
                self._waiting.append(event)
                return False
        if not self._armed or birth.ended(self._pidfd):
            return False
        try:
            os.write(self._gate, native.GATE_BYTE)
            # After, not before: an execve takes longer than this, and a kill that came first is at worst not blamed.
            self._memory_kills = 0 if self._own_memory else self._memory.count()
        except BrokenPipeError:
            return False  # the command's process is gone; the init's report says why
        finally:
            self._close_gate()
        return True

    def _close_gate(self) -> None:
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1

    def cancel(self, grace_ms: int) -> None:
        """TERM, CONT and later KILL, sent by the init from inside, where -1 means exactly this job."""
        self._send(native.cancel_order(grace_ms))

    def signal(self, number: int) -> None:
        """Sent by the init to its own unreaped child: the number is surely the command's."""
        self._send(native.signal_order(number))

    def kill(self) -> None:
        """SIGKILL to the init through its pidfd: never a number."""
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended and was reaped
        except OSError:
            # Old seccomp profiles refuse the call. The init takes our hanging up for our death, and ends the job.
            channel.hang_up(self._control)

    def launcher_lost(self) -> bool:
        """True when the keeper is gone, which kills its inits."""
        return self._keeper.lost(VERDICT_S)

    def memory_kills(self) -> int:
        """Kills for memory in the job's leaf; without one, in the wrapper's own cgroup since the gate."""
        return self._memory.count() - self._memory_kills

    def memory_is_own(self) -> bool:
        """See contain.backend."""
        return self._own_memory is not None

    def sample(self) -> None:
        """See contain.backend. Nothing where a cgroup counts, or nobody asked."""
        if self._samples is not None and self._peak_of_leaf() is None:
            self._samples.look(self.proof.pid)

    def peak_memory(self) -> tuple[int, str] | None:
        """See contain.backend."""
        counted = self._peak_of_leaf()
        if counted is not None:
            return counted, "cgroup"
        if self._samples is not None and self._samples.peak_bytes > 0:
            return self._samples.peak_bytes, "sampled"
        return None

    def _peak_of_leaf(self) -> int | None:
        return None if self._tree is None else self._tree.peak_bytes()

    def remove_cgroups(self) -> tuple[str, ...]:
        """See contain.backend."""
        return () if self._tree is None else self._tree.remove()

    def tasks(self) -> int:
        """See contain.backend. Without the init itself."""
        from contain.linux import tree_memory

        return max(0, tree_memory.tasks(self.proof.pid) - 1)

    def members(self) -> tuple[Blocker, ...]:
        """The census of this namespace."""
        return census.members(self.proof.pid, self.proof.namespace)

    def abandon(self) -> None:
        """See contain.backend."""
        if self._tree is not None:
            self._tree.abandon()
            self._tree = None
        self.close()

    def close(self) -> None:
        """Closes control and gate, at which a living init exits, and the pidfd."""
        self._close_gate()
        self._control.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)
            self._pidfd = -1
        if self._tree is not None:
            self._tree.close()
