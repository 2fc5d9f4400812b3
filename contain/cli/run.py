"""``contain run [DIR]``: one job for a host that speaks the protocol on our standard input and output."""

from __future__ import annotations

import select

from contain.cli.main import complain
from contain.cli.place import open_receipts
from contain.cli.single import carried, locked, prune_sometimes
from contain.errors import ContainError, ProtocolViolation, UsageError
from contain.lifecycle.host import HostAdapter
from contain.lifecycle.life import Life
from contain.lifecycle.loop import Host, Signals, carry
from contain.platform import backend as find_backend
from contain.protocol import parse_request, refused, reply_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from contain.backend import Backend
    from contain.protocol import Request
    from receipts import Place, Receipt, Store

SIGNALED = 128


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


def _session(
    request: Request, host: Host, signals: Signals, backend: Backend, place: Place, store: Store
) -> int:
    job_id = request.job.id

    def say(event: str, receipt: Receipt | None, extra: Mapping[str, object]) -> None:
        host.say(reply_fields(event, receipt, extra), request.spelled_id)

    with locked(place, job_id):
        life = Life(request, backend, store, HostAdapter(), say)
        carried(job_id, lambda: carry(life, host, signals))
    prune_sometimes(store, job_id)
    if life.error is not None:
        complain(life.error)
        return life.error.exit_code
    return SIGNALED + signals.first if signals.first else 0
