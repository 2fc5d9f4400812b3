"""The one thread that carries all jobs of this process, on one keeper. It is started when the first job is.

It is a daemon and takes no signals. Nothing of this process is changed by it: no handler, no mask of another thread, no
subreaper; the soft limit of open files alone is raised, when more jobs are alive than half of it carries (jobs still
get the old one).

A fork stops it between two rounds, so that the child knows every descriptor of ours, closes its copies and has an
engine of its own when it asks for one. At the interpreter's exit every job is ended.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import weakref
from collections import deque

from contain.adapter import NoBudget
from contain.api.capture import Collecting, Feeding
from contain.api.contained import Contained
from contain.backend import Caught
from contain.errors import TooManyJobs
from contain.job import Abort
from contain.lifecycle import custody
from contain.lifecycle.host import Ended
from contain.lifecycle.life import Life
from contain.lifecycle.many import Lives, Room, fds_of
from contain.platform import backend as find_backend
from contain.protocol import Request
from receipts import Unreadable, Unwritable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from contain.api.streams import Streams
    from receipts import Place, Receipt, Store

EXIT_S = 15.0
"""At exit: a kill, the kernel's drain and the receipts take milliseconds; what takes longer is held by then."""

UNBEGUN = "The job was canceled before it was launched. Nothing of it ran."
ENDED = "The thread that carries this process's jobs has ended. contain inspect says what is true of them."

PRUNE_EVERY = 1024
PRUNE_AT_LAST = 8192


IDLE_DIRECTORIES = 4
"""So many stay open without a job: to judge a directory again costs as much as a launch."""


class Directories:
    """The open receipt directories: each as long as a job of it is alive, and the last few longer."""

    def __init__(self) -> None:
        """None yet."""
        self._open: dict[str | None, tuple[Place, Store]] = {}
        self._users: dict[str | None, int] = {}

    def enter(self, path: str | None) -> tuple[Place, Store]:
        """One more job is in ``path``. Raises UnsafePlace."""
        if path in self._open and not self._users[path] and not self._open[path][0].stands():
            self._close(path)  # moved away, or opened to others: judged like a new one
        if path not in self._open:
            self._open[path] = custody.opened(path, find_backend(), create=True)
        self._users[path] = self._users.get(path, 0) + 1
        return self._open[path]

    def leave(self, path: str | None, *, prune: bool) -> None:
        """One less."""
        _, store = self._open[path]
        if prune:
            try:
                custody.prune(store)
            except (Unreadable, Unwritable):
                pass  # what is in the way is for the next job to meet, or for inspect
        self._users[path] -= 1
        idle = [one for one, users in self._users.items() if not users]
        for one in idle[:-IDLE_DIRECTORIES]:
            self._close(one)

    def _close(self, path: str | None) -> None:
        place, _ = self._open.pop(path)
        del self._users[path]
        place.close()

    def abandon(self) -> None:
        """In a forked child."""
        for place, _ in self._open.values():
            place.close()
        self._open, self._users = {}, {}


