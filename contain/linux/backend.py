"""The Linux backend: from a Job to a prepared namespace, and from a proof to what is true now."""

from __future__ import annotations

import errno
import os
import resource

from contain.backend import Observation
from contain.csignal import csignal as signal
from contain.errors import ImpossibleRequest, SetupFailed, TierTooWeak
from contain.job import LINUX_TIERS, Limits
from contain.linux import birth, census, cgroup, channel, command, host, native, process, procfs
from contain.linux.keeper import Keeper
from contain.linux.launch import NamespaceLaunch
from receipts import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Iterable, Sequence

    from contain.backend import Birth, Launch, Shortcut, SignalSource, Watched
    from contain.errors import ContainError
    from contain.job import Job
    from contain.linux.tree_limits import TreeLimits
    from contain.linux.tree_memory import TreeMemory
    from contain.machine import Machine, Sampler, TreeUse
    from receipts import Blocker, Proof


RESOURCES = {
    "open_files": resource.RLIMIT_NOFILE,
    "file_bytes": resource.RLIMIT_FSIZE,
    "core_bytes": resource.RLIMIT_CORE,
    "cpu_s": resource.RLIMIT_CPU,
    "address_space_bytes": resource.RLIMIT_AS,
    "stack_bytes": resource.RLIMIT_STACK,
}


