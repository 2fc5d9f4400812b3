"""Many jobs for one host over one pair of pipes: the session of ``contain serve``, from its first line to its last.

A line is of one job, by its id. A line that is not allowed is refused; it ends a job only where it is an action and
names that one. Everything is bounded: live jobs, the length of a line, what waits to be written, and how long a host
may take nothing. However the session ends, every job is ended first, and its last reply is said.
"""

from __future__ import annotations

import os
from collections import deque

from contain.errors import (
    BadToken,
    ContainError,
    ContainmentHeld,
    JobBusy,
    ProtocolViolation,
    ReceiptUnwritable,
)
from contain.job import Abort
from contain.lifecycle import custody
from contain.lifecycle.backlog import Backlog
from contain.lifecycle.host import Ended, Go, HostAdapter, Violated
from contain.lifecycle.life import Life
from contain.lifecycle.loop import READ_BYTES
from contain.lifecycle.many import Carried, Lives, Room, fds_of
from contain.protocol import (
    REQUEST_LINE_BYTES,
    action_of,
    id_of,
    message_of,
    refused,
    reply_fields,
    request_of,
)
from receipts import Unreadable, Unwritable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from contain.backend import Backend
    from contain.lifecycle.loop import Signals
    from contain.protocol import Request
    from receipts import Place, Receipt, Store

LINES_A_TURN = 64
"""Lines that are answered before the jobs have their next turn; a request ends the turn, since a launch takes time."""

PRUNE_EVERY = 1024
PRUNE_AT_LAST = 8192
"""Old receipts go when nobody waits, after so many jobs; and after so many in any case."""


class Lines:
    """Cuts a byte stream into lines. One that is too long is thrown away as it comes, and told once."""

    def __init__(self, most_bytes: int = REQUEST_LINE_BYTES) -> None:
        """Every line may have ``most_bytes``: any of them may be a request."""
        self._most_bytes = most_bytes
        self._pending = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> list[bytes | None]:
        """The lines that ``data`` completed, without their ends; None stands for one that is too long."""
        found: list[bytes | None] = []
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._pending += part
            if not self._skipping:
                found.append(bytes(self._pending) if len(self._pending) <= self._most_bytes else None)
            self._pending.clear()
            self._skipping = False
        if not self._skipping:
            self._pending += rest
            if len(self._pending) > self._most_bytes:
                found.append(None)
                self._pending.clear()
                self._skipping = True
        return found

    @property
    def unfinished(self) -> bool:
        """Bytes were read that no line end has followed."""
        return bool(self._pending)


