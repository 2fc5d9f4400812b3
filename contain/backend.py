"""What every platform's backend can do, and what it reports. Backends report; they never write receipts."""

from __future__ import annotations

from receipts import Anchor, Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Iterable, Sequence
    from typing import Protocol

    from contain.errors import ContainError
    from contain.job import Job
    from contain.machine import Machine, Sampler, TreeUse
    from receipts import Blocker, LimitsInForce, Proof, Usage
else:
    Protocol = object


class Event(Record):
    """Something happened to a job. Everything that a lifecycle is sent is one of these."""


class Deadline(Event):
    """The time that the lifecycle asked for has come."""


class CommandEnded(Event):
    """The command was reaped. ``status`` is wait(2)'s; ``exec_errno`` instead when it could not be executed."""

    status: int
    exec_errno: int | None
    leftovers: bool
    usage: Usage


class SetupBroke(Event):
    """A step failed after the containment was prepared; nothing was executed."""

    step: str
    errno: int


class SignalSent(Event):
    """Who leads or supervises the job sent ``signal`` ("TERM" or "KILL") to what was left."""

    signal: str


class CommandStopped(Event):
    """The command stopped on a terminal that it shares with us, as a shell's ``suspend`` does.

    Where it is in our group, whatever the terminal stops has stopped us too, and there is no more to say.
    """

    number: int | None = None
    """The signal that stopped it."""
    group: int | None = None
    """Its process group."""


class Emptied(Event):
    """Every process of it was reaped. A word, not yet the proof: that is Drained. ``usage`` is final."""

    usage: Usage


class Drained(Event):
    """The proof: the kernel says that no process of the containment exists any more."""


class Caught(Event):
    """A signal came to this process; ``by_terminal``: to its whole process group, so that the job may have it too."""

    number: int
    by_terminal: bool


class Birth(Record):
    """What is fixed when any process starts: enough to know it again, or to know that it is gone."""

    boot_id: str
    observer_namespace: int
    """The PID namespace in which ``pid`` is valid; 0 on Darwin, which has none."""
    pid: int
    start_ticks: int
    """Clock ticks since boot; on Darwin microseconds since the Unix epoch, and a cross-check only."""
    time_namespace: int | None = None
    pidfs_id: int | None = None
    pidfs_handle: str | None = None
    boot_id_source: str | None = None
    unique_id: int | None = None
    """Darwin's: how many forks the boot had seen."""


def birth_of(proof: Proof) -> Birth:
    """The birth of the process that leads a containment."""
    if isinstance(proof, Anchor):
        return Birth(
            boot_id=proof.boot_id,
            observer_namespace=proof.observer_namespace,
            pid=proof.pid,
            start_ticks=proof.start_us,
            unique_id=proof.unique_id,
        )
    return Birth(
        boot_id=proof.boot_id,
        boot_id_source=proof.boot_id_source,
        observer_namespace=proof.observer_namespace,
        pid=proof.pid,
        start_ticks=proof.start_ticks,
        time_namespace=proof.time_namespace,
        pidfs_id=proof.pidfs_id,
        pidfs_handle=proof.pidfs_handle,
    )


class Watched(Protocol):
    """A look at a birth that goes on: ``fd`` can be read when the process has ended; -1 where it is not live."""

    observation: Observation

    @property
    def fd(self) -> int:
        """The descriptor; -1 for none."""

    def close(self) -> None:
        """Lets go of the descriptor."""


class Observation(Record):
    """A fresh look at a birth: ``live``, ``gone`` or ``unknown``, and why."""

    state: str
    why: str

    @property
    def gone(self) -> bool:
        """True only on proof."""
        return self.state == "gone"


class Shortcut(Protocol):
    """Another path to a directory, short enough for a socket's address below it."""

    path: str

    def close(self) -> None:
        """The path is not needed any more. Never raises."""


class SignalSource(Protocol):
    """Signals as data."""

    fd: int

    def read(self) -> list[Caught]:
        """What has come; never blocks."""


