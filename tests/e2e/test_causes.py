"""Every cause of docs/PROTOCOL.md's table comes about as the table says, and a cause that was there first stays."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from receipts import CAUSES
from tests.session import (
    CONTAIN,
    WAIT_S,
    Session,
    alive,
    in_namespace,
    inspect,
    keeper_of,
    kill,
    run_job,
    stat_fields,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Outcome = dict[str, Any]


def exited(receipts: Path) -> Outcome:
    """By itself."""
    return outcome_of(receipts, "sh", "-c", "exit 3")


def signaled(receipts: Path) -> Outcome:
    """By a signal that we did not send."""
    return outcome_of(receipts, "sh", "-c", "kill -USR1 $$")


def exec_failed(receipts: Path) -> Outcome:
    """A name that is nowhere on the PATH."""
    return outcome_of(receipts, "no-such-command")


def setup_failed(receipts: Path) -> Outcome:
    """A nice value that this wrapper may not give, which only its command's process finds out."""
    # Root may, so it lays the capability down first; a plain user has none.
    program = ("setpriv", "--bounding-set", "-sys_nice", *CONTAIN) if os.geteuid() == 0 else CONTAIN
    with Session(receipts, program=program) as session:
        last = session.request("true", limits={"nice": -20}).finish()
    if last["event"] == "refused":  # it was found out before the wrapper had looked at the init
        assert session.events() == ["refused"]
        return {"cause": last["reason"], "step": last["step"], "errno": getattr(errno, last["detail"])}
    assert session.events() == ["prepared", "released"]
    return dict(last["outcome"])


def refused(receipts: Path) -> Outcome:
    """A line that the protocol does not allow."""
    with Session(receipts) as session:
        session.start("sleep", "60")
        session.send_raw(b"?\n")
        return outcome(session)


def canceled(receipts: Path) -> Outcome:
    """By the host."""
    with Session(receipts) as session:
        session.start("sleep", "60")
        return outcome(session.cancel())


def timed_out(receipts: Path) -> Outcome:
    """By its time."""
    return outcome_of(receipts, "sleep", "60", timeoutMs=50)


def limit(receipts: Path) -> Outcome:
    """By a limit of the request."""
    return outcome_of(
        receipts, "sh", "-c", 'exec head -c 9999 /dev/zero >"$0"', f"{receipts}/../big", **SMALL
    )


SMALL: dict[str, object] = {"limits": {"fileBytes": 100, "coreBytes": 0}}


def wrapper_lost(receipts: Path) -> Outcome:
    """The wrapper is killed; inspect tells."""
    with Session(receipts) as session:
        init = session.start("sleep", "60")["namespaceInit"]
        session.process.kill()
        session.process.wait(WAIT_S)
        wait_until(lambda: not alive(init["pid"], init["startTicks"]), what="the job ends with its wrapper")
        code, (found,) = inspect(receipts, session.id)
        assert (code, found["state"], found["empty"]) == (0, "released", True)
        return dict(found["outcome"])


def keeper_lost(receipts: Path) -> Outcome:
    """The keeper is killed."""
    with Session(receipts) as session:
        session.start("sleep", "60")
        kill(keeper_of(session.process.pid))
        return outcome(session)


def init_killed(receipts: Path) -> Outcome:
    """The job's PID 1 is killed, by root or by its own user, from outside."""
    with Session(receipts) as session:
        kill(session.start("sleep", "60")["namespaceInit"]["pid"])
        return outcome(session)


def outcome(session: Session) -> Outcome:
    """Of the last reply, which is `released`."""
    last = session.finish()
    assert (last["event"], last["empty"]) == ("released", True)
    return dict(last["outcome"])


def outcome_of(receipts: Path, command: str, *args: str, **extra: object) -> Outcome:
    """Of one job that ends by itself."""
    with Session(receipts) as session:
        session.start(command, *args, **extra)
        return outcome(session)