class LinuxBackend:
    """PID namespaces under one keeper. ``output`` is the descriptor that gets what commands print."""

    shares_group = True

    def __init__(self, output: int = 2) -> None:
        """Nothing is started yet."""
        self._keeper: Keeper | None = None
        self._lost: list[Keeper] = []
        """Keepers that were killed: their jobs still ask them whether they are gone."""
        self._given_back: tuple[int, int] | None = None
        self._memory: cgroup.MemoryKills
        self._umask: int
        self._null: int
        self._output = output

    def check_host(self) -> None:
        """Raises WslRefused."""
        host.refuse_wsl()

    def name_process(self, name: str) -> None:
        """See contain.backend.Backend."""
        process.name_process(name)

    def tiers(self) -> tuple[str, ...]:
        """See contain.backend.Backend."""
        return ("namespace",)

    def surroundings(self) -> dict[str, object]:
        """See contain.backend.Backend."""
        from contain.linux import surroundings

        return surroundings.described()

    def remedy(self, error: ContainError) -> str | None:
        """See contain.backend.Backend."""
        from contain.linux import remedy

        return remedy.of(error)

    def environment(self) -> dict[str, str]:
        """See contain.backend.Backend."""
        return dict(os.fsdecode(variable).split("=", 1) for variable in command.inherited())

    def catch(self, numbers: Iterable[int]) -> SignalSource:
        """See contain.backend.Backend."""
        from contain.linux.signals import SignalSource

        return SignalSource(numbers)

    def start(self, *, shared_session: bool = False) -> None:
        """Starts the keeper, and looks up what will not change: the less a launch has to read."""
        if self._keeper is None:
            self._keeper = Keeper(shared_session=shared_session)
            self._memory = cgroup.MemoryKills()
            self._umask = _umask()
            self._null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            birth.here()

    def stop(self) -> None:
        """Ends the keeper, and with it every job of this process."""
        if self._keeper is not None:
            for keeper in (self._keeper, *self._lost):
                keeper.close()
            self._keeper, self._lost = None, []
            os.close(self._null)

    def renew(self) -> None:
        """See contain.backend.Backend."""
        if self._keeper is not None and self._keeper.lost():
            self._keeper.reap()
            self._lost.append(self._keeper)
            self._keeper = Keeper()
        self._umask = _umask()

    def abandon(self) -> None:
        """See contain.backend.Backend."""
        if self._keeper is not None:
            for keeper in (self._keeper, *self._lost):
                keeper.abandon()
            self._keeper, self._lost = None, []
            os.close(self._null)

    def open_files(self) -> int:
        """See contain.backend.Backend."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def raise_open_files(self) -> int:
        """See contain.backend.Backend."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            self._given_back = (soft, hard)
        return hard

    def launch(self, job: Job) -> Launch:
        """See contain.backend.Backend."""
        if job.require_tier is not None and job.require_tier not in LINUX_TIERS:
            raise TierTooWeak(f"There is no tier {job.require_tier} here.", advice="Ask for namespace.")
        self.start()
        assert self._keeper is not None  # for mypy
        limits = self._limits(job)
        block = command.block(job, limits)
        dropped = _dropped(job)
        tree = _tree_limits(job, self._keeper.pid)
        given: list[int] = []
        cgroups: list[int] = []
        control, theirs = channel.pair()
        gate_read, gate_write = os.pipe()
        try:
            given += [theirs.detach(), gate_read]
            given += [command.sealed(block)]
            given += [_directory(job)]
            if tree is not None:
                limits = {**limits, **tree.rlimits}
                cgroups = _enter_fds(tree)
            self._keeper.ask(
                native.launch_request(
                    job.grace_ms,
                    job.kill_ms,
                    self._umask,
                    job.limits.nice,
                    limits,
                    native.Extras(
                        flags=_flags(job),
                        drop_capabilities=dropped,
                        cgroups=len(cgroups),
                        keep=job.keep_fds,
                    ),
                ),
                [*given, *(job.stdio or (self._null, self._output, self._output)), *cgroups, *job.keep_fds],
            )
        except BaseException:
            control.close()
            os.close(gate_write)
            if tree is not None:
                tree.close()
            raise
        finally:
            # Our copies must go: the gate sees EOF, and we see the init's end, only when none is left.
            for fd in (*given, *cgroups):
                os.close(fd)
        return NamespaceLaunch(self._keeper, control, gate_write, self._memory, tree, _samples(job))

    def become_waiter(
        self, words: Sequence[str], wake: Sequence[int], keep: Sequence[int], until_s: float | None
    ) -> None:
        """See contain.backend.Backend."""
        from contain.linux import waiter

        self.stop()
        waiter.become(words, wake, keep, until_s)

    def _limits(self, job: Job) -> dict[int, tuple[int, int]]:
        """What the job is to have, and the soft limit of open files that this process had before it raised it."""
        limits = _resource_limits(job.limits)
        if self._given_back is not None:
            limits.setdefault(resource.RLIMIT_NOFILE, self._given_back)
        return limits

    def judge(self) -> Machine:
        """See contain.backend.Backend."""
        from contain.linux import sample

        return sample.judge()

    def sampler(self, machine: Machine) -> Sampler:
        """See contain.backend.Backend."""
        from contain.linux import sample

        return sample.Sampler(machine)

    def birth(self) -> Birth:
        """See contain.backend.Backend."""
        return birth.mine()

    def watch(self, born: Birth | Proof) -> Watched:
        """See contain.backend.Backend."""
        return birth.look(born)

    def contains(self, proof: Proof, connection: socket) -> bool | None:
        """See contain.backend.Backend."""
        from contain.linux import ancestry

        return ancestry.is_inside(proof, connection)

    def used(self, proof: Proof, most: int) -> TreeUse | None:
        """See contain.backend.Backend. Looked at by number, and believed only while the birth is seen live."""
        from contain.linux import tree_use

        found = birth.look(proof)
        try:
            return tree_use.used(proof.pid, most) if found.pidfd >= 0 else None
        finally:
            found.close()

    def own_namespaces(self) -> Sequence[int]:
        """See contain.backend.Backend."""
        return (birth.here().pid_namespace,)

    def owner_and_parent(self, pid: int) -> tuple[int, int]:
        """See contain.backend.Backend."""
        return procfs.owner_and_parent(pid)

    def shortcut(self, folder: str) -> Shortcut:
        """See contain.backend.Backend."""
        return procfs.Shortcut(folder)

    def observe(self, proof: Proof) -> Observation:
        """See contain.backend.Backend."""
        found = birth.look(proof)
        found.close()
        return found.observation

    def finish(self, proof: Proof, wait_s: float, *, kill: bool) -> Observation:
        """Signals only through the pidfd that this very look opened."""
        found = birth.look(proof)
        try:
            if found.pidfd < 0:
                return found.observation
            if kill:
                signal.pidfd_send_signal(found.pidfd, signal.SIGKILL)
            if birth.ended(found.pidfd, wait_s):
                return Observation(state=birth.GONE, why="it has ended, and its namespace with it")
            return found.observation
        except ProcessLookupError:
            return Observation(state=birth.GONE, why="it ended as it was looked at")
        except OSError as error:
            return Observation(state=birth.LIVE, why=f"it may not be signalled from here ({error.strerror})")
        finally:
            found.close()

    def blockers(self, proof: Proof) -> tuple[Blocker, ...]:
        """Nobody is named unless the birth is seen live: its number may be another's."""
        found = birth.look(proof)
        try:
            return census.members(proof.pid, proof.namespace) if found.pidfd >= 0 else ()
        finally:
            found.close()

    def outlived(self, proof: Proof, named: Sequence[Blocker], *, kill: bool) -> tuple[Blocker, ...]:  # noqa: ARG002 - Backend
        """Nobody can: who is in the namespace ends with it."""
        return ()

    def remove_cgroups(self, job_id: str, paths: Sequence[str]) -> tuple[str, ...]:
        """See contain.backend.Backend."""
        from contain.linux import leaf

        return leaf.remove(leaf.name_of(job_id), paths)

    def sweep_cgroups(self) -> None:
        """See contain.backend.Backend."""
        from contain.linux import hierarchy, leaf

        try:
            groups = hierarchy.own()
        except OSError:
            return
        paths = {group.path for group in groups.values()}
        # Of a v2 hierarchy beside our own group, too (unified.place).
        paths |= {os.path.dirname(group.path) for group in groups.values() if group.version == hierarchy.V2}
        for path in paths:
            leaf.sweep(path)

    def unload(self, proof: Proof) -> None:
        """Nothing: the kernel forgets a namespace with its last process."""

    def file_system_magic(self, fd: int) -> int:
        """See contain.backend.Backend. Raises OSError."""
        return native.file_system_magic(fd)


