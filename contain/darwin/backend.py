"""The Darwin backend: from a Job to a prepared session or group, and from a proof to what is true now."""

from __future__ import annotations

import os
import resource
import time

from contain.backend import Observation, birth_of
from contain.darwin import birth, census, command, ending, launchd, probe
from contain.darwin.handle import opened
from contain.darwin.launch import SupervisedLaunch
from contain.darwin.libproc import Libproc
from contain.darwin.supervisor import PROGRAM, Supervisor
from contain.darwin.watch import Watch
from contain.errors import ImpossibleRequest, TierTooWeak
from contain.job import DARWIN_TIERS, LAUNCHD
from receipts import Anchor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Iterable, Mapping, Sequence

    from contain.backend import Birth, Launch, Shortcut, SignalSource, Watched
    from contain.errors import ContainError
    from contain.job import Job
    from contain.machine import Machine, Sampler, TreeUse
    from receipts import Blocker, Proof

LOOK_S = 0.05
"""Between two looks at a tree whose end is waited for."""

OPEN_MAX = 10_240
"""setrlimit(2) of Darwin: so many open files are never refused, where the hard limit allows them."""

NOT_HERE = Observation(state=birth.UNKNOWN, why="recorded on Linux")


class DarwinBackend:
    """Sessions, groups and coalitions under anchors. ``output`` is the descriptor that gets what commands print."""

    shares_group = False

    def __init__(
        self,
        output: int = 2,
        *,
        library: str | None = None,
        program: str = PROGRAM,
        launchctl: str = launchd.LAUNCHCTL,
    ) -> None:
        """Nothing is started yet. ``library`` and ``launchctl`` stand for the system's, ``program`` for our anchor."""
        self._output = output
        self._library = library
        self._program = program
        self._launchctl = launchctl
        self._spare: Supervisor | None = None
        self._spare_is_shared = False
        self._given_back: tuple[int, int] | None = None
        self._libproc: Libproc | None = None

    def _asked(self) -> Libproc:
        if self._libproc is None:
            self._libproc = Libproc(opened(self._library))
        return self._libproc

    def check_host(self) -> None:
        """Raises UnsupportedPlatform or SetupFailed where a question that a job needs has no true answer."""
        probe.check(self._asked())

    def name_process(self, name: str) -> None:
        """Darwin's ps shows the executable, whatever a process calls itself."""

    def tiers(self) -> tuple[str, ...]:
        """See contain.backend.Backend."""
        return DARWIN_TIERS

    def surroundings(self) -> dict[str, object]:
        """See contain.backend.Backend."""
        from contain.darwin import surroundings

        return surroundings.described(self._asked())

    def remedy(self, error: ContainError) -> str | None:  # noqa: ARG002 - Backend
        """Every refusal of this backend says itself what to do."""
        return None

    def environment(self) -> dict[str, str]:
        """See contain.backend.Backend."""
        return dict(os.fsdecode(variable).split("=", 1) for variable in command.inherited())

    def catch(self, numbers: Iterable[int]) -> SignalSource:
        """See contain.backend.Backend."""
        from contain.darwin.signals import SignalSource

        return SignalSource(numbers)

    def start(self, *, shared_session: bool = False) -> None:
        """Starts the supervisor of the first job, which takes longer than all else."""
        if self._spare is None:
            self._spare = self._supervisor(shared=shared_session)
            self._spare_is_shared = shared_session

    def _supervisor(self, *, shared: bool = False) -> Supervisor:
        return Supervisor(self._library, self._program, own_session=not shared)

    def _take_supervisor(self, *, shared: bool) -> Supervisor:
        spare, self._spare = self._spare, None
        if spare is None:
            return self._supervisor(shared=shared)
        if self._spare_is_shared != shared:
            spare.close()
            return self._supervisor(shared=shared)
        return spare

    def _supervisor_of(self, job: Job, tier: str) -> Supervisor:
        if tier != LAUNCHD:
            return self._take_supervisor(shared=job.shared_session)
        from contain.darwin.launched import LaunchedSupervisor

        return LaunchedSupervisor(self._asked(), self._program, self._launchctl, job.id)

    def stop(self) -> None:
        """Ends a supervisor without a job. Those with one end with their containments."""
        if self._spare is not None:
            self._spare.close()
            self._spare = None

    def renew(self) -> None:
        """Nothing to do: each job has a supervisor of its own."""

    def abandon(self) -> None:
        """See contain.backend.Backend."""
        if self._spare is not None:
            self._spare.abandon()
            self._spare = None

    def open_files(self) -> int:
        """See contain.backend.Backend."""
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]

    def raise_open_files(self) -> int:
        """See contain.backend.Backend. The hard limit is "unlimited" as a rule, which is refused as a soft one."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = OPEN_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_MAX)
        if soft >= most:
            return soft
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            return soft
        self._given_back = (soft, hard)
        return most

    def launch(self, job: Job) -> Launch:
        """See contain.backend.Backend."""
        tier = _tier(job)
        command.refuse_impossible(job)
        limits = command.limits_in_force(job)
        block = command.block(job, _umask(), self._given_back)
        directory = _directory(job)
        null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            supervisor = self._supervisor_of(job, tier)
            try:
                stdio = job.stdio or (null, self._output, self._output)
                request: Mapping[str, object] = {
                    "session": tier != census.GROUP,
                    "grace_ms": job.grace_ms,
                    "kill_ms": job.kill_ms,
                    "keep": list(job.keep_fds),
                }
                supervisor.launch([*stdio, directory, *job.keep_fds], request, block)
            except BaseException:
                supervisor.close()
                raise
        finally:
            os.close(directory)
            os.close(null)
        return SupervisedLaunch(supervisor, self._asked(), limits, self._supervisor)

    def become_waiter(
        self, words: Sequence[str], wake: Sequence[int], keep: Sequence[int], until_s: float | None
    ) -> None:
        """There is none: whoever waits, waits as Python."""

    def judge(self) -> Machine:
        """See contain.backend.Backend."""
        from contain.darwin import mach, sample

        return sample.judge(mach.Mach(self._asked().handle))

    def sampler(self, machine: Machine) -> Sampler:
        """See contain.backend.Backend."""
        from contain.darwin import mach, sample

        return sample.Sampler(mach.Mach(self._asked().handle), machine)

    def birth(self) -> Birth:
        """See contain.backend.Backend."""
        return birth.mine(self._asked())

    def watch(self, born: Birth | Proof) -> Watched:
        """See contain.backend.Backend."""
        if isinstance(born, Anchor):
            return Watch(self._asked(), birth_of(born), self.observe(born))
        if hasattr(born, "witness"):
            return Watch(self._asked(), None, NOT_HERE)
        return Watch(self._asked(), born, birth.observation(birth.sight(self._asked(), born)))

    def contains(self, proof: Proof, connection: socket) -> bool | None:
        """See contain.backend.Backend."""
        from contain.darwin import peer

        return peer.is_inside(self._tree(proof), connection.fileno()) if isinstance(proof, Anchor) else None

    def used(self, proof: Proof, most: int) -> TreeUse | None:  # noqa: ARG002 - Backend
        """Not measured here: a young permit is charged with its whole units."""
        return None

    def own_namespaces(self) -> Sequence[int]:
        """See contain.backend.Backend."""
        from contain.darwin import peer

        return peer.own_anchors(self._asked())

    def owner_and_parent(self, pid: int) -> tuple[int, int]:
        """See contain.backend.Backend."""
        short = self._asked().short(pid)
        return short.uid, short.parent_pid

    def shortcut(self, folder: str) -> Shortcut:
        """See contain.backend.Backend."""
        from contain.darwin.shortcut import Shortcut

        return Shortcut(folder)

    def observe(self, proof: Proof) -> Observation:
        """See contain.backend.Backend."""
        if not isinstance(proof, Anchor):
            return NOT_HERE
        if (early := self._other_boot(proof)) is not None:
            return early
        return _observation(ending.observe(self._tree(proof)))

    def _tree(self, proof: Anchor) -> census.Tree:
        return census.Tree(self._asked(), proof)

    def _other_boot(self, proof: Anchor) -> Observation | None:
        try:
            if self._asked().boot_session() == proof.boot_id:
                return None
        except OSError as error:
            return Observation(state=birth.UNKNOWN, why=f"the boot has no name here ({error.strerror})")
        return Observation(state=birth.GONE, why="recorded in another boot")

    def finish(self, proof: Proof, wait_s: float, *, kill: bool) -> Observation:
        """Signals exact births, and the group only while its anchor is seen alive in it."""
        found = self.observe(proof)
        if found.gone or not isinstance(proof, Anchor):
            return found
        if kill:
            return _observation(ending.kill(self._tree(proof), pinned=False, wait_s=wait_s))
        until_s = time.monotonic() + wait_s
        while time.monotonic() < until_s:
            time.sleep(LOOK_S)
            found = self.observe(proof)
            if found.gone:
                break
        return found

    def blockers(self, proof: Proof) -> tuple[Blocker, ...]:
        """See contain.backend.Backend."""
        if not isinstance(proof, Anchor):
            return ()
        if self._other_boot(proof) is not None:
            return ()
        return ending.blockers(self._tree(proof))

    def outlived(self, proof: Proof, named: Sequence[Blocker], *, kill: bool) -> tuple[Blocker, ...]:
        """See contain.backend.Backend."""
        if not isinstance(proof, Anchor) or self._other_boot(proof) is not None:
            return ()
        return ending.outlived(self._asked(), proof.boot_id, named, kill=kill)

    def remove_cgroups(self, job_id: str, paths: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002 - Backend
        """There are none here; what another system has recorded stays recorded."""
        return tuple(paths)

    def sweep_cgroups(self) -> None:
        """There are none; what is left here by who was killed are marks, and jobs of launchd's."""
        from contain.darwin import mark, meeting

        mark.sweep()
        meeting.sweep(self._asked(), self._launchctl)

    def unload(self, proof: Proof) -> None:
        """See contain.backend.Backend."""
        if isinstance(proof, Anchor) and proof.service is not None and self._other_boot(proof) is None:
            from contain.darwin import meeting

            launchd.bootout(self._launchctl, proof.service)
            meeting.sweep(
                self._asked(), self._launchctl
            )  # its wrapper's folder, that is, and those of others alike

    def file_system_magic(self, fd: int) -> int | str:
        """Darwin names its file systems. Raises OSError."""
        return self._asked().file_system(fd)