class Containment(Protocol):
    """One prepared job: its proof, and a hand on it."""

    leader: str
    """What a person is told that leads it: ``init``, ``anchor``."""
    launcher: str
    """And what launched that: ``keeper``, ``supervisor``."""
    tier: str
    proof: Proof
    limits: LimitsInForce | None
    """What enforces the limits of the tree; None where none was asked for."""
    cgroups: tuple[str, ...]
    """Where the job's own cgroups are, for its receipt."""
    detached: str | None
    """What is known of descendants outside of the containment; None where there can be none."""

    def fds(self) -> Sequence[int]:
        """Descriptors to poll for reading; after each wake-up call ``events``."""

    def events(self) -> list[Event]:
        """What happened since the last call, in order. Never blocks."""

    def open_gate(self) -> bool:
        """Lets the command go; False when the containment is already dead. Bounded."""

    def cancel(self, grace_ms: int) -> None:
        """TERM and CONT to the whole tree, KILL after the grace."""

    def signal(self, number: int) -> None:
        """One signal to the command's process alone; nothing happens when that has ended.

        Where the job is on our terminal and not in our group: what terminals send to groups, to its whole group.
        """

    def kill(self) -> None:
        """SIGKILL to the containment itself: the kernel ends the tree."""

    def launcher_lost(self) -> bool:
        """True when the process that launched the containment is gone, and the containment died of that."""

    def memory_kills(self) -> int:
        """How many processes the kernel has killed for memory, around this job, since it was prepared."""

    def memory_is_own(self) -> bool:
        """True when ``memory_kills`` counts this job alone; else it counts neighbours too."""

    def sample(self) -> None:
        """Looks once at how much memory the tree has now. Milliseconds; owners call it about once a second."""

    def peak_memory(self) -> tuple[int, str] | None:
        """The tree's most memory so far in bytes, and ``cgroup`` or ``sampled``; None where nobody looked."""

    def tasks(self) -> int:
        """How many processes and threads of the job there are now. Milliseconds, like ``sample``."""

    def remove_cgroups(self) -> tuple[str, ...]:
        """Removes what was made for this job's limits; returns what could not be removed. Bounded; after Drained."""

    def members(self) -> tuple[Blocker, ...]:
        """Who is in the containment now, as far as can be seen, and what keeps each from ending."""

    def close(self) -> None:
        """Lets go of every descriptor. A containment that still lives is killed by that."""

    def abandon(self) -> None:
        """In a forked child: closes its copies of the descriptors. The containment is the parent's, and lives on."""


class Launch(Protocol):
    """A containment on its way."""

    def ready(self) -> Containment:
        """Waits, bounded, until it is proven and its command waits at the gate.

        Raises NamespacesDenied, TierTooWeak or SetupFailed; then nothing is left.
        """

    def close(self) -> None:
        """Gives it up; nothing is left. Does nothing after ``ready``."""


