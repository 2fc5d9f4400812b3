"""``contain status``: who has what, who waits and how much is free, by the same functions that decide."""

from __future__ import annotations

import sys
import time

from contain.budget.arbiter import decide, degraded, explain, free, render
from contain.budget.queue import eta
from contain.cli import status_table
from contain.cli.desk import opened, options, say
from contain.errors import LockUnavailable, UsageError
from receipts import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from contain.budget.arbiter import Now, Permit, Reason
    from contain.budget.opening import Budget
    from contain.budget.queue.desk import Desk
    from contain.budget.registry import Book, PermitRow, TicketRow
    from contain.machine import Unknown

VERSION = 1
"""Of the published form, docs/STATUS.md and contain/schemas/status.json: a field that goes or changes raises it."""
WATCH_S = 1.0
PATIENCE_S = 2.0
"""For the registry's lock: who asks how things stand must be told above all when they stand still."""
READINGS = {
    "busy": "busy",
    "load1": "load1",
    "psiCpu": "psi_cpu",
    "psiIo": "psi_io",
    "psiMemory": "psi_memory",
    "availableMib": "available_mib",
}
EXPLAINED = 20
"""So many of those who wait are told their reasons: each costs a walk along the queue."""


def main(args: list[str]) -> int:
    """A table for a person, one JSON object with ``--json`` or where nobody sits in front."""
    chosen, words = options(args, (), ("--json", "--watch"))
    if words:
        raise UsageError("contain status takes no words.", advice="contain --help shows it.")
    budget, desk = opened()
    desk.registry.give_up_s = PATIENCE_S
    for_eyes = "--json" not in chosen and sys.stdout.isatty()
    try:
        while True:
            document = report(budget, desk, _book(desk))
            if for_eyes:
                text = status_table.table(document, status_table.columns())
                sys.stdout.write(("\033[H\033[2J" if "--watch" in chosen else "") + text)
            else:
                sys.stdout.write(jsontext.dumps(document) + "\n")
            sys.stdout.flush()
            if "--watch" not in chosen:
                return 0
            time.sleep(WATCH_S)
    except BrokenPipeError:
        return status_table.reader_left()


def _book(desk: Desk) -> Book:
    """With the dead settled; as it was last committed, where somebody who is stopped holds the lock."""
    try:
        return desk.tick()
    except LockUnavailable as error:
        say(f"{error} What follows was last committed.")
        return desk.look()


def report(budget: Budget, desk: Desk, book: Book) -> dict[str, Any]:
    """The published form of status. Units are busy cores, memory is MiB, times are seconds, ``until`` is wall time."""
    now, sample, rules = desk.now(), desk.sample(), desk.policy
    snapshot = desk.judged(book.snapshot)
    measured = {one.id: one for one in snapshot.permits}
    turns = eta.turns(book, now.awake_s)
    waiting = list(book.tickets.values())
    why = {
        row.ticket.id: [
            _reason(one, now) for one in explain(snapshot, sample, rules, now, snapshot.tickets[n])
        ]
        for n, row in enumerate(waiting[:EXPLAINED])
    }
    return {
        "version": VERSION,
        "policy": {"name": rules.name, "floor": rules.floor, "base": rules.base, "ceiling": rules.ceiling},
        "limit": snapshot.limit.limit,
        "machine": {
            "cores": budget.machine.cores,
            "online": budget.machine.online,
            "affinity": budget.machine.affinity,
            "quota": budget.machine.quota,
            "memoryMib": round(budget.machine.memory_mib),
        },
        "sample": {name: _reading(getattr(sample, field)) for name, field in READINGS.items()},
        "pressed": list(decide(snapshot, sample, rules, now).pressed),
        "free": {
            cost.name: free(snapshot, sample, rules, now, cost, "contain-status") for cost in rules.classes
        },
        "permits": [
            {
                **_permit(row, measured[row.permit.id], now),
                "degraded": list(degraded(row.permit, snapshot, now)),
            }
            for row in book.permits.values()
        ],
        "waiting": [
            _ticket(row, now, place, turns.get(row.ticket.id), why.get(row.ticket.id))
            for place, row in enumerate(waiting, start=1)
        ],
        "holds": [
            {
                "id": one.id,
                "owner": one.owner,
                "reason": one.reason,
                "until": one.until_s,
                "leftS": round(max(0.0, one.until_s - now.wall_s), 1),
                "covers": list(one.covers),
            }
            for one in snapshot.holds
        ],
        "pools": {
            name: {"reason": one.reason, "until": one.until_s} for name, one in snapshot.health.items()
        },
    }


def _reading(value: float | Unknown | None) -> float | str | None:
    """A number; None for a sensor that this machine does not have; a word for one that failed."""
    if value is None or isinstance(value, (int, float)):
        return None if value is None else round(value, 2)
    return f"unknown: {value.why}"


def _permit(row: PermitRow, permit: Permit, now: Now) -> dict[str, Any]:
    return {
        "id": permit.id,
        "session": permit.session,
        "holder": permit.holder,
        "class": permit.class_name,
        "lane": permit.lane,
        "state": permit.state,
        "units": permit.units,
        "target": permit.target,
        "memoryMib": permit.mem_mib,
        "busy": permit.cpu,
        "residentMib": permit.rss_mib,
        "how": permit.how,
        "ageS": round(now.awake_s - permit.granted_at_s, 1),
        "expectedS": row.ticket.expected_s,
        "ownerPid": row.owner.pid,
        "job": row.job_id,
    }


def _ticket(
    row: TicketRow, now: Now, place: int, eta_s: float | None, why: list[dict[str, Any]] | None
) -> dict[str, Any]:
    ticket = row.ticket
    return {
        "id": ticket.id,
        "place": place,
        "session": ticket.session,
        "holder": ticket.holder,
        "class": ticket.class_name,
        "lane": ticket.lane,
        "min": ticket.min_units,
        "want": ticket.want_units,
        "memoryMib": ticket.mem_mib,
        "dormant": ticket.dormant,
        "waitedS": round(now.awake_s - row.since_s, 1),
        "givesUpInS": None if row.until_s is None else round(max(0.0, row.until_s - now.awake_s), 1),
        "etaS": None if eta_s is None else round(eta_s, 1),
        "reasons": why,
        "ownerPid": row.owner.pid,
    }


def _reason(reason: Reason, now: Now) -> dict[str, Any]:
    return {
        "kind": reason.kind,
        "resource": reason.resource,
        "need": reason.need,
        "has": reason.has,
        "line": render(reason, now),
    }
