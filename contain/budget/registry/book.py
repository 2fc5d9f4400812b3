"""What one transaction reads and writes. Rows are the truth; the arbiter's snapshot is made of them alone."""

from __future__ import annotations

import time

from contain.budget.arbiter import Health, Hold, LimitState, Snapshot
from contain.budget.registry.rows import (
    PERMIT_COLUMNS,
    TICKET_COLUMNS,
    TICKET_KEY,
    PermitRow,
    TicketRow,
    marks,
    permit_columns,
    permit_row,
    ticket_columns,
    ticket_row,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from sqlite3 import Connection
    from typing import Any

    from contain.budget.arbiter import Permit

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ticket (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, dormant INTEGER NOT NULL, since_s REAL NOT NULL,
    returned INTEGER NOT NULL, overtaken REAL NOT NULL DEFAULT 0, session TEXT NOT NULL, holder TEXT NOT NULL,
    asked TEXT NOT NULL, owner TEXT NOT NULL, wake TEXT NOT NULL, until_s REAL);
CREATE TABLE IF NOT EXISTS permit (
    id TEXT PRIMARY KEY, seq INTEGER NOT NULL, permit TEXT NOT NULL, asked TEXT NOT NULL, owner TEXT NOT NULL,
    wake TEXT NOT NULL, since_s REAL NOT NULL, state_s REAL NOT NULL, until_s REAL, returned INTEGER NOT NULL,
    overtaken INTEGER NOT NULL DEFAULT 0, proof TEXT, receipts TEXT, job_id TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS service (session TEXT PRIMARY KEY, seconds REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS past (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, wall_s REAL NOT NULL, what TEXT NOT NULL,
    id TEXT NOT NULL, session TEXT NOT NULL, class TEXT NOT NULL, why TEXT NOT NULL);
"""

KEYS = f"SELECT {TICKET_KEY} FROM ticket ORDER BY seq"  # noqa: S608 - of our own constants, as those below
TICKETS_FROM = f"SELECT {TICKET_COLUMNS} FROM ticket WHERE seq >= ?"  # noqa: S608
PERMITS = f"SELECT {PERMIT_COLUMNS} FROM permit ORDER BY seq"  # noqa: S608
ONE_PERMIT = f"SELECT {PERMIT_COLUMNS} FROM permit WHERE id = ?"  # noqa: S608
NEW_TICKET = f"INSERT INTO ticket ({TICKET_COLUMNS}) VALUES ({marks(TICKET_COLUMNS)})"  # noqa: S608
OLD_TICKET = f"INSERT OR REPLACE INTO ticket ({TICKET_COLUMNS}) VALUES ({marks(TICKET_COLUMNS)})"  # noqa: S608
PUT_PERMIT = f"INSERT OR REPLACE INTO permit ({PERMIT_COLUMNS}) VALUES ({marks(PERMIT_COLUMNS)})"  # noqa: S608
KEY_LENGTH = len(TICKET_KEY.split(","))

VERSION = 2
PAST = 2000
"""So many transitions are kept, and a few more: a freed slot that nobody can explain is a fault."""
PRUNED_EVERY = 50


def make_tables(connection: Connection) -> None:
    """All tables of an empty file, or of one whose maker was killed half-way.

    Places begin at the microseconds of this boot: whoever waited in a registry that was replaced takes his own place
    again, and it must be nobody else's.
    """
    first = int(time.monotonic() * 1e6)
    connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA}")
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'ticket'")
    connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('ticket', ?)", (first,))
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


class Book:
    """One transaction's view. Everything is written at once, and committed or forgotten with the transaction."""

    def __init__(
        self,
        connection: Connection,
        known: dict[tuple[Any, ...], TicketRow],
        holds: tuple[Hold, ...],
        health: Mapping[str, Health],
        base: int,
    ) -> None:
        """Reads what there is. ``known``: tickets of the last book, by their key, which is kept up to date.

        ``holds`` and ``health`` are the operator's, read before the lock; ``base``: policy's.
        """
        self._sql = connection
        self.tickets = _tickets(connection, known)
        self.permits: dict[str, PermitRow] = {row[0]: permit_row(row) for row in connection.execute(PERMITS)}
        self.forgotten = False
        """Set to let the transaction end as if nothing had been written."""
        meta = dict(connection.execute("SELECT name, value FROM meta"))
        limit = LimitState(limit=base)
        if "limit" in meta:
            limit = LimitState(
                limit=int(meta["limit"]),
                changed_at_s=meta.get("changed_at_s", float("-inf")),
                pressed_at_s=meta.get("pressed_at_s", float("-inf")),
            )
        self.snapshot = Snapshot(
            limit=limit,
            tickets=tuple([row.ticket for row in self.tickets.values()]),
            permits=tuple([row.permit for row in self.permits.values()]),
            overtaken=dict(connection.execute("SELECT seq, overtaken FROM ticket WHERE overtaken > 0")),
            service=dict(connection.execute("SELECT session, seconds FROM service")),
            holds=holds,
            health=health,
        )

    def add(self, row: TicketRow) -> TicketRow:
        """A new ticket, at the end of the line. Returns it with its place."""
        cursor = self._sql.execute(NEW_TICKET, ticket_columns(row, None, dormant=False))
        placed = row.replace(ticket=row.ticket.replace(seq=cursor.lastrowid, dormant=False))
        self.tickets[placed.ticket.id] = placed
        return placed

    def put_back(self, row: TicketRow) -> None:
        """A ticket at a place that it had before."""
        self._sql.execute(OLD_TICKET, ticket_columns(row, row.ticket.seq, dormant=row.ticket.dormant))
        self.tickets[row.ticket.id] = row

    def put(self, row: PermitRow) -> None:
        """A permit as it stands now."""
        self._sql.execute(PUT_PERMIT, permit_columns(row))
        self.permits[row.permit.id] = row

    def restate(self, permit_id: str, state: str, now_s: float) -> None:
        """A permit comes into another state."""
        permits = tuple(
            one.replace(state=state) if one.id == permit_id else one for one in self.snapshot.permits
        )
        self.settle(self.snapshot.replace(permits=permits), now_s)

    def settle(self, after: Snapshot, now_s: float) -> None:
        """Writes what the arbiter made of the snapshot: tickets that left, permits that came or changed, accounts."""
        before = self.snapshot
        holding = {permit.id: permit for permit in after.permits}
        if after.tickets is not before.tickets:
            waiting = {ticket.id for ticket in after.tickets}
            for ticket_id in [one for one in self.tickets if one not in waiting]:
                self._leave(ticket_id, holding.get(ticket_id), now_s)
        for permit_id in [one for one in self.permits if one not in holding]:
            self._sql.execute("DELETE FROM permit WHERE id = ?", (permit_id,))
            del self.permits[permit_id]
        for permit_id, permit in holding.items():
            row_now = self.permits[permit_id]
            if row_now.permit != permit:
                state_s = row_now.state_s if row_now.permit.state == permit.state else now_s
                self.put(row_now.replace(permit=permit, state_s=state_s))
        self._accounts(before, after)
        self.snapshot = after

    def _leave(self, ticket_id: str, permit: Permit | None, now_s: float) -> None:
        """A ticket goes: it was granted as ``permit``, or is gone."""
        row = self.tickets.pop(ticket_id)
        self._sql.execute("DELETE FROM ticket WHERE id = ?", (ticket_id,))
        if permit is not None:
            self.put(
                PermitRow(
                    permit=permit,
                    ticket=row.ticket,
                    owner=row.owner,
                    wake=row.wake,
                    since_s=row.since_s,
                    state_s=now_s,
                    until_s=row.until_s,
                    returned=row.returned,
                )
            )

    def _accounts(self, before: Snapshot, after: Snapshot) -> None:
        if after.overtaken != before.overtaken:
            self._sql.executemany(
                "UPDATE ticket SET overtaken = ? WHERE seq = ?",
                [
                    (units, seq)
                    for seq, units in after.overtaken.items()
                    if before.overtaken.get(seq) != units
                ],
            )
        if after.service != before.service:
            self._sql.executemany(
                "INSERT OR REPLACE INTO service (session, seconds) VALUES (?, ?)",
                [item for item in after.service.items() if before.service.get(item[0]) != item[1]],
            )
        if after.limit != before.limit:
            self._sql.executemany(
                "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)",
                [
                    ("limit", after.limit.limit),
                    ("changed_at_s", after.limit.changed_at_s),
                    ("pressed_at_s", after.limit.pressed_at_s),
                ],
            )

    def note(self, what: str, row: TicketRow | PermitRow, at_s: float, wall_s: float, why: str = "") -> None:
        """One line of the past: what became of a request, and why."""
        asked = row.ticket
        cursor = self._sql.execute(
            "INSERT INTO past (at_s, wall_s, what, id, session, class, why) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (at_s, wall_s, what, asked.id, asked.session, asked.class_name, why),
        )
        number = cursor.lastrowid or 0
        if number % PRUNED_EVERY == 0:
            self._sql.execute("DELETE FROM past WHERE number <= ?", (number - PAST,))

    def past(self, count: int = 100) -> list[tuple[float, str, str, str, str, str]]:
        """The last transitions, newest first: (wall time, what, id, session, class, why)."""
        return list(
            self._sql.execute(
                "SELECT wall_s, what, id, session, class, why FROM past ORDER BY number DESC LIMIT ?",
                (count,),
            )
        )

    def became(self, request_id: str) -> tuple[str, str]:
        """(what, why) of the last transition of one request; two empty strings where none is on record."""
        found = self._sql.execute(
            "SELECT what, why FROM past WHERE id = ? ORDER BY number DESC LIMIT 1", (request_id,)
        ).fetchone()
        return ("", "") if found is None else (found[0], found[1])


def _tickets(connection: Connection, known: dict[tuple[Any, ...], TicketRow]) -> dict[str, TicketRow]:
    """All, in the order of their seq. A thousand may wait: only those that are new to us are read in full."""
    keys = connection.execute(KEYS).fetchall()
    unknown = [key for key in keys if key not in known]
    if unknown:
        _, least_seq, *_ = unknown[0]
        read = connection.execute(TICKETS_FROM, (least_seq,))
        known.update({columns[:KEY_LENGTH]: ticket_row(columns) for columns in read})
    if len(known) > len(keys):
        kept = {key: known[key] for key in keys}
        known.clear()
        known.update(kept)
    return {key[0]: known[key] for key in keys}


def permit_in(connection: Connection, permit_id: str) -> PermitRow | None:
    """One permit alone."""
    found = connection.execute(ONE_PERMIT, (permit_id,)).fetchone()
    return None if found is None else permit_row(found)