def _observation(found: ending.Ending) -> Observation:
    state = {ending.EMPTY: birth.GONE, ending.LIVE: birth.LIVE}.get(found.state, birth.UNKNOWN)
    return Observation(state=state, why=found.why)


def _tier(job: Job) -> str:
    """What the job will have. Raises TierTooWeak."""
    best = census.GROUP if job.shared_session else census.SESSION
    required = job.require_tier
    if required == LAUNCHD:
        if job.shared_session:
            raise TierTooWeak(
                "A job of launchd's has no terminal, and this one's standard input is one.",
                advice="Give it another standard input (</dev/null), or do without --launchd.",
            )
        return LAUNCHD
    if required is not None and (
        required not in DARWIN_TIERS or DARWIN_TIERS.index(required) > DARWIN_TIERS.index(best)
    ):
        raise TierTooWeak(f"There is no tier {required} here.", advice=f"Ask for {best}.")
    return best


def _umask() -> int:
    """This process's umask. There is no way to ask but to change it, for an instant."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _directory(job: Job) -> int:
    """The working directory, held open: a rename or a chdir of ours cannot move it under the job."""
    try:
        return os.open(job.cwd or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ImpossibleRequest(
            f"The working directory cannot be opened ({error.strerror}).",
            advice="Give a cwd that exists and can be entered.",
        ) from None