class Serving:
    """One session. ``run`` is the whole of it."""

    def __init__(
        self,
        backend: Backend,
        place: Place,
        store: Store,
        signals: Signals,
        *,
        open_files: int,
        input_fd: int = 0,
        output_fd: int = 1,
    ) -> None:
        """Borrows everything; ``open_files`` is how many descriptors this process may have."""
        self._backend = backend
        self._place = place
        self._store = store
        self._signals = signals
        self._room = Room(open_files)
        self._input = input_fd
        self._out = Backlog(output_fd)
        self._lives = Lives()
        self._cutter = Lines()
        self._lines: deque[bytes | None] = deque()
        self._served: dict[str, tuple[Request, Carried]] = {}
        self._ending = False
        self._reading = False
        self._writing = False
        self._since_prune = 0
        self.error: ContainError | None = None
        """The first thing that left a job's end uncertain."""

    def run(self) -> None:
        """From the first line to the end of the last job and the last byte of its reply."""
        lives, out = self._lives, self._out
        lives.watch(self._signals.fd, self._signalled)
        while not self._ending or lives.live or out.waiting:
            self._attend()
            ready = lives.wait(self._patience_s())
            lives.work(ready)
            self._take_lines()
            out.write()
            if out.gone:
                self._end("reader-gone")
            self._prune_sometimes()
        lives.close()

    # -- descriptors -----------------------------------------------------------------------------------------------

    def _attend(self) -> None:
        """What the loop looks at: no input while lines or replies wait, no output while there is nothing to say."""
        reading = not (self._ending or self._lines or self._out.full)
        if reading != self._reading:
            self._reading = reading
            self._lives.watch(self._input, self._read) if reading else self._lives.unwatch(self._input)
        if self._out.waiting != self._writing:
            self._writing = self._out.waiting
            if self._writing:
                self._lives.watch(self._out.fd, _nothing, writing=True)
            else:
                self._lives.unwatch(self._out.fd)

    def _patience_s(self) -> float | None:
        """Until when to wait: not at all while lines wait that may be answered."""
        return 0.0 if self._lines and not self._out.full else self._out.patience_until_s

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
            self._take_lines(most=len(self._lines))
            self._end("eof")

    def _signalled(self) -> None:
        for event in self._signals.read():
            if isinstance(event, Ended):
                self._end(event.abort.by)

    def _end(self, by: str) -> None:
        """Nothing more is read; every job is ended, and says so."""
        if self._ending:
            return
        self._ending = True
        while self._lines:
            self._refuse_unbegun(self._lines.popleft())
        for _, carried in self._served.values():
            self._lives.post(carried, Ended(abort=Abort(cause="canceled", by=by)))

    # -- lines -----------------------------------------------------------------------------------------------------

    def _take_lines(self, most: int = LINES_A_TURN) -> None:
        """Answers some lines, in their order. A request is the last of a turn."""
        for _ in range(most):
            if not self._lines or self._out.full or self._take(self._lines.popleft()):
                return

    def _take(self, text: bytes | None) -> bool:
        """Answers one line; True when that took a launch."""
        found: Mapping[str, object] = {}
        try:
            if text is None:
                raise ProtocolViolation(
                    f"A line has more than {REQUEST_LINE_BYTES} bytes.",
                    advice="Send one JSON object a line, and end it.",
                )
            found = message_of(text)
            if "action" in found:
                self._act(found)
                return False
            self._begin(request_of(found))
        except ContainError as error:
            self._refuse(error, str(found["id"]) if id_of(found) is not None else None)
        return True

    def _refuse_unbegun(self, text: bytes | None) -> None:
        """A request that was read and not begun is answered too: no line of a host is lost in silence."""
        try:
            found = message_of(text) if text is not None else {}
        except ProtocolViolation:
            return
        if "action" not in found and id_of(found) is not None:
            error = ProtocolViolation(
                "The session ended before the request was begun.", advice="Send it again."
            )
            self._refuse(error, str(found["id"]))

    def _refuse(self, error: ContainError, spelled_id: str | None) -> None:
        self._out.say(refused(error, spelled_id), spelled_id)

    def _act(self, found: Mapping[str, object]) -> None:
        job_id = id_of(found)
        served = self._served.get(job_id) if job_id is not None else None
        if job_id is not None and served is None:
            # Not a fault: a cancel and a job's own end may meet on their way.
            self._out.say({"event": "ignored", "reason": "not-live"}, str(found["id"]))
            return
        if served is None:
            raise ProtocolViolation("An action names no job.", advice="Send the id of a request.")
        request, carried = served
        try:
            abort = action_of(found, request)
        except (BadToken, ProtocolViolation) as error:
            self._lives.post(carried, Violated(error=error))
            return
        self._lives.post(carried, Go() if abort is None else Ended(abort=abort))

    def _begin(self, request: Request) -> None:
        """Launches a job. Raises ContainError; then nothing of it ran, and no other job is the worse."""
        job_id = request.job.id
        if job_id in self._served:
            raise JobBusy(
                f"The job {job_id} is live in this session.",
                advice="Choose a new id for every job.",
                state="Nothing of the new job ran; the live one goes on.",
            )

        def say(event: str, receipt: Receipt | None, extra: Mapping[str, object]) -> None:
            self._out.say(reply_fields(event, receipt, extra), request.spelled_id)

        def ended(error: Exception | None) -> None:
            self._ended(request, life, error)

        self._backend.renew()
        life = Life(request, self._backend, self._store, HostAdapter(), say)
        fds = fds_of(request.job)
        self._room.take(fds)
        try:
            carried = self._lives.begin(life, custody.locked(self._place, job_id), ended)
        except BaseException:
            self._room.give(fds)
            raise
        if carried.live:
            self._served[job_id] = (request, carried)

    def _ended(self, request: Request, life: Life, error: Exception | None) -> None:
        self._served.pop(request.job.id, None)
        self._since_prune += 1
        self._room.give(fds_of(request.job))
        if error is not None:
            found = error if isinstance(error, ContainError) else _unforeseen(error)
            self._refuse(found, request.spelled_id)
            self.error = self.error or found
        elif isinstance(life.error, ContainmentHeld | ReceiptUnwritable):
            self.error = self.error or life.error

    def _prune_sometimes(self) -> None:
        least = PRUNE_AT_LAST if self._lives.live else PRUNE_EVERY
        if self._since_prune < least or self._ending:
            return
        self._since_prune = 0
        try:
            custody.prune(self._store)
        except (Unreadable, Unwritable):
            pass  # what is in the way is for the next job to meet, or for inspect


def _nothing() -> None:
    """The output can be written: that is done in every round."""


def _unforeseen(error: Exception) -> ContainError:
    """A fault of ours in one job: its containment was let go, which kills it, and nobody saw it drain."""
    return ContainError(
        f"A fault of contain ended the job ({type(error).__name__}: {error}).",
        state="The job was killed; its receipt is as it was last written.",
        advice="contain inspect says what is true. Report this: it is a bug.",
    )
