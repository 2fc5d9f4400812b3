"""Many lives in one thread: one selector, one heap of deadlines, and each life that is ready gets one turn a round.

Nothing here knows hosts, threads or pipes: whoever owns the loop has its own descriptors watched beside the jobs', and
posts what it wants of a job. ``wait`` waits and changes nothing; ``work`` changes everything and does not wait for
anything unbounded. What one life raises ends that life alone.
"""

from __future__ import annotations

import errno
import heapq
import os
import selectors
import stat
import time

from contain.backend import Deadline, Drained
from contain.errors import TooManyJobs
from contain.lifecycle import custody

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from contain.backend import Event
    from contain.job import Job
    from contain.lifecycle.life import Life
    from receipts import Lock

LONGEST_WAIT_S = 3600.0
"""A poll counts milliseconds in an int; a deadline further off is looked at again."""

STALE = 64
"""So many deadlines that no longer hold may stand in the heap beside two for each life."""

UNWATCHABLE = (errno.EPERM, errno.EINVAL)
"""What epoll and kqueue say of a device such as /dev/null, which is always ready."""

MOST_LIVE = 4096
FDS_PER_JOB = 4
"""Lock, pidfd, control, gate."""
FDS_OF_A_LEAF = 3
"""A lock for each cgroup that limits the job: one, or of cgroup v1 one for each controller."""
SPARE_FDS = 64
"""For everything in this process that is not a job, and for what a launch or a last word needs for a moment."""


class Room:
    """How many more jobs this process can carry: a last word that finds no descriptor could not be written."""

    def __init__(self, open_files: int) -> None:
        """``open_files``: how many descriptors the process may have, its other ones included."""
        self._fds = max(FDS_PER_JOB, open_files - SPARE_FDS)
        self._jobs = MOST_LIVE

    def take(self, fds: int) -> None:
        """Room for one more job. Raises TooManyJobs."""
        if self._jobs < 1 or self._fds < fds:
            raise TooManyJobs(
                "No more jobs can be carried at one time.",
                detail="live" if self._jobs < 1 else "open-files",
                advice="Wait until a job has ended"
                + ("." if self._jobs < 1 else ", or raise the hard limit of open files (ulimit -Hn)."),
            )
        self._jobs -= 1
        self._fds -= fds

    def give(self, fds: int) -> None:
        """A job that took ``fds`` is over."""
        self._jobs += 1
        self._fds += fds

    def widen(self, fds: int) -> None:
        """The process may have ``fds`` descriptors more."""
        self._fds += fds


def fds_of(job: Job) -> int:
    """How many descriptors of this process a live job takes, its streams not counted."""
    limits = job.limits
    of_tree = any(limit is not None for limit in (limits.memory_bytes, limits.cpus, limits.pids))
    return FDS_PER_JOB + (FDS_OF_A_LEAF if of_tree else 0)


class Carried:
    """One life among many. Made by ``Lives.begin``; ``live`` until its last reply is said."""

    def __init__(self, life: Life, lock: Lock, ended: Callable[[Exception | None], None]) -> None:
        """Owns ``lock``. ``ended`` is called once, with what the life raised, if anything."""
        self.life = life
        self.way = life.run()
        self.lock = lock
        self.ended = ended
        self.live = False
        self.until_s: float | None = None
        self.queued_s: float | None = None
        self.fds: Sequence[int] = ()


