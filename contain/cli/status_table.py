"""``contain status`` for a person's eyes: the published form as a table that fits the terminal."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

SHORT_ID = 8
"""Of an id, shown and taken by the verbs: eight hex digits name one request of a few hundred."""
MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400
LONG_FROM = 2
"""From so many of the larger unit on the smaller one says nothing more."""


def columns() -> int:
    """Of the terminal on standard output."""
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def reader_left() -> int:
    """Whoever read has gone (``| head``): nothing more is written, also not by Python at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def table(found: Mapping[str, Any], width: int) -> str:
    """Lines of at most ``width``, but for ids and numbers that need more."""
    rules, sample = found["policy"], found["sample"]
    first = (
        f"limit {found['limit']} of {rules['base']} units ({rules['name']});"
        f" busy {_number(sample['busy'])} cores, load {_number(sample['load1'])},"
        f" {_number(sample['availableMib'], digits=0)} MiB available"
    )
    lines = [first]
    if found["pressed"]:
        lines.append(f"pressed: {', '.join(found['pressed'])}")
    lines += [
        f"hold {one['id']}: no new grants for {', '.join(one['covers']) or 'anybody'}, another"
        f" {span(one['leftS'])}: {plain(one['reason'])} ({one['owner']})"
        for one in found["holds"]
    ]
    lines += [f"pool {name}: {plain(one['reason'])}" for name, one in found["pools"].items()]
    shown = ", ".join(f"{name} {'any' if count is None else count}" for name, count in found["free"].items())
    lines += [f"free now: {shown}", "", f"permits: {len(found['permits'])}"]
    if found["permits"]:
        lines.append(_row("id", "state", "class", "lane", "units", "MiB", "for", "left", "pid", "who"))
    lines += [_row(*_permit(one)) for one in found["permits"]]
    lines += ["", f"waiting: {len(found['waiting'])}"]
    if found["waiting"]:
        lines.append(_row("id", "place", "class", "lane", "units", "MiB", "for", "in", "pid", "who"))
    for one in found["waiting"]:
        lines.append(_row(*_ticket(one)))
        lines += [f"{'':9}{text}" for text in _why(one)]
    return "\n".join(line if len(line) <= width else line[: width - 1] + "…" for line in lines) + "\n"


def _row(*cells: str) -> str:
    name, state, kind, lane, units, mib, age, left, pid, who = cells
    return f"{name:8} {state:8} {kind:12.12} {lane:7} {units:>5} {mib:>6} {age:>6} {left:>6} {pid:>7}  {who}".rstrip()


def _permit(one: Mapping[str, Any]) -> tuple[str, ...]:
    left_s = one["expectedS"] - one["ageS"]
    units = str(one["units"]) if one["units"] == one["target"] else f"{one['units']}->{one['target']}"
    return (
        one["id"][:SHORT_ID],
        one["state"],
        one["class"],
        one["lane"],
        units,
        str(one["memoryMib"]),
        span(one["ageS"]),
        f"~{span(left_s)}" if left_s > 0 else "over",
        str(one["ownerPid"]),
        _who(one) + (f", degraded: {plain(', '.join(one['degraded']))}" if one["degraded"] else ""),
    )


def _ticket(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        one["id"][:SHORT_ID],
        "dormant" if one["dormant"] else str(one["place"]),
        one["class"],
        one["lane"],
        f"{one['min']}..{one['want']}" if one["min"] != one["want"] else str(one["min"]),
        str(one["memoryMib"]),
        span(one["waitedS"]),
        "?" if one["etaS"] is None else f"~{span(one['etaS'])}",
        str(one["ownerPid"]),
        _who(one),
    )


def _why(one: Mapping[str, Any]) -> list[str]:
    reasons = one["reasons"] or []
    more = f" (and {len(reasons) - 1} more: contain why {one['id'][:SHORT_ID]})" if len(reasons) > 1 else ""
    return [plain(reason["line"]) + more for reason in reasons[:1]]


def _who(one: Mapping[str, Any]) -> str:
    return plain(f"{one['holder']} ({one['session']})" if one["holder"] else one["session"])


def plain(text: str) -> str:
    """A label is anybody's text: what would move the cursor is not written to a terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


def span(seconds: float) -> str:
    """``59s``, ``12m``, ``3h``, ``2d``: two digits say enough."""
    if seconds < LONG_FROM * MINUTE_S:
        return f"{seconds:.0f}s"
    for unit_s, letter, next_s in ((MINUTE_S, "m", HOUR_S), (HOUR_S, "h", DAY_S)):
        if seconds < LONG_FROM * next_s:
            return f"{seconds / unit_s:.0f}{letter}"
    return f"{seconds / DAY_S:.0f}d"


def _number(value: object, digits: int = 1) -> str:
    if isinstance(value, (int, float)):
        return f"{value:,.{digits}f}"
    return "no sensor" if value is None else str(value)
