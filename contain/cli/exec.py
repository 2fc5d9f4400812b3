"""``contain exec -- COMMAND``: runs one command as if it had been run bare, and leaves nothing of it."""

from __future__ import annotations

import errno
import os
import sys

from contain.adapter import NoBudget
from contain.cli import exec_options
from contain.cli.main import complain
from contain.cli.place import open_receipts
from contain.cli.single import carried, locked, prune_sometimes
from contain.errors import ContainError
from contain.job import LAUNCHD, new_id
from contain.lifecycle import terminal
from contain.lifecycle.front import Front, carry
from contain.lifecycle.life import Life
from contain.platform import backend as find_backend
from contain.protocol import Request, line, reply_fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from contain.backend import Backend
    from contain.cli.exec_options import Options
    from contain.cli.permit import Permit
    from receipts import Receipt

TIMED_OUT = 124
FAILED = 125
"""Ours, as with timeout(1), env(1) and docker: no shell uses it for a command."""
CANNOT_EXECUTE = 126
NOT_FOUND = 127
SIGNALED = 128
ENDS = {
    "timed-out": "the command timed out",
    "out-of-memory": "the command was killed for memory",
    "limit": "the command ran into a limit",
    "setup-failed": "the containment could not be set up, and the command did not run",
    "keeper-lost": "what had launched the command was killed, and the command with it",
    "init-killed": "what leads the job was killed, and the command with it",
}
SIGKILL = 9


def main(args: list[str]) -> int:
    """Returns the command's status, or one of our own codes."""
    if args[:1] in (["--help"], ["-h"]):
        sys.stdout.write(exec_options.USAGE)
        return 0
    try:
        backend = find_backend()
        options = exec_options.parse(args, new_id, backend.environment)
        return _run(options, backend)
    except ContainError as error:
        complain(error)
        return FAILED


def _run(options: Options, backend: Backend) -> int:
    terminal_fd = terminal.find()
    if options.job.require_tier == LAUNCHD and terminal_fd != 0:
        terminal_fd = None  # what only writes on a terminal need not be in its session
    job = options.job.replace(shared_session=terminal_fd is not None)
    try:
        backend.check_host()
        if job.require_tier != LAUNCHD:  # else it is launchd that starts what the job needs
            backend.start(shared_session=job.shared_session)
        front = Front(backend, terminal_fd=terminal_fd, cancel_ms=job.kill_ms)
        backend.name_process("contain")
        return _session(options.replace(job=job), backend, front)
    finally:
        backend.stop()


def _session(options: Options, backend: Backend, front: Front) -> int:
    job = options.job
    replies: dict[str, Mapping[str, object]] = {}

    def say(event: str, receipt: Receipt | None, extra: Mapping[str, object]) -> None:
        if event in ("released", "held"):
            replies[event] = reply_fields(event, receipt, extra)

    place, store = open_receipts(options.receipts, backend, create=True)
    permit: Permit | None = None
    if options.budget:
        from contain.cli import permit as permits

        permit = permits.ask(options, backend, front, place.path)
        if permit is None:
            return SIGNALED + (front.first or SIGKILL)
        job = permit.job
    try:
        with locked(place, job.id):
            request = Request(job=job, token="", spelled_id=job.id)
            life = Life(request, backend, store, permit.adapter if permit else NoBudget(), say)
            carried(job.id, lambda: carry(life, front, permit.tenure if permit else None))
    except BaseException as error:
        if permit is not None:
            permit.give_back(f"nothing was launched ({type(error).__name__})")
        raise
    finally:
        if permit is not None:
            permit.close()
    prune_sometimes(store, job.id)
    last = replies.get("released") or replies.get("held") or {}
    _tell(options, last)
    if permit is not None:
        permit.learn(life.receipt)
    if life.error is not None:
        complain(life.error)
        return FAILED
    return _status(last)


def _status(last: Mapping[str, object]) -> int:
    """What a shell would say of the command."""
    outcome: Mapping[str, object] = last["outcome"]  # type: ignore[assignment]
    cause, code, number = outcome["cause"], outcome.get("code"), outcome.get("signal")
    if cause == "timed-out":
        return TIMED_OUT
    if cause == "exec-failed":
        return NOT_FOUND if outcome.get("errno") == errno.ENOENT else CANNOT_EXECUTE
    if isinstance(code, int):
        return code
    if isinstance(number, int):
        return SIGNALED + number
    if cause == "canceled":
        return SIGNALED + SIGKILL  # it was killed before it could end by itself
    return FAILED


def _tell(options: Options, last: Mapping[str, object]) -> None:
    """On standard error: what a person must know, and what was asked for."""
    if not last:
        return
    for text in _remarks(last):
        _write(f"contain: {text}\n".encode())
    if options.json:
        _write(line({"event": last["event"], **last}))
    if options.summary:
        _write(f"contain: {_summary(last)}\n".encode())


def _remarks(last: Mapping[str, object]) -> list[str]:
    outcome: Mapping[str, object] = last["outcome"]  # type: ignore[assignment]
    found = []
    cause = outcome["cause"]
    if cause == "exec-failed":
        found.append(f"{last['command']}: {outcome['detail']}")
    elif cause not in ("exited", "signaled", "canceled"):
        detail = outcome.get("detail")
        found.append(ENDS.get(str(cause), str(cause)) + (f" ({detail})" if detail else ""))
    elif outcome.get("detail"):
        found.append(str(outcome["detail"]))
    limits: Mapping[str, object] = last.get("limits") or {}  # type: ignore[assignment]
    found += [f"{name} is {how}" for name, how in limits.items() if str(how).startswith("not-applied")]
    left: Mapping[str, object] | None = last.get("leftovers")  # type: ignore[assignment]
    if left:
        names = _counted([str(name) for name in left["names"]]) or "unseen"  # type: ignore[attr-defined]
        count = left["count"]
        what = f"{count} process{'es' if count != 1 else ''} outlived the command ({names})"
        end = left.get("signal")
        found.append(f"{what}; {f'ended by {end}' if end else 'ended without help'}")
    return found


def _counted(names: list[str]) -> str:
    """``cc1, sleep x3``."""
    parts = []
    for name in dict.fromkeys(names):
        count = names.count(name)
        parts.append(name if count == 1 else f"{name} x{count}")
    return ", ".join(parts)


def _summary(last: Mapping[str, object]) -> str:
    outcome: Mapping[str, object] = last["outcome"]  # type: ignore[assignment]
    usage: Mapping[str, object] = last.get("usage") or {}  # type: ignore[assignment]
    end = str(outcome["cause"])
    if outcome.get("code") is not None:
        end += f" {outcome['code']}"
    elif outcome.get("signal") is not None:
        end += f" by {outcome['signal']}"
    parts = [end]
    parts += [
        f"{name} {int(usage[field]) / 1e6:.2f} s"  # type: ignore[call-overload]
        for name, field in (("wall", "wallUs"), ("user", "userUs"), ("system", "systemUs"))
        if usage.get(field) is not None
    ]
    peak, source = usage.get("peakMemoryBytes"), usage.get("memorySource")
    if peak is None:
        peak, source = usage.get("maxRssBytes"), "largest process"
    if peak is not None:
        parts.append(f"memory {int(peak) / 2**20:.1f} MiB ({source})")  # type: ignore[call-overload]
    parts += [f"reaped {usage.get('processes', '?')}", f"tier {last['tier']}", f"receipt {last['id']}"]
    return ", ".join(parts)


def _write(data: bytes) -> None:
    try:
        os.write(2, data)
    except OSError:
        pass  # nobody listens; the receipt has it all