class Lives:
    """The loop. Not for several threads: ``work`` and everything that changes belong to one."""

    def __init__(self) -> None:
        """Nothing is alive yet."""
        self._selector = selectors.DefaultSelector()
        self._watched: dict[int, Carried | Callable[[], None]] = {}
        self._always: dict[int, Callable[[], None]] = {}
        self._times: list[tuple[float, int, Carried]] = []
        self._pushed = 0
        self._posted: list[tuple[Carried, Event]] = []
        self.live: set[Carried] = set()

    # -- jobs ------------------------------------------------------------------------------------------------------

    def begin(self, life: Life, lock: Lock, ended: Callable[[Exception | None], None]) -> Carried:
        """Launches a job and takes it in. Owns ``lock`` at once, whatever happens.

        Raises what ``Life.run`` raises, in our words; then nothing is left, and ``ended`` is not called.
        """
        carried = Carried(life, lock, ended)
        try:
            carried.until_s = next(carried.way)
        except StopIteration:
            lock.release()
            ended(None)
            return carried
        except BaseException as error:
            lock.release()
            if not isinstance(error, Exception):
                raise
            raise custody.in_our_words(lock.job_id, error) from None
        carried.live = True
        self.live.add(carried)
        self._attend(carried)
        return carried

    def post(self, carried: Carried, event: Event) -> None:
        """Something that no descriptor of the job tells: its life is sent it in the next round."""
        self._posted.append((carried, event))

    def _send(self, carried: Carried, event: Event) -> None:
        if isinstance(event, Drained):
            self._detach(carried)  # while the numbers are still ours: the life is about to close them
        try:
            carried.until_s = carried.way.send(event)
        except StopIteration:
            self._over(carried, None)
        except Exception as error:  # noqa: BLE001 - one life's trouble must not become the others'
            self._over(carried, custody.in_our_words(carried.lock.job_id, error))
        else:
            self._attend(carried)

    def _over(self, carried: Carried, error: Exception | None) -> None:
        self._detach(carried)
        carried.live = False
        self.live.discard(carried)
        carried.lock.release()
        carried.ended(error)

    def _attend(self, carried: Carried) -> None:
        """The descriptors and the deadline that a life has now."""
        fds = carried.life.containment.fds()
        if fds != carried.fds:
            for fd in carried.fds:
                if fd not in fds:
                    self._forget(fd)
            for fd in fds:
                if fd not in carried.fds:
                    self._selector.register(fd, selectors.EVENT_READ)
                    self._watched[fd] = carried
            carried.fds = fds
        if carried.until_s is not None and carried.until_s != carried.queued_s:
            self._pushed += 1
            carried.queued_s = carried.until_s
            heapq.heappush(self._times, (carried.until_s, self._pushed, carried))
            if len(self._times) > STALE + 2 * len(self.live):
                self._sweep()

    def _detach(self, carried: Carried) -> None:
        for fd in carried.fds:
            self._forget(fd)
        carried.fds = ()

    def _sweep(self) -> None:
        """Deadlines that were replaced go: a host that cancels again and again must not fill our memory."""
        self._times = [entry for entry in self._times if entry[2].live and entry[2].until_s == entry[0]]
        heapq.heapify(self._times)

    # -- other descriptors -----------------------------------------------------------------------------------------

    def watch(self, fd: int, ready: Callable[[], None], *, writing: bool = False) -> None:
        """Calls ``ready`` in every round in which ``fd`` can be read (or written). Borrows ``fd``."""
        # A regular file never keeps anybody waiting. epoll refuses one; kqueue takes it, and is silent at its end.
        if stat.S_ISREG(os.fstat(fd).st_mode):
            self._always[fd] = ready
            return
        try:
            self._selector.register(fd, selectors.EVENT_WRITE if writing else selectors.EVENT_READ)
        except OSError as error:
            if error.errno not in UNWATCHABLE:
                raise
            self._always[fd] = ready
        else:
            self._watched[fd] = ready

    def unwatch(self, fd: int) -> None:
        """Ends that. The descriptor must still be open."""
        if self._always.pop(fd, None) is None:
            self._forget(fd)

    def _forget(self, fd: int) -> None:
        if self._watched.pop(fd, None) is not None:
            self._selector.unregister(fd)  # closed by now is the same

    # -- the rounds ------------------------------------------------------------------------------------------------

    def wait(self, until_s: float | None = None) -> list[int]:
        """Waits until a descriptor is ready, a deadline has come or ``until_s`` (monotonic) is over."""
        if self._posted or self._always:
            wait_s = 0.0
        else:
            due_s = self._times[0][0] if self._times else None
            times = [at_s for at_s in (due_s, until_s) if at_s is not None]
            wait_s = LONGEST_WAIT_S
            if times:
                wait_s = min(max(0.0, min(times) - time.monotonic()), LONGEST_WAIT_S)
        return [key.fd for key, _ in self._selector.select(wait_s)]

    def work(self, ready: list[int]) -> None:
        """One round: every job that is ready, everything that was posted before, the others, the deadlines."""
        jobs: dict[Carried, None] = {}
        others = list(self._always.items())
        for fd in ready:
            target = self._watched.get(fd)
            if isinstance(target, Carried):
                jobs[target] = None
            elif target is not None:
                others.append((fd, target))
        # The containments first: how a command ended is the truth, even if somebody asks for its end in this moment.
        for carried in jobs:
            if carried.live:
                self._look(carried)
        posted, self._posted = self._posted, []
        for carried, event in posted:
            if carried.live:
                self._send(carried, event)
        for fd, call in others:
            if call in (self._watched.get(fd), self._always.get(fd)):  # not closed meanwhile
                call()
        self._ring()

    def _look(self, carried: Carried) -> None:
        for event in carried.life.containment.events():
            self._send(carried, event)
            if not carried.live:
                return
        self._attend(carried)  # the control socket may have ended without an event

    def _ring(self) -> None:
        now_s = time.monotonic()
        while self._times and self._times[0][0] <= now_s:
            at_s, _, carried = heapq.heappop(self._times)
            if carried.queued_s == at_s:
                carried.queued_s = None
            if carried.live and carried.until_s == at_s:
                self._send(carried, Deadline())

    # -- the end ---------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """In a forked child: lets go of this process's copies of everything. The jobs are their parent's and live on.

        Must not run beside ``work``.
        """
        # First, and without unregistering: an epoll is one with the parent's, and what is taken out is out for both.
        self.close()
        for carried in self.live:
            carried.live = False
            carried.life.containment.abandon()
            carried.way.close()
            carried.lock.release()
        self.live = set()
        self._posted = []
        self._times = []

    def close(self) -> None:
        """Closes the selector. Lives that are left are left to the end of their containment."""
        self._selector.close()
        self._watched = {}
        self._always = {}
