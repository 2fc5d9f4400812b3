"""Why a ticket waits, as records with numbers, and each as one honest English line."""

from __future__ import annotations

from receipts.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.arbiter.facts import Now

SHOWN = 3
"""Holders named in a line; the record has them all."""

MEMORY = frozenset({"memory", "available"})


class Holding(Record):
    """Who has, or ahead in the queue waits for, some of a resource. ``amount`` in its unit."""

    id: str
    session: str
    holder: str
    amount: int
    waiting: bool = False


class Reason(Record):
    """One failed check. ``need`` and ``has`` are in the resource's unit: units, MiB, tokens, percent for PSI.

    ``kind``: impossible, hold, unknown, disk, memory, pool, lane, cpu, pressure, behind, thrash or dormant. ``of`` is
    the whole of the resource, ``until_s`` wall time, ``note`` a clause for the line.
    """

    kind: str
    resource: str
    need: float = 0
    has: float = 0
    of: float | None = None
    until_s: float | None = None
    holders: tuple[Holding, ...] = ()
    note: str = ""


def figure(value: float) -> str:
    """A number for a person: thousands apart, one decimal where there is one."""
    rounded = round(value, 1)
    return f"{int(rounded):,}" if rounded == int(rounded) else f"{rounded:,.1f}"


def render(reason: Reason, now: Now) -> str:
    """One line, with what is needed, what there is, until when, and who has it."""
    return _LINES.get(reason.kind, _short)(reason, now) + _held_by(reason)


def _short(reason: Reason, now: Now) -> str:
    name = {"available": "available memory"}.get(reason.resource, reason.resource)
    if reason.kind in {"pool", "lane"} and not name.startswith("lane:"):
        name = f"pool {name}"
    whole = "" if reason.of is None else f" of {figure(reason.of)}"
    unit = " MiB" if reason.resource in MEMORY else ""
    line = f"{name}: needs {figure(reason.need)}, has {figure(reason.has)}{whole}{unit}"
    if reason.note:
        line += f"; {reason.note}"
    return line + _for_another(reason, now)


def _impossible(reason: Reason, _: Now) -> str:
    has = f"has {figure(reason.has)}" if reason.has else "has none"
    unit = " MiB" if reason.resource in MEMORY else ""
    return f"impossible: needs {figure(reason.need)}{unit} of {reason.resource}, and the policy {has}"


def _hold(reason: Reason, now: Now) -> str:
    return f"hold: {reason.note}{_for_another(reason, now)}"


def _unknown(reason: Reason, _: Now) -> str:
    return f"unknown: the sensor for {reason.resource} exists and failed: {reason.note}"


def _disk(reason: Reason, _: Now) -> str:
    return f"disk: the {reason.resource} volume has {figure(reason.has)} MiB free, must have {figure(reason.need)}"


def _pressure(reason: Reason, _: Now) -> str:
    line = f"pressure: {reason.resource} is {figure(reason.has)}, the mark is {figure(reason.need)}"
    return f"{line}; {reason.note}" if reason.note else line


def _thrash(reason: Reason, _: Now) -> str:
    return (
        f"thrash: {reason.resource} is {figure(reason.has)}, from {figure(reason.need)} on nothing may start"
    )


def _behind(reason: Reason, now: Now) -> str:
    return f"behind those ahead in {_short(reason, now)}"


def _dormant(_: Reason, __: Now) -> str:
    return "dormant: its owner did not answer; it is skipped until that speaks"


_LINES = {
    "impossible": _impossible,
    "hold": _hold,
    "unknown": _unknown,
    "disk": _disk,
    "pressure": _pressure,
    "thrash": _thrash,
    "behind": _behind,
    "dormant": _dormant,
}


def _for_another(reason: Reason, now: Now) -> str:
    return (
        "" if reason.until_s is None else f", for another {figure(max(0.0, reason.until_s - now.wall_s))} s"
    )


def _held_by(reason: Reason) -> str:
    if not reason.holders or reason.kind == "impossible":
        return ""
    names = [f"{one.holder or one.session} ({figure(one.amount)})" for one in reason.holders[:SHOWN]]
    more = len(reason.holders) - len(names)
    verb = "waited for" if reason.kind == "behind" else "held"
    return f"; {verb} by {', '.join(names)}" + (f" and {more} more" if more else "")
