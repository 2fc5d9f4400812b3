"""What every bound permit is and where its receipt will be: one line each, in a small file beside the registry.

A line is written before a binding, or a change of its units, counts: inside the registry's lock, and without a sync,
since another boot voids it. The registry never reads it. Where that cannot be read, `contain repair` finds here how
many units a living tree has, who owns it, and in which directories receipts are; and that there must be a registry at
all. Torn lines are passed over, and counted.
"""

from __future__ import annotations

import os

from contain.backend import Birth
from contain.budget.arbiter import Permit, Ticket
from contain.budget.registry.rows import PermitRow, dumps, loads
from contain.errors import RegistryDamaged
from receipts import Record, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FILE = "bindings"
FULL_BYTES = 1 << 18
"""From here on the next line is written into a new file, with the lines that still count."""


class Bindings(Record):
    """What the file says: the last line of each permit, every directory of receipts, lines that make no sense."""

    rows: Mapping[str, PermitRow]
    directories: tuple[str, ...]
    torn: int = 0


def exist(folder: str) -> bool:
    """Whether anything was ever bound here: then a registry that is missing is no new one."""
    return os.path.exists(os.path.join(folder, FILE))


def begin(folder: str) -> None:
    """Makes the file, so that from now on a missing registry is told from a new one."""
    os.close(os.open(os.path.join(folder, FILE), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def note(folder: str, row: PermitRow, others: Iterable[PermitRow]) -> None:
    """One more binding; ``others`` are bound too. Called in the registry's lock. Raises RegistryDamaged."""
    path = os.path.join(folder, FILE)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            full = os.fstat(fd).st_size >= FULL_BYTES
            if not full:
                _append(fd, _line(row))
        finally:
            os.close(fd)
        if full:
            _anew(path, read(folder).directories, [*others, row])
    except OSError as error:
        raise RegistryDamaged(
            f"{path} cannot be written ({error.strerror}), so nothing can be bound.",
            detail="unusable",
            advice="Free space there; contain exec --no-budget runs without the budget.",
        ) from None


def read(folder: str) -> Bindings:
    """The file, as far as it can be understood. Raises OSError where it is there and cannot be read at all."""
    rows: dict[str, PermitRow] = {}
    directories: dict[str, None] = {}
    torn = 0
    try:
        with open(os.path.join(folder, FILE), "rb") as file:
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        lines = []
    for text in lines:
        if not text:
            continue
        try:
            found = jsontext.loads(text.decode("ascii"))
            directories[str(found["receipts"])] = None
            if "permit" in found:
                row = _row(found)
                rows[row.permit.id] = row
        except (ValueError, TypeError, KeyError, AttributeError):
            torn += 1
    return Bindings(rows=rows, directories=tuple(directories), torn=torn)


def _append(fd: int, line: bytes) -> None:
    if os.write(fd, line) != len(line):
        raise OSError(28, "No space left on device")


def _anew(path: str, directories: Iterable[str], rows: Iterable[PermitRow]) -> None:
    """Replaces the file: whoever reads it sees the old or the new one."""
    lines = [f"\n{jsontext.dumps({'receipts': one})}\n".encode("ascii") for one in directories]
    lines += [_line(row) for row in rows]
    fd = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _append(fd, b"".join(lines))
    finally:
        os.close(fd)
    os.rename(f"{path}.new", path)


def _line(row: PermitRow) -> bytes:
    """With a line end before it too: a torn line must not swallow the next."""
    document = {
        "permit": dumps(row.permit),
        "asked": dumps(row.ticket),
        "owner": dumps(row.owner),
        "wake": row.wake,
        "since": row.since_s,
        "proof": row.proof,
        "receipts": row.receipts,
        "job": row.job_id,
    }
    return f"\n{jsontext.dumps(document)}\n".encode("ascii")


def _row(found: Mapping[str, object]) -> PermitRow:
    since_s = float(found["since"])  # type: ignore[arg-type]
    return PermitRow(
        permit=loads(Permit, str(found["permit"])),
        ticket=loads(Ticket, str(found["asked"])),
        owner=loads(Birth, str(found["owner"])),
        wake=str(found["wake"]),
        since_s=since_s,
        state_s=since_s,
        proof=str(found["proof"]),
        receipts=str(found["receipts"]),
        job_id=str(found["job"]),
    )
