"""``contain run [DIR]``: one job for a host that speaks the protocol on our standard input and output."""

from __future__ import annotations

import select
import time

from contain.cli.main import complain
from contain.cli.place import open_receipts
from contain.errors import (
    ContainError,
    DuplicateJob,
    JobBusy,
    ProtocolViolation,
    ReceiptUnwritable,
    UsageError,
)
from contain.lifecycle.host import HostAdapter
from contain.lifecycle.life import Life
from contain.lifecycle.loop import Host, Signals, carry
from contain.platform import backend as find_backend
from contain.protocol import parse_request, refused
from receipts import Busy, Duplicate, Unreadable, Unwritable, take

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from contain.backend import Backend
    from contain.protocol import Request
    from receipts import Place, Store

SIGNALED = 128
PRUNE_ONE_IN = 64
KEEP_S = 30 * 24 * 3600.0
KEEP_COUNT = 10_000


def main(args: list[str]) -> int:
    """Runs the session; the exit code tells of the session, not of the command: 0 means released."""
    if len(args) > 1 or any(arg.startswith("-") for arg in args):
        raise UsageError("contain run takes one directory and no options.", advice="contain --help shows it.")
    signals = Signals()
    host = Host()
    backend = find_backend()
    try:
        try:
            backend.check_host()
            backend.start()  # while the host still writes its request
            backend.name_process("contain")
            place, store = open_receipts(args[0] if args else None, backend, create=True)
            request = _read_request(host, signals)
            if request is None:
                return SIGNALED + signals.first if signals.first else 0
            return _session(request, host, signals, backend, place, store)
        except ContainError as error:
            host.say(refused(error, host.request.spelled_id if host.request else None), _id_of(host))
            complain(error)
            return error.exit_code
    finally:
        backend.stop()


def _id_of(host: Host) -> str | None:
    return None if host.request is None else host.request.spelled_id


def _read_request(host: Host, signals: Signals) -> Request | None:
    """The first line; None when the host went away, or a signal came, before there was one."""
    poll = select.poll()
    poll.register(host.fd, select.POLLIN)
    poll.register(signals.fd, select.POLLIN)
    while True:
        poll.poll()
        if signals.read():
            return None
        text = host.read_line()
        if text is not None:
            host.request = parse_request(text)
            return host.request
        if host.gone:
            raise ProtocolViolation(
                "The input ended before a request.", advice="Send the request as one JSON line."
            )


def _prune(store: Store) -> None:
    """Old receipts go now and then. What stands in the way is for the next one to meet: this job is done and said."""
    try:
        store.prune(time.time(), KEEP_S, KEEP_COUNT)
    except (Unreadable, Unwritable) as error:
        complain(
            ReceiptUnwritable(
                f"Old receipts could not be removed ({error}).",
                advice="Look at DIR.",
                state="The job has ended well.",
            )
        )


def _session(
    request: Request, host: Host, signals: Signals, backend: Backend, place: Place, store: Store
) -> int:
    job_id = request.job.id

    def say(message: Mapping[str, object]) -> None:
        host.say(message, request.spelled_id)

    try:
        lock = take(place.fd, job_id)
    except Busy as busy:
        holder = "another process" if busy.holder_pid is None else f"process {busy.holder_pid}"
        raise JobBusy(
            f"The job {job_id} is in the hands of {holder}.", advice="Wait for it, or choose a new id."
        ) from None
    except Unwritable as error:
        raise ReceiptUnwritable(str(error), advice="Free space there, or give another DIR.") from None
    with lock:
        life = Life(request, backend, store, HostAdapter(), say)
        try:
            carry(life, host, signals)
        except Duplicate:
            raise DuplicateJob(
                f"The id {job_id} has a receipt already.",
                advice="Choose a new id for every job; contain inspect shows the old one.",
                state="Nothing of the new job ran.",
            ) from None
        except Unwritable as error:
            raise ReceiptUnwritable(
                f"A receipt could not be written ({error}).", advice="Free space there, or give another DIR."
            ) from None
    if hash(job_id) % PRUNE_ONE_IN == 0:
        _prune(store)
    if life.error is not None:
        complain(life.error)
        return life.error.exit_code
    return SIGNALED + signals.first if signals.first else 0
