"""The session of ``contain permit``: the permits of one host, over one pair of pipes, in one loop.

The lines are those of the protocol: JSON, bounded, answered in their order; one that is not allowed is refused, and
the session goes on. However it ends, what waits leaves the queue, what is granted and not bound returns, and what is
bound follows its tree: this process is its owner, and an owner that is gone is the registry's to notice.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque

from contain.budget.hosted import GONE, Hosted, class_of
from contain.budget.messages import Ask, Bind, Release, Settled, Withdraw, said_of
from contain.errors import ContainError, JobBusy, ProtocolViolation, TooManyJobs
from contain.lifecycle.backlog import Backlog
from contain.lifecycle.host import Ended
from contain.lifecycle.loop import READ_BYTES
from contain.lifecycle.serving import Lines
from contain.protocol import LONGEST_MS, REQUEST_LINE_BYTES, id_of, message_of, refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from contain.backend import Backend
    from contain.budget.messages import Said
    from contain.budget.queue.desk import Desk
    from contain.lifecycle.loop import Signals

LINES_A_TURN = 64
FDS_PER_PERMIT = 2
"""Its bell, and whom it watches; the sentinel watches every permit's owner and has what is spare."""
SPARE_FDS = 256


class Counter:
    """One session. ``run`` is the whole of it."""

    def __init__(
        self,
        backend: Backend,
        desk: Desk,
        signals: Signals,
        *,
        open_files: int,
        input_fd: int = 0,
        output_fd: int = 1,
    ) -> None:
        """Borrows everything; ``open_files`` is how many descriptors this process may have."""
        self._backend = backend
        self._desk = desk
        self._signals = signals
        self._most = max(1, (open_files - SPARE_FDS) // FDS_PER_PERMIT)
        self._input = input_fd
        self._out = Backlog(output_fd)
        self._cutter = Lines()
        self._lines: deque[bytes | None] = deque()
        self._permits: dict[str, Hosted] = {}
        self._spelled: dict[str, str] = {}
        self._over = False

    def run(self) -> None:
        """From the first line to the last byte of the last reply."""
        while not self._over or self._out.waiting:
            ready = self._wait()
            if self._signals.fd in ready:
                self._signalled()
            self._turns(ready)
            for _ in range(LINES_A_TURN):
                if not self._lines or self._out.full or self._over:
                    break
                self._take(self._lines.popleft())
            if self._input in ready and not self._over:
                self._read()
            self._out.write()
            if self._out.gone:
                self._end("the host takes no replies")

    def _wait(self) -> set[int]:
        poll = select.poll()
        poll.register(self._signals.fd, select.POLLIN)
        if self._out.waiting:
            poll.register(self._out.fd, select.POLLOUT)
        if not (self._over or self._lines or self._out.full):
            poll.register(self._input, select.POLLIN)
        dues_s = [self._out.patience_until_s]
        for hosted in self._permits.values():
            dues_s.append(hosted.due_s)
            for fd in hosted.fds():
                poll.register(fd, select.POLLIN)
        if self._lines and not self._out.full and not self._over:
            dues_s.append(0.0)
        times = [at_s for at_s in dues_s if at_s is not None]
        wait_ms = min(max(0.0, min(times) - time.monotonic()) * 1000, LONGEST_MS) if times else None
        return {fd for fd, _ in poll.poll(wait_ms)}

    def _turns(self, ready: set[int]) -> None:
        """Everybody for whom something came, or whose time has."""
        now_s = time.monotonic()
        for permit_id, hosted in list(self._permits.items()):
            due_s = hosted.due_s
            if ready.isdisjoint(hosted.fds()) and (due_s is None or now_s < due_s):
                continue
            try:
                hosted.turn(ready)
            except ContainError as error:
                self._refuse(error, self._spelled[permit_id])
            self._drop_if_gone(permit_id)

    # -- lines -----------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = os.read(self._input, READ_BYTES)
        except OSError:
            data = b""  # a terminal that hung up, a directory: nothing more will come
        self._lines += self._cutter.feed(data)
        if not data:
            if self._cutter.unfinished:
                advice = "End every message with a line feed."
                self._refuse(ProtocolViolation("The input ended inside a line.", advice=advice), None)
            while self._lines:
                self._take(self._lines.popleft())
            self._end("the host's input ended")

    def _take(self, text: bytes | None) -> None:
        """Answers one line."""
        found: Mapping[str, object] = {}
        try:
            if text is None:
                raise ProtocolViolation(
                    f"A line has more than {REQUEST_LINE_BYTES} bytes.",
                    advice="Send one JSON object a line, and end it.",
                )
            found = message_of(text)
            self._act(said_of(found))
        except ContainError as error:
            self._refuse(error, str(found["id"]) if id_of(found) is not None else None)

    def _act(self, said: Said) -> None:
        if isinstance(said, Ask):
            self._ask(said)
            return
        hosted = self._permits.get(said.id)
        if hosted is None:
            # Not a fault: a release and the tree's own end may meet on their way.
            self._out.say({"event": "ignored", "reason": "not-live"}, said.spelled_id)
            return
        try:
            if isinstance(said, Bind):
                hosted.bind(said)
            elif isinstance(said, Settled):
                hosted.settled(said.units)
            elif isinstance(said, Release):
                hosted.release()
            elif isinstance(said, Withdraw):
                hosted.withdraw()
        finally:
            self._drop_if_gone(said.id)

    def _ask(self, ask: Ask) -> None:
        if ask.id in self._permits:
            raise JobBusy(
                f"The permit {ask.id} is live in this session.",
                advice="Choose a new id for every permit.",
                state="Nothing was asked; the live one goes on.",
            )
        if len(self._permits) >= self._most:
            raise TooManyJobs(
                "No more permits can be carried at one time.",
                detail="open-files",
                advice="Wait until one has returned, or raise the hard limit of open files (ulimit -Hn).",
            )

        def say(event: str, fields: Mapping[str, object]) -> None:
            self._out.say({"event": event, **fields}, ask.spelled_id)

        hosted = Hosted(self._desk, self._backend, class_of(ask), ask, say)
        hosted.begin()
        self._permits[ask.id], self._spelled[ask.id] = hosted, ask.spelled_id

    def _drop_if_gone(self, permit_id: str) -> None:
        hosted = self._permits.get(permit_id)
        if hosted is not None and hosted.state == GONE:
            del self._permits[permit_id], self._spelled[permit_id]

    def _refuse(self, error: ContainError, spelled_id: str | None) -> None:
        self._out.say(refused(error, spelled_id), spelled_id)

    # -- the end ---------------------------------------------------------------------------------------------------

    def _signalled(self) -> None:
        for event in self._signals.read():
            if isinstance(event, Ended):
                self._end(event.abort.by)

    def _end(self, why: str) -> None:
        """Nothing more is read. What is not bound is given up, and says so; what is bound is left to its tree."""
        if self._over:
            return
        self._over = True
        for permit_id, hosted in list(self._permits.items()):
            try:
                hosted.give_up(why)
            except ContainError as error:
                self._refuse(error, self._spelled[permit_id])  # our end is noticed by whoever looks next
                continue
            if hosted.state == GONE:
                self._out.say({"event": "withdrawn", "why": why}, self._spelled[permit_id])
        self._permits.clear()
