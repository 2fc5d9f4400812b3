"""A real job, from request to receipt: the only thing that says what the next job will meet."""

from __future__ import annotations

import os
import select
import time

from contain.adapter import NoBudget
from contain.backend import Deadline
from contain.doctor.check import FAILED, OK, WARNING, Check
from contain.errors import ContainError
from contain.job import DARWIN_TIERS, LINUX_TIERS, Job, Limits, new_id
from contain.lifecycle import custody
from contain.lifecycle.life import Life
from contain.protocol import Request
from receipts import Duplicate, Record, Unwritable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contain.backend import Backend
    from receipts import Receipt

COMMAND = "true"
USUAL = ("namespace", "session")
"""The tier of a job that asks for none, one a platform: the trial's."""
LONGEST_MS = 5000
"""A job takes some milliseconds; a machine on which it does not must still get its report."""
ASKED = Limits(memory_bytes=1 << 30, cpus=1.0, pids=1000)
"""Of the trial: what any machine can give, so that only who cannot give any refuses."""


class Prediction(Record):
    """What the next ``contain exec`` or ``contain run`` will meet. ``exit_code`` is the verb's where it is refused."""

    works: bool
    tier: str | None = None
    reason: str | None = None
    detail: str | None = None
    exit_code: int = 0

    def document(self) -> dict[str, object]:
        """As ``--json`` has it."""
        return {
            "works": self.works,
            "tier": self.tier,
            "reason": self.reason,
            "detail": self.detail,
            "exitCode": self.exit_code,
        }


def trial(backend: Backend, receipts: str | None) -> tuple[Prediction, tuple[Check, ...]]:
    """Runs ``true`` with limits of its tree, in the directory of receipts that jobs would use."""
    begun_s = time.monotonic()
    try:
        receipt = _job(backend, receipts)
    except ContainError as error:
        refused = Prediction(works=False, reason=error.reason, detail=error.detail, exit_code=error.exit_code)
        fix = backend.remedy(error) or error.advice
        return refused, (Check(name="containment", state=FAILED, what=error.message, fix=fix),)
    took_ms = (time.monotonic() - begun_s) * 1000
    what = f"tier {receipt.tier}: a job ran, and its tree was proven gone ({took_ms:.0f} ms)"
    checks = [
        Check(name="containment", state=OK, what=what),
        *_command(receipt),
        *_view(receipt),
        _limits(receipt),
    ]
    return Prediction(works=True, tier=receipt.tier), tuple(checks)


def _job(backend: Backend, receipts: str | None) -> Receipt:
    """The released receipt of the trial. By the lifecycle itself: where no thread can be started, jobs still can."""
    job_id = new_id()
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    job = Job(
        id=job_id,
        permit_id=new_id(),
        command=COMMAND,
        args=(),
        env=backend.environment(),
        limits=ASKED,
        timeout_ms=LONGEST_MS,
        stdio=(null, null, null),
    )
    try:
        backend.check_host()
        backend.start()
        place, store = custody.opened(receipts, backend, create=True)
        with place, custody.locked(place, job_id):
            life = Life(Request(job=job, token="", spelled_id=job_id), backend, store, NoBudget(), _unsaid)
            try:
                _carry(life)
            except (Duplicate, Unwritable) as error:
                raise custody.in_our_words(job_id, error) from None
    finally:
        backend.stop()
        os.close(null)
    if life.error is not None:
        raise life.error
    assert life.receipt is not None  # it was prepared
    return life.receipt


def _unsaid(event: str, receipt: Receipt | None, extra: Mapping[str, object]) -> None:
    """Nobody is told of the steps: how it ended is in the receipt, or is the life's error."""


def _carry(life: Life) -> None:
    way = life.run()
    try:
        until_s = next(way)
        while True:
            poll = select.poll()
            for fd in life.containment.fds():
                poll.register(fd, select.POLLIN)
            poll.poll(None if until_s is None else max(0.0, until_s - time.monotonic()) * 1000)
            for event in life.containment.events() or (Deadline(),):
                until_s = way.send(event)
    except StopIteration:
        return


def _command(receipt: Receipt) -> Sequence[Check]:
    """The containment is one thing, and what runs in it another."""
    outcome = receipt.outcome
    if outcome is not None and outcome.succeeded:
        return ()
    what = f"the trial's command {COMMAND} did not end well ({outcome.cause if outcome else 'no outcome'})"
    return (Check(name="command", state=WARNING, what=what, fix="Look whether it is on PATH."),)


def _view(receipt: Receipt) -> Sequence[Check]:
    if getattr(receipt.proof, "proc", "own") != "host":
        return ()
    what = (
        "a job gets no /proc of its own: it is contained all the same, and sees its surroundings' processes"
    )
    fix = (
        "In a container: --security-opt systempaths=unconfined (docker), --security-opt unmask=ALL (podman)."
    )
    return (Check(name="proc", state=WARNING, what=what, fix=fix),)


def _limits(receipt: Receipt) -> Check:
    found = receipt.limits
    words = {} if found is None else {"memory": found.memory_bytes, "cpus": found.cpus, "pids": found.pids}
    missing = [name for name, how in words.items() if how is None or how.startswith("not-applied")]
    what = ", ".join(f"{name} {how or 'not-applied'}" for name, how in words.items()) or "not told"
    if not missing:
        return Check(name="tree limits", state=OK, what=what)
    fix = (
        "Start contain in a cgroup that is delegated to it: systemd-run --scope -p Delegate=yes (with --user for a"
        " plain user)."
    )
    return Check(name="tree limits", state=WARNING, what=what, fix=fix)


def tiers(backend: Backend, prediction: Prediction) -> dict[str, str]:
    """Each tier of this platform, the weakest first -> ``works``, ``refused``, ``untried`` or ``absent``.

    ``absent``: not in this version. ``untried``: it is had by who asks for it, or has a terminal.
    """
    known = backend.tiers()
    family = LINUX_TIERS if set(known) <= set(LINUX_TIERS) else DARWIN_TIERS
    found = {name: "untried" if name in known else "absent" for name in family}
    found |= {name: "works" if prediction.works else "refused" for name in USUAL if name in known}
    return found
