"""``contain status``: who has what, who waits and how much is free, by the same functions that decide."""

from __future__ import annotations

import sys
import time

from contain.budget.arbiter import decide, degraded, free
from contain.cli.desk import opened, options
from contain.errors import UsageError
from receipts import jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from contain.budget.arbiter import Now
    from contain.budget.opening import Budget
    from contain.budget.queue.desk import Desk
    from contain.budget.registry import Book, PermitRow, TicketRow

VERSION = 1
WATCH_S = 1.0


def main(args: list[str]) -> int:
    """A table for a person, one JSON object with ``--json`` or where nobody sits in front."""
    chosen, words = options(args, (), ("--json", "--watch"))
    if words:
        raise UsageError("contain status takes no words.", advice="contain --help shows it.")
    budget, desk = opened()
    while True:
        book = desk.tick()
        document = report(budget, desk, book)
        if "--json" in chosen or not sys.stdout.isatty():
            sys.stdout.write(jsontext.dumps(document) + "\n")
        else:
            sys.stdout.write(("\033[H\033[2J" if "--watch" in chosen else "") + table(document))
        sys.stdout.flush()
        if "--watch" not in chosen:
            return 0
        time.sleep(WATCH_S)


def report(budget: Budget, desk: Desk, book: Book) -> dict[str, Any]:
    """The published form of status. Units are busy cores, memory is MiB, times are seconds."""
    now, sample, rules = desk.now(), desk.sample(), desk.policy
    snapshot = book.snapshot
    free_now = {
        cost.name: free(snapshot, sample, rules, now, cost, "contain-status") for cost in rules.classes
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
            "memoryMib": budget.machine.memory_mib,
        },
        "sample": {
            name: value
            if isinstance(value, (int, float))
            else (None if value is None else f"unknown: {value.why}")
            for name, value in (
                ("busy", sample.busy),
                ("load1", sample.load1),
                ("psiCpu", sample.psi_cpu),
                ("psiIo", sample.psi_io),
                ("psiMemory", sample.psi_memory),
                ("availableMib", sample.available_mib),
            )
        },
        "pressed": list(decide(snapshot, sample, rules, now).pressed),
        "free": free_now,
        "permits": [
            {**_permit(row, now), "degraded": list(degraded(row.permit, snapshot, now))}
            for row in book.permits.values()
        ],
        "waiting": [_ticket(row, now) for row in book.tickets.values()],
        "holds": [
            {
                "id": one.id,
                "owner": one.owner,
                "reason": one.reason,
                "until": one.until_s,
                "covers": list(one.covers),
            }
            for one in snapshot.holds
        ],
        "pools": {
            name: {"reason": one.reason, "until": one.until_s} for name, one in snapshot.health.items()
        },
    }


def _permit(row: PermitRow, now: Now) -> dict[str, Any]:
    permit = row.permit
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
        "how": permit.how,
        "ageS": round(now.awake_s - permit.granted_at_s, 1),
        "ownerPid": row.owner.pid,
        "job": row.job_id,
    }


def _ticket(row: TicketRow, now: Now) -> dict[str, Any]:
    ticket = row.ticket
    return {
        "id": ticket.id,
        "session": ticket.session,
        "holder": ticket.holder,
        "class": ticket.class_name,
        "lane": ticket.lane,
        "min": ticket.min_units,
        "want": ticket.want_units,
        "memoryMib": ticket.mem_mib,
        "dormant": ticket.dormant,
        "waitedS": round(now.awake_s - row.since_s, 1),
        "ownerPid": row.owner.pid,
    }


def table(document: Mapping[str, Any]) -> str:
    """For a person's eyes."""
    found = document
    rules, sample = found["policy"], found["sample"]
    first = (
        f"limit {found['limit']} of {rules['base']} units ({rules['name']});"
        f" busy {_number(sample['busy'])} cores, load {_number(sample['load1'])},"
        f" {_number(sample['availableMib'])} MiB available"
    )
    lines = [first]
    if found["pressed"]:
        lines.append(f"pressed: {', '.join(found['pressed'])}")
    lines += [f"hold {one['id']}: {one['reason']} ({one['owner']})" for one in found["holds"]]
    lines += [f"pool {name}: {one['reason']}" for name, one in found["pools"].items()]
    shown = ", ".join(f"{name} {'any' if count is None else count}" for name, count in found["free"].items())
    lines.append(f"free now: {shown}")
    head = f"{'':8} {'class':12} {'lane':7} {'units':>5} {'MiB':>6} {'for':>8}  {'pid':>7}  session"
    for title, rows in (("permits", found["permits"]), ("waiting", found["waiting"])):
        lines += ["", f"{title}: {len(rows)}"]
        if rows:
            lines.append(head)
        for one in rows:
            units = one["units"] if "units" in one else f"{one['min']}..{one['want']}"
            age_s = one.get("ageS", one.get("waitedS", 0))
            state = one.get("state", "dormant" if one.get("dormant") else "")
            lines.append(
                f"{state:8} {one['class']:12.12} {one['lane']:7} {units!s:>5} {one['memoryMib']:>6}"
                f" {age_s:>7.0f}s  {one['ownerPid']:>7}  {one['session'][:40]}"
                + (f"  degraded: {', '.join(one['degraded'])}" if one.get("degraded") else "")
            )
    return "\n".join(lines) + "\n"


def _number(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, (int, float)) else str(value)
