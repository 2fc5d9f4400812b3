"""Where jobs leave what they leave: receipts and their doubts, the registry, room on disks and in memory."""

from __future__ import annotations

import os

from contain import recovery
from contain.budget.opening import find_root, open_budget
from contain.doctor.check import FAILED, OK, UNKNOWN, WARNING, Check
from contain.errors import BadPolicy, ContainError, RegistryDamaged, UnsafePlace
from contain.lifecycle import custody
from receipts import HELD, RELEASED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.backend import Backend

LOW_DISK_MIB = 1024.0
"""Less and builds fail before they are done; a receipt itself needs 4 KiB."""
LOW_MEMORY_PART = 0.05
FIXES: dict[type[ContainError], str] = {
    BadPolicy: "contain policy show",
    RegistryDamaged: "contain repair",
}
LOCK_S = 0.3
"""For the registry's lock: whoever holds it longer is stopped, and doctor has a second for everything."""


def receipts(backend: Backend, path: str | None) -> tuple[Check, ...]:
    """Whether the directory can keep receipts, and how many of them are in doubt. Settles nothing that is alive."""
    try:
        place, store = custody.opened(path, backend, create=False)
    except UnsafePlace as error:
        if error.detail == "missing":
            return (
                Check(name="receipts", state=OK, what="none yet; the directory is made with the first job"),
            )
        return (Check(name="receipts", state=FAILED, what=error.message, fix=error.advice),)
    try:
        ids = store.ids()
        unsettled = [one for one in ids if getattr(store.find(one), "state", HELD) != RELEASED]
        found = list(recovery.inspect_all(store, backend, place.fd, unsettled))
    finally:
        place.close()
    doubtful = [one for one in found if not one.settled and one.state != "busy"]
    busy = sum(one.state == "busy" for one in found)
    what = f"{place.path} ({place.filesystem}): {len(ids) - len(doubtful) - busy} settled, {busy} of jobs that run"
    checks = [Check(name="receipts", state=OK, what=what)]
    if place.note is not None:
        checks.append(Check(name="receipts' place", state=WARNING, what=place.note))
    if doubtful:
        first = doubtful[0]
        what = f"{len(doubtful)} in doubt; {first.id}: {first.why or first.state}"
        checks.append(
            Check(
                name="receipts in doubt",
                state=WARNING,
                what=what,
                fix=f"contain inspect {place.path} {first.id} --finish",
            )
        )
    return tuple(checks)


def registry(backend: Backend) -> Check:
    """Whether commands can wait for permits here, and by which policy."""
    try:
        budget = open_budget(backend, find_root(backend))
        desk = budget.desk(lambda _: None)
        desk.registry.give_up_s = LOCK_S
        book = desk.look()
    except ContainError as error:
        fix = FIXES.get(type(error), error.advice)
        return Check(name="registry", state=FAILED, what=error.message, fix=fix, exit_code=error.exit_code)
    policy = budget.policy
    what = f"{len(book.permits)} running, {len(book.tickets)} waiting; up to {policy.base} units at a time"
    return Check(name="registry", state=OK, what=what)


def room(backend: Backend, path: str | None) -> tuple[Check, ...]:
    """Free space where receipts and work are, and free memory."""
    sample = backend.sampler(backend.judge()).sample({"receipts": _existing(path), "work": "."})
    checks = []
    for volume, disk in sample.disks:
        free_mib = getattr(disk, "free_mib", None)
        if free_mib is None:
            checks.append(Check(name=f"disk ({volume})", state=UNKNOWN, what="its free space cannot be told"))
            continue
        low = free_mib < LOW_DISK_MIB
        checks.append(
            Check(
                name=f"disk ({volume})",
                state=WARNING if low else OK,
                what=f"{free_mib:,.0f} MiB free",
                fix="Make room." if low else None,
            )
        )
    available = sample.available_mib
    if not isinstance(available, float):
        return (*checks, Check(name="memory", state=UNKNOWN, what="what is available cannot be told"))
    low = available < LOW_MEMORY_PART * backend.judge().memory_mib
    what = f"{available:,.0f} MiB available"
    return (*checks, Check(name="memory", state=WARNING if low else OK, what=what))


def _existing(path: str | None) -> str:
    """The directory itself or the next one above it that exists."""
    found = os.path.abspath(path or os.path.expanduser("~"))
    while not os.path.isdir(found):
        found = os.path.dirname(found)
    return found