def _tree_limits(job: Job, keeper_pid: int) -> TreeLimits | None:
    """Most jobs ask for none, and do not pay for the modules either."""
    if job.limits.memory_bytes is None and job.limits.cpus is None and job.limits.pids is None:
        return None
    from contain.linux.tree_limits import TreeLimits

    return TreeLimits(job, (keeper_pid,))


def _enter_fds(tree: TreeLimits) -> list[int]:
    try:
        return tree.enter_fds()
    except OSError as error:
        raise SetupFailed(
            f"The job's own cgroup cannot be opened ({error.strerror}).",
            step="cgroups",
            detail=errno.errorcode.get(error.errno or 0),
            advice="Ask again; if it stays so, do without limits of the tree.",
        ) from None


def _dropped(job: Job) -> int:
    """The capabilities that the command shall not have, one bit each. Raises ImpossibleRequest."""
    if not job.drop_capabilities:
        return 0
    from contain.linux import capabilities

    return capabilities.numbers(job.drop_capabilities)


def _samples(job: Job) -> TreeMemory | None:
    if not job.sample_memory:
        return None
    from contain.linux.tree_memory import TreeMemory

    return TreeMemory()


def _flags(job: Job) -> int:
    return (
        (native.SHARED_SESSION if job.shared_session else 0)
        | (native.NO_NEW_PRIVS if job.no_new_privs else 0)
        | (native.NEW_NETWORK if job.network == "none" else 0)
    )


def _umask() -> int:
    """This process's umask. Asking by umask(2) would change it for a moment, for every thread."""
    return int(procfs.read("/proc/self/status").partition("Umask:")[2].split(None, 1)[0], 8)


def _resource_limits(limits: Limits) -> dict[int, tuple[int, int]]:
    """Resource number -> (soft, hard). Raises ImpossibleRequest for what this process may not raise."""
    found = {}
    for name in fields(Limits):
        asked = getattr(limits, name)
        if asked is None or name not in RESOURCES:
            continue
        hard = resource.getrlimit(RESOURCES[name])[1]
        if hard != resource.RLIM_INFINITY and asked > hard:
            raise ImpossibleRequest(
                f"The limit {name} of {asked} is above this process's own hard limit of {hard}.",
                advice="Ask for less, or raise the hard limit where contain is started.",
            )
        # CPU time: the soft limit sends SIGXCPU, which names the cause; the hard one a second later kills.
        found[RESOURCES[name]] = (
            asked,
            min(asked + 1, command.UNLIMITED) if name == "cpu_s" and asked != hard else asked,
        )
    return found


def _directory(job: Job) -> int:
    """The working directory, held open: a rename or a chdir of ours cannot move it under the job."""
    try:
        return os.open(job.cwd or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ImpossibleRequest(
            f"The working directory cannot be opened ({error.strerror}).",
            advice="Give a cwd that exists and can be entered.",
        ) from None