class Engine:
    """The thread and what it carries. Its public methods may be called from any thread."""

    def __init__(self) -> None:
        """Starts the thread; the keeper is started by the first launch. Raises WslRefused and UnsupportedPlatform."""
        self._backend = find_backend()
        self._backend.check_host()
        self.still = threading.RLock()
        """Held while the engine works: whoever holds it finds every descriptor accounted for."""
        self.turnstile = threading.RLock()
        """Held by who waits for ``still``: a busy engine would otherwise take it again before anybody woke up."""
        self.streams: weakref.WeakSet[Streams] = weakref.WeakSet()
        self.gone = False
        """In a forked child: these jobs are the parent's."""
        self._lives = Lives()
        self._directories = Directories()
        self._open_files = self._backend.open_files() // 2
        self._room = Room(self._open_files)
        self._launches: deque[Contained] = deque()
        self._orders: deque[Callable[[], None]] = deque()
        self._accepted: set[Contained] = set()
        self._finished = 0
        self._closing = False
        self.stopped = False
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._wake, False)
        self._lives.watch(self._woken, self._heard)
        self._thread = threading.Thread(target=self._main, name="contain", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            os.close(self._woken)
            os.close(self._wake)
            raise custody.no_thread(error) from None

    # -- from any thread -------------------------------------------------------------------------------------------

    def launch(self, contained: Contained) -> None:
        """Has a job launched; ``contained.begun`` tells when that is done, well or not."""
        self._launches.append(contained)
        self._ring()
        if self.stopped and not contained.over.is_set():
            contained.finish(None, RuntimeError(ENDED))

    def cancel(self, contained: Contained, grace_ms: int) -> None:
        """Ends a job: TERM, and KILL after the grace; 0 is KILL at once."""

        def order() -> None:
            contained.unwanted = True
            if contained.carried is not None:
                abort = Abort(cause="canceled", by="host", grace_ms=grace_ms)
                self._lives.post(contained.carried, Ended(abort=abort))

        self._order(order)

    def signal(self, contained: Contained, number: int) -> None:
        """One signal to the command's process alone."""

        def order() -> None:
            if contained.carried is not None:
                self._lives.post(contained.carried, Caught(number=number, by_terminal=False))

        self._order(order)

    def close(self) -> None:
        """Ends every job, writes its receipt, ends keeper and thread. No more is launched."""
        self._closing = True
        self._ring()
        self._thread.join(EXIT_S)

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        self._ring()

    def _ring(self) -> None:
        try:
            os.write(self._wake, b"!")
        except BlockingIOError:
            pass  # it is full: the engine will look

    # -- the thread ------------------------------------------------------------------------------------------------

    def _main(self) -> None:
        # What the kernel delivers to any thread must reach the main one, where Python's handlers run.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        ended = False
        try:
            while not (self._closing and ended and not self._lives.live and not self._launches):
                busy = bool(self._launches or self._orders)
                ready = self._lives.wait(0.0 if busy else None)
                with self.turnstile:
                    pass
                with self.still:
                    self._lives.work(ready)
                    self._work()
                    if self._closing and not ended:
                        ended = True
                        self._end_all()
        finally:
            self._stop()

    def _heard(self) -> None:
        try:
            os.read(self._woken, 4096)
        except BlockingIOError:
            pass

    def _work(self) -> None:
        """Every order, in turn, and one launch: a launch takes time, and the jobs are to have their turns between."""
        for _ in range(len(self._orders)):
            self._orders.popleft()()
        if self._launches:
            self._begin(self._launches.popleft())

    def _end_all(self) -> None:
        for carried in self._lives.live:
            self._lives.post(carried, Ended(abort=Abort(cause="canceled", by="exit")))

    def _stop(self) -> None:
        """Whatever ended the loop: nobody is left waiting."""
        with self.still:
            self.stopped = True
            self._backend.stop()
            for contained in (*self._launches, *self._accepted):
                contained.finish(None, RuntimeError(ENDED))

    # -- jobs ------------------------------------------------------------------------------------------------------

    def _begin(self, contained: Contained) -> None:
        try:
            self._launch(contained)
        except Exception as error:  # noqa: BLE001 - it is the caller's, who waits for it in another thread
            contained.streams.launched()
            contained.streams.close()
            contained.finish(None, error)
        else:
            contained.streams.launched()
            contained.began()

    def _launch(self, contained: Contained) -> None:
        if contained.unwanted or self._closing:
            raise RuntimeError(UNBEGUN)
        fds = fds_of(contained.job) + len(contained.streams.ours)
        place, store = self._directories.enter(contained.directory)
        try:
            contained.note = place.note if place.made else None
            self._take_room(fds)
            try:
                self._carry(contained, fds, place, store)
            except BaseException:
                self._room.give(fds)
                raise
        except BaseException:
            self._directories.leave(contained.directory, prune=False)
            raise

    def _carry(self, contained: Contained, fds: int, place: Place, store: Store) -> None:
        def say(event: str, receipt: Receipt | None, extra: Mapping[str, object]) -> None:  # noqa: ARG001 - Say
            if event == "exited":
                contained.receipt = life.receipt

        def ended(error: Exception | None) -> None:
            self._over(contained, life, fds, error)

        job = contained.job
        self._backend.renew()
        request = Request(job=job, token="", spelled_id=job.id)
        life = Life(request, self._backend, store, NoBudget(), say)
        try:
            carried = self._lives.begin(life, custody.locked(place, job.id), ended)
        except TooManyJobs as error:
            if not self._raise_open_files(error):
                raise
            life = Life(request, self._backend, store, NoBudget(), say)
            carried = self._lives.begin(life, custody.locked(place, job.id), ended)
        contained.carried = carried if carried.live else None
        if contained.carried is not None:
            self._accepted.add(contained)
            self._attach(contained)

    def _attach(self, contained: Contained) -> None:
        ours = contained.streams.ours
        if contained.feed is not None and 0 in ours:
            contained.pumps[0] = Feeding(self._lives, ours.pop(0), contained.feed)
        for number in (1, 2):
            if contained.collect and number in ours:
                contained.pumps[number] = Collecting(self._lives, ours.pop(number))

    def _over(self, contained: Contained, life: Life, fds: int, error: Exception | None) -> None:
        for pump in contained.pumps.values():
            pump.finish()
        contained.carried = None
        self._room.give(fds)
        self._finished += 1
        prune = self._finished >= (PRUNE_AT_LAST if self._lives.live else PRUNE_EVERY)
        if prune:
            self._finished = 0
        self._accepted.discard(contained)
        self._directories.leave(contained.directory, prune=prune)
        contained.finish(life.receipt, error or life.error)

    def _take_room(self, fds: int) -> None:
        try:
            self._room.take(fds)
        except TooManyJobs as error:
            if not self._raise_open_files(error):
                raise
            self._room.take(fds)

    def _raise_open_files(self, error: TooManyJobs) -> bool:
        """The soft limit of open files is too low, and can be raised: done once. True: try again."""
        if error.detail != "open-files":
            return False
        most = self._backend.raise_open_files()
        more = most - most // 8 - self._open_files  # some are the process's own
        if more <= 0:
            return False
        self._open_files += more
        self._room.widen(more)
        return True

    # -- forks -----------------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """In a forked child, in whose parent ``still`` was held: closes this process's copies of everything."""
        self.gone = True
        self._lives.abandon()
        for contained in self._accepted:
            for pump in contained.pumps.values():
                pump.abandon()
        for streams in list(self.streams):
            streams.abandon()
        self._backend.abandon()
        self._directories.abandon()
        os.close(self._woken)
        os.close(self._wake)


class _Process:
    """The engine of this process, and the lock that a fork takes so that it is not copied in the middle of a change."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.engine: Engine | None = None
        self.exiting = False


_process = _Process()


def engine() -> Engine:
    """This process's engine, started now if it is not running."""
    with _process.lock:
        if _process.exiting:
            raise RuntimeError("The interpreter is ending: no more jobs are started.")
        if _process.engine is None or _process.engine.stopped:
            _process.engine = Engine()
        return _process.engine


def opened(engine: Engine, make: Callable[[], Streams]) -> Streams:
    """The streams that ``make`` opens; a fork comes before or after, and never in between."""
    with _process.lock:
        streams = make()
        engine.streams.add(streams)
        return streams


def before_fork() -> None:
    """Stops the engine between two rounds. Called by the hooks of ``contain``."""
    _process.lock.acquire()
    if _process.engine is not None:
        _process.engine.turnstile.acquire()
        _process.engine.still.acquire()


def after_fork_in_parent() -> None:
    """Lets it go on."""
    if _process.engine is not None:
        _process.engine.still.release()
        _process.engine.turnstile.release()
    _process.lock.release()


def after_fork_in_child() -> None:
    """The child starts with nothing."""
    global _process  # the child's own: the lock of the copied one is held for ever
    copied, _process = _process, _Process()
    if copied.engine is not None:
        copied.engine.abandon()


def _at_exit() -> None:
    with _process.lock:
        _process.exiting = True
        running = _process.engine
    if running is not None:
        running.close()


atexit.register(_at_exit)
