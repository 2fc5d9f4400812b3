"""What a receipt says: frozen records whose JSON names are the camelCase of the field names.

Readers are lenient with newer writers where that is safe: every record keeps the keys that it does not know
in `other` and they are written back untouched.
"""

from __future__ import annotations

from receipts.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import ClassVar, Final

PREPARED: Final = "prepared"
RUNNING: Final = "running"
EXITED: Final = "exited"
RELEASED: Final = "released"
HELD: Final = "held"
STATES: Final = (PREPARED, RUNNING, EXITED, RELEASED, HELD)

KERNEL: Final = "kernel"
MOUNTED: Final = "mounted"

_ENOENT: Final = 2

VERSION: Final = 1
"""The format that this code writes, and the newest that it reads."""

CAUSES: Final = (
    "exited",
    "signaled",
    "exec-failed",
    "setup-failed",
    "refused",
    "canceled",
    "timed-out",
    "out-of-memory",
    "limit",
    "wrapper-lost",
    "keeper-lost",
    "init-killed",
)
"""Every cause that this version writes. A reader accepts others: a newer writer may have found a new one."""


class Fact(Record):
    """Base of all that is stored: `other` holds the JSON keys that this version does not know."""

    _unhashed: ClassVar[tuple[str, ...]] = ("other",)

    other: Mapping[str, object] = {}


class NamespaceInit(Fact):
    """The proof of a namespace job: the birth of its init, and why it may be believed."""

    pid: int
    """Valid in the PID namespace `observer_namespace` only."""
    uid: int
    boot_id: str
    start_ticks: int
    """Clock ticks since boot, field 22 of proc_pid_stat(5), in the time namespace `time_namespace`."""
    namespace: int
    """Inode of the PID namespace in which the init is 1."""
    observer_namespace: int
    time_namespace: int | None = None
    pidfs_id: int | None = None
    pidfs_handle: str | None = None
    """File handle of the pidfd, in hex."""
    witness: str
    """Which call saw it as PID 1."""
    proc: str
    """`fresh` or `host`: the /proc that the job sees."""
    boot_id_source: str | None = None
    """`kernel`, or `mounted`: a container manager shows an id of its own, which says nothing of the boot."""


class Anchor(Fact):
    """The proof of a job on Darwin: the birth of the process that leads its session, or only its process group."""

    pid: int
    uid: int
    boot_id: str
    """Of the boot session."""
    unique_id: int
    """How many forks the boot had seen."""
    start_us: int
    """Microseconds since the Unix epoch, by the clock as it was then: a cross-check."""
    scope: str
    """`session` or `group`: what it leads, under its own number."""
    signal: str
    """`exact`: its kernel signals a birth; `checked-pid`: a number, looked at just before and after."""
    witness: str
    """Which call told the unique id."""
    coalition: int | None = None
    """Of a job that launchd started: the number that nobody born in it can shed, and nobody else has in this boot."""
    service: str | None = None
    """What launchd knows that job as: `gui/501/contain.ID`."""

    @property
    def namespace(self) -> int:
        """What a process inside can say of where it is: the number that the anchor leads."""
        return self.pid

    @property
    def observer_namespace(self) -> int:
        """0: this system has no PID namespaces."""
        return 0


Proof = NamespaceInit | Anchor
"""What pins a containment; which of them, is the platform's."""


class Outcome(Fact):
    """How the command ended. `cause` is one of `CAUSES`, or a newer one."""

    cause: str
    code: int | None = None
    signal: int | None = None
    core: bool = False
    errno: int | None = None
    step: str | None = None
    by: str | None = None
    """Who asked for the end: `host`, `eof`, `SIGTERM`, ..."""
    last_signal: str | None = None
    """`TERM` or `KILL`: the strongest signal that was needed."""
    detail: str | None = None

    def __post_init__(self) -> None:
        """Refuse a cause that is not text; an unknown one passes, for the sake of newer writers."""
        if not isinstance(self.cause, str):
            raise TypeError(f"Outcome: cause is text, not {type(self.cause).__name__}")

    @property
    def returncode(self) -> int:
        """As `subprocess` has it: the exit code, or minus the number of the signal. Never None.

        Not executed: 127 or 126, as a shell says it. Killed before anybody saw how it ended: minus 9.
        """
        if self.code is not None:
            return self.code
        if self.signal is not None:
            return -self.signal
        if self.cause == "exec-failed" and self.errno == _ENOENT:
            return 127
        return 126 if self.cause in ("exec-failed", "setup-failed") else -9

    @property
    def succeeded(self) -> bool:
        """The command ended by itself, with exit code 0."""
        return self.cause == "exited" and self.code == 0


class Usage(Fact):
    """What the job took. Times in microseconds."""

    wall_us: int | None
    user_us: int
    system_us: int
    max_rss_bytes: int
    """Of the largest single process."""
    processes: int
    read_bytes: int | None = None
    """From block devices, by the processes that were reaped."""
    written_bytes: int | None = None
    scope: str
    """Of whom: `waited-for` counts only the processes that were reaped."""
    peak_memory_bytes: int | None = None
    """The most memory at one time; of whom, `memory_source` says."""
    memory_source: str | None = None
    """`cgroup`: of the tree, counted by the kernel; `sampled`: of the tree, in the moments of a look;
    `largest-process`: of the largest single process."""


class LimitsInForce(Fact):
    """What enforces each limit of the tree that was asked for; None where none was.

    `cgroup-v1`, `cgroup-v2`, `rlimit`, or `not-applied: ` and the reason.
    """

    memory_bytes: str | None = None
    cpus: str | None = None
    pids: str | None = None


class Leftovers(Fact):
    """Processes of the tree that were alive after the command ended."""

    count: int
    names: tuple[str, ...]
    """Base names of their commands."""
    signal: str | None
    """`TERM` or `KILL`: what it took. None where they ended alone."""


class Blocker(Fact):
    """One process that is in the way of emptiness."""

    pid: int
    name: str
    state: str
    """One letter, as in proc_pid_stat(5)."""
    wchan: str | None
    tracer: int | None
    freezer: str | None
    """The cgroup that freezes it."""
    why: str
    unique_id: int | None = None
    """On Darwin its birth: how many forks the boot had seen."""


class Held(Fact):
    """Why the containment is not proven empty, and who has the next step."""

    reason: str
    owner: str
    advice: str
    blockers: tuple[Blocker, ...]


class Receipt(Fact):
    """The durable record of one job. Times in seconds since the Unix epoch."""

    id: str
    permit_id: str
    state: str
    tier: str
    command: str
    """Base name of the executable. Arguments and environment are never stored."""
    wrapper_pid: int
    created_at: float
    proof: Proof | None
    outcome: Outcome | None = None
    usage: Usage | None = None
    leftovers: Leftovers | None = None
    empty: bool | None = None
    """None: unknown, written as null."""
    held: Held | None = None
    ended_at: float | None = None
    ran: bool | None = None
    """Whether the command was executed; None: not known."""
    limits: LimitsInForce | None = None
    cgroups: tuple[str, ...] | None = None
    """Directories of the job's leaf, until they are removed."""
    detached: str | None = None
    """On Darwin: `listed`, descendants were seen outside of the session or group; `not-observed`: none was *seen*.
    `excluded`: all were in the job's own coalition, and that was empty."""
    version: int = VERSION
