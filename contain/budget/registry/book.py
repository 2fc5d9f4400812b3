"""What one transaction reads and writes. Rows are the truth; the arbiter's snapshot is made of them alone."""

from __future__ import annotations

import time

from contain.backend import Birth
from contain.budget.arbiter import Health, Hold, LimitState, Permit, Snapshot, Ticket
from contain.budget.registry.rows import PermitRow, TicketRow, dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from sqlite3 import Connection

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value REAL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS ticket (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, asked TEXT NOT NULL, owner TEXT NOT NULL,
    wake TEXT NOT NULL, since_s REAL NOT NULL, until_s REAL, returned INTEGER NOT NULL,
    overtaken INTEGER NOT NULL DEFAULT 0, dormant INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS permit (
    id TEXT PRIMARY KEY, seq INTEGER NOT NULL, permit TEXT NOT NULL, asked TEXT NOT NULL, owner TEXT NOT NULL,
    wake TEXT NOT NULL, since_s REAL NOT NULL, state_s REAL NOT NULL, until_s REAL, returned INTEGER NOT NULL,
    overtaken INTEGER NOT NULL DEFAULT 0, proof TEXT, receipts TEXT, job_id TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS service (session TEXT PRIMARY KEY, seconds REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS past (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, wall_s REAL NOT NULL, what TEXT NOT NULL,
    id TEXT NOT NULL, session TEXT NOT NULL, class TEXT NOT NULL, why TEXT NOT NULL);
"""

VERSION = 1
PAST = 2000
"""So many transitions are kept: a freed slot that nobody can explain is a fault."""


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
        self, connection: Connection, holds: tuple[Hold, ...], health: Mapping[str, Health], base: int
    ) -> None:
        """Reads all rows. ``holds`` and ``health`` are the operator's, read before the lock; ``base``: policy's."""
        self._sql = connection
        self.tickets: dict[str, TicketRow] = {}
        self.permits: dict[str, PermitRow] = {}
        overtaken: dict[int, int] = {}
        for row in connection.execute(
            "SELECT id, seq, asked, owner, wake, since_s, until_s, returned, overtaken, dormant"
            " FROM ticket ORDER BY seq"
        ):
            ticket = loads(Ticket, row[2])
            if ticket.seq != row[1] or ticket.dormant != bool(row[9]):
                ticket = ticket.replace(seq=row[1], dormant=bool(row[9]))
            self.tickets[row[0]] = TicketRow(
                ticket=ticket,
                owner=loads(Birth, row[3]),
                wake=row[4],
                since_s=row[5],
                until_s=row[6],
                returned=row[7],
            )
            if row[8]:
                overtaken[row[1]] = row[8]
        for row in connection.execute(
            "SELECT id, permit, asked, owner, wake, since_s, state_s, until_s, returned, proof, receipts, job_id"
            " FROM permit ORDER BY seq"
        ):
            self.permits[row[0]] = PermitRow(
                permit=loads(Permit, row[1]),
                ticket=loads(Ticket, row[2]),
                owner=loads(Birth, row[3]),
                wake=row[4],
                since_s=row[5],
                state_s=row[6],
                until_s=row[7],
                returned=row[8],
                proof=row[9],
                receipts=row[10],
                job_id=row[11],
            )
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
            tickets=tuple(row.ticket for row in self.tickets.values()),
            permits=tuple(row.permit for row in self.permits.values()),
            overtaken=overtaken,
            service=dict(connection.execute("SELECT session, seconds FROM service")),
            holds=holds,
            health=health,
        )

    def add(self, row: TicketRow) -> TicketRow:
        """A new ticket, at the end of the line. Returns it with its place."""
        asked = row.ticket.replace(seq=0, dormant=False)
        cursor = self._sql.execute(
            "INSERT INTO ticket (id, asked, owner, wake, since_s, until_s, returned) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (asked.id, dumps(asked), dumps(row.owner), row.wake, row.since_s, row.until_s, row.returned),
        )
        placed = row.replace(ticket=asked.replace(seq=cursor.lastrowid))
        self.tickets[asked.id] = placed
        return placed

    def put_back(self, row: TicketRow, overtaken: int = 0) -> None:
        """A ticket at a place that it had before."""
        asked = row.ticket.replace(seq=0, dormant=False)
        self._sql.execute(
            "INSERT OR REPLACE INTO ticket"
            " (seq, id, asked, owner, wake, since_s, until_s, returned, overtaken, dormant)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.ticket.seq,
                asked.id,
                dumps(asked),
                dumps(row.owner),
                row.wake,
                row.since_s,
                row.until_s,
                row.returned,
                overtaken,
                int(row.ticket.dormant),
            ),
        )
        self.tickets[asked.id] = row

    def put(self, row: PermitRow) -> None:
        """A permit as it stands now."""
        permit = row.permit
        self._sql.execute(
            "INSERT OR REPLACE INTO permit (id, seq, permit, asked, owner, wake, since_s, state_s, until_s, returned,"
            " proof, receipts, job_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                permit.id,
                permit.seq,
                dumps(permit),
                dumps(row.ticket),
                dumps(row.owner),
                row.wake,
                row.since_s,
                row.state_s,
                row.until_s,
                row.returned,
                row.proof,
                row.receipts,
                row.job_id,
            ),
        )
        self.permits[permit.id] = row

    def restate(self, permit_id: str, state: str, now_s: float) -> None:
        """A permit comes into another state."""
        permits = tuple(
            one.replace(state=state) if one.id == permit_id else one for one in self.snapshot.permits
        )
        self.settle(self.snapshot.replace(permits=permits), now_s)

    def settle(self, after: Snapshot, now_s: float) -> None:
        """Writes what the arbiter made of the snapshot: tickets that left, permits that came or changed, accounts."""
        before = self.snapshot
        waiting = {ticket.id for ticket in after.tickets}
        holding = {permit.id: permit for permit in after.permits}
        for ticket_id in [one for one in self.tickets if one not in waiting]:
            row = self.tickets.pop(ticket_id)
            self._sql.execute("DELETE FROM ticket WHERE id = ?", (ticket_id,))
            if ticket_id in holding:
                self.put(
                    PermitRow(
                        permit=holding[ticket_id],
                        ticket=row.ticket,
                        owner=row.owner,
                        wake=row.wake,
                        since_s=row.since_s,
                        state_s=now_s,
                        until_s=row.until_s,
                        returned=row.returned,
                    )
                )
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
        self._sql.execute("DELETE FROM past WHERE number <= ?", ((cursor.lastrowid or 0) - PAST,))

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