TABLE: dict[str, tuple[Callable[[Path], Outcome], Outcome]] = {
    "exited": (exited, {"code": 3}),
    "signaled": (signaled, {"signal": signal.SIGUSR1}),
    "exec-failed": (exec_failed, {"errno": errno.ENOENT, "step": "exec"}),
    "setup-failed": (setup_failed, {"errno": errno.EACCES, "step": "limits"}),
    "refused": (refused, {"by": "protocol", "lastSignal": "KILL"}),
    "canceled": (canceled, {"by": "host", "lastSignal": "TERM", "signal": signal.SIGTERM}),
    "timed-out": (timed_out, {"by": "timeoutMs", "lastSignal": "TERM", "signal": signal.SIGTERM}),
    "limit": (limit, {"detail": "fileBytes", "signal": signal.SIGXFSZ}),
    "wrapper-lost": (wrapper_lost, {}),
    "keeper-lost": (keeper_lost, {}),
    "init-killed": (init_killed, {}),
}


@pytest.mark.parametrize("cause", TABLE)
def test_a_cause_comes_about(cause: str, receipts: Path) -> None:
    """The word of the table, and the fields that it has beside it."""
    if cause == "setup-failed" and os.geteuid() == 0:
        assert shutil.which("setpriv"), "util-linux is part of every Debian"
    make, beside = TABLE[cause]
    found = make(receipts)
    assert found["cause"] == cause
    assert {name: found.get(name) for name in beside} == beside


def test_every_cause_is_made_here() -> None:
    """But for memory, which takes a cgroup: that one is made where promise 6 is tested."""
    assert set(TABLE) | {"out-of-memory"} == set(CAUSES)


# -- the first cause stays -------------------------------------------------------------------------------------------


def test_an_end_that_is_asked_for_too_late_is_no_cause(receipts: Path) -> None:
    """The command ended by itself and left something; a cancel that comes before that is said changes nothing."""
    end = receipts.parent / "end"
    text = 'sleep 60 & while ! [ -e "$0" ]; do sleep 0.01; done; exit 3'
    with Session(receipts) as session:
        namespace = session.start("sh", "-c", text, str(end))["namespaceInit"]["namespace"]
        # The wrapper is stopped, or its look at what is left would come first: then nothing is left to decide.
        kill(session.process.pid, signal.SIGSTOP)
        end.touch()
        wait_until(lambda: names(namespace) == ["contain-init", "sleep"], what="the shell has ended")
        session.cancel(graceMs=5000)
        kill(session.process.pid, signal.SIGCONT)
        found = outcome(session)
    assert (found["cause"], found["code"]) == ("exited", 3)


def names(namespace: int) -> list[str]:
    """Of the living processes of a namespace."""
    found = []
    for pid in in_namespace(namespace):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            found.append(Path(f"/proc/{pid}/comm").read_text().strip())
    return sorted(found)


def test_a_status_is_not_lost_to_an_order_that_comes_too_late(receipts: Path) -> None:
    """The init reports the end and leaves with an unread cancel in its socket; the report is read all the same.

    Closing a socket with unread data resets it, and the reset is told before the messages that came earlier.
    """
    with Session(receipts) as session:
        init = session.start("sh", "-c", "sleep 0.2; exit 3")["namespaceInit"]
        kill(init["pid"], signal.SIGSTOP)
        wait_until(lambda: len(in_namespace(init["namespace"])) == 1, what="the command has ended, unreaped")
        session.cancel(graceMs=5000)
        wait_until(lambda: waits(session.process.pid), what="the wrapper has passed the cancel on")
        kill(session.process.pid, signal.SIGSTOP)
        kill(init["pid"], signal.SIGCONT)
        wait_until(lambda: not alive(init["pid"], init["startTicks"]), what="the init has ended")
        kill(session.process.pid, signal.SIGCONT)
        found = outcome(session)
    assert found["code"] == 3


def waits(pid: int) -> bool:
    """A process sleeps, with nothing left to read on its standard input."""
    fields = stat_fields(pid)
    return fields is not None and fields[0] == "S"


@pytest.mark.parametrize("most", [0, 1, 3, 64, 104])
def test_few_open_files_are_a_limit_like_any_other(most: int, receipts: Path) -> None:
    """The limit is the command's: what lays out its descriptors on the way needs more, and comes before."""
    last, _ = run_job(receipts, "/bin/sh", "-c", "ulimit -n", limits={"openFiles": most})
    if most > 3:  # fewer, and the loader cannot open a library: that is the command's own end
        assert (last["outcome"]["cause"], last["outcome"]["code"]) == ("exited", 0)
    assert last["ran"] is True