class Backend(Protocol):
    """One platform."""

    shares_group: bool
    """Whether a job in our session is in our process group too: what a terminal sends us reaches it by itself."""

    def check_host(self) -> None:
        """Raises WslRefused or UnsupportedPlatform where nothing can be promised."""

    def tiers(self) -> tuple[str, ...]:
        """The tiers that this version has here, the weakest first. Which of them works, only a launch tells."""

    def surroundings(self) -> dict[str, object]:
        """What kind of place this is, for a person and a report; None for what cannot be read. Decides nothing."""

    def remedy(self, error: ContainError) -> str | None:
        """What to type against this refusal, where that says more than its own advice."""

    def name_process(self, name: str) -> None:
        """What ps and top call this process."""

    def environment(self) -> dict[str, str]:
        """The variables that this process was started with: what Python has added for itself is not a job's."""

    def catch(self, numbers: Iterable[int]) -> SignalSource:
        """Takes these signals of this process as data from now on; every other signal is unblocked."""

    def start(self, *, shared_session: bool = False) -> None:
        """Starts what launches need, so that it is ready when the first request has been read."""

    def renew(self) -> None:
        """For a process that launches many jobs over a long time, before each: what has changed since ``start``.

        Starts anew what was killed; its jobs are not brought back.
        """

    def open_files(self) -> int:
        """How many descriptors this process may have now."""

    def raise_open_files(self) -> int:
        """Raises this process's own limit of open files as far as it goes; how many that is.

        Jobs that ask for no limit of their own get the old one.
        """

    def abandon(self) -> None:
        """In a forked child: closes its copies of what ``start`` opened. Everything lives on, and is the parent's."""

    def launch(self, job: Job) -> Launch:
        """Begins to launch a containment whose command will wait at the gate. Never waits.

        Raises ImpossibleRequest, LimitsDenied, TierTooWeak or SetupFailed; then nothing is left.
        """

    def judge(self) -> Machine:
        """What this machine is, with the sources of the judgement."""

    def sampler(self, machine: Machine) -> Sampler:
        """A reader of this machine's load, memory and disks."""

    def birth(self) -> Birth:
        """This very process. Raises SetupFailed where it cannot be told."""

    def watch(self, birth: Birth | Proof) -> Watched:
        """A fresh look at any recorded birth. Never raises for what it cannot see: that is ``unknown``."""

    def contains(self, proof: Proof, connection: socket) -> bool | None:
        """Whether the peer that connected (AF_UNIX) lives in the containment; None where that cannot be told."""

    def used(self, proof: Proof, most: int) -> TreeUse | None:
        """Of a containment's tree; None where it cannot be seen, or has more than ``most`` processes."""

    def own_namespaces(self) -> Sequence[int]:
        """What proofs of the containments in which this process may live have as ``namespace``, nearest first."""

    def owner_and_parent(self, pid: int) -> tuple[int, int]:
        """(effective uid, parent's pid) of a process. Raises OSError where that cannot be told."""

    def shortcut(self, folder: str) -> Shortcut:
        """A short path to a directory. Raises OSError."""

    def observe(self, proof: Proof) -> Observation:
        """A fresh look at a recorded birth. Never raises for what it cannot see: that is ``unknown``."""

    def finish(self, proof: Proof, wait_s: float, *, kill: bool) -> Observation:
        """Waits up to ``wait_s`` for the end of a recorded birth; ``kill`` ends exactly that one first."""

    def blockers(self, proof: Proof) -> tuple[Blocker, ...]:
        """Who is in the way of the recorded containment's end."""

    def outlived(self, proof: Proof, named: Sequence[Blocker], *, kill: bool) -> tuple[Blocker, ...]:
        """Of those that a held receipt names by their births: who lives on outside of what ``proof`` pins."""

    def remove_cgroups(self, job_id: str, paths: Sequence[str]) -> tuple[str, ...]:
        """Removes the recorded cgroups of a job that is gone; returns those that are still there. Bounded."""

    def sweep_cgroups(self) -> None:
        """Removes empty cgroups around here whose wrappers died before they had written a receipt."""

    def unload(self, proof: Proof) -> None:
        """Removes what the system still knows of a recorded containment that is gone. Bounded; never raises."""

    def file_system_magic(self, fd: int) -> int | str:
        """statfs(2)'s f_type of an open file, or its name where the system has names, for receipts.place."""

    def stop(self) -> None:
        """Ends what ``start`` started, and with it every containment of this process."""

    def become_waiter(
        self, words: Sequence[str], wake: Sequence[int], keep: Sequence[int], until_s: float | None
    ) -> None:
        """Stops, and lets a few pages wait in this process's place until it is Python again, with ``words``.

        That is when one of ``wake`` can be read (they close then), when a blocked signal is pending (it still is, then)
        or at ``until_s``, in awake seconds. ``keep`` stays open. Returns where the platform has no such waiter, or it
        cannot be had now; then all is as it was, but that ``start`` is due again.
        """
