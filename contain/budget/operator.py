"""What an operator has said: holds, and pools that are ill. A small file of its own, since it must survive a reboot.

Always with an owner and a reason, and a hold always with an expiry, by the clock on the wall: one without blocked a
machine for 50 minutes once, and nobody knew whose it was.
"""

from __future__ import annotations

import fcntl
import os
import time

from contain.budget.arbiter import Health, Hold
from contain.errors import OperatorFileDamaged
from receipts import Record, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    T = TypeVar("T")

FILE = "operator.json"
LOCK = "operator.lock"
LONGEST_HOLD_S = 24 * 3600.0
LARGEST_BYTES = 1 << 20


class Said(Record):
    """All that stands now; what has expired is left out."""

    holds: tuple[Hold, ...] = ()
    health: Mapping[str, Health] = {}


class Operator:
    """The file in one account's root. Read without a lock (it is replaced whole), changed under one."""

    def __init__(self, root: str) -> None:
        """``root`` is private; the file need not exist."""
        self._root = root

    def read(self) -> Said:
        """What stands now. Raises OperatorFileDamaged."""
        path = os.path.join(self._root, FILE)
        try:
            with open(path, "rb") as file:
                data = file.read(LARGEST_BYTES)
        except FileNotFoundError:
            return Said()
        except OSError as error:
            raise self._damaged(error) from None
        try:
            return _decode(data, time.time())
        except (ValueError, TypeError, KeyError, UnicodeDecodeError) as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> OperatorFileDamaged:
        path = os.path.join(self._root, FILE)
        return OperatorFileDamaged(
            f"{path} cannot be read ({error}).", advice="Mend it, or move it away: then no hold stands."
        )

    def change(self, step: Callable[[Said], Said]) -> Said:
        """Replaces the file durably. Raises OSError and OperatorFileDamaged."""

        def replace() -> Said:
            said = step(self.read())
            self.write(FILE, _encode(said))
            return said

        return self.alone(replace)

    def alone(self, step: Callable[[], T]) -> T:
        """Calls ``step`` while no other operator changes a file of the root."""
        lock = os.open(os.path.join(self._root, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return step()
        finally:
            os.close(lock)

    def write(self, name: str, data: bytes) -> None:
        """Replaces a file of the root whole and durably; to be called from `alone`."""
        path = os.path.join(self._root, name)
        fd = os.open(f"{path}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(f"{path}.tmp", path)
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def hold(self, hold: Hold) -> Said:
        """One more pause of new grants."""
        return self.change(lambda said: said.replace(holds=(*said.holds, hold)))

    def lift(self, hold_id: str) -> bool:
        """Ends a hold; False when there is none of this id."""
        found = any(one.id == hold_id for one in self.read().holds)
        kept = self.change(
            lambda said: said.replace(holds=tuple(one for one in said.holds if one.id != hold_id))
        )
        return found and all(one.id != hold_id for one in kept.holds)

    def mark(self, pool: str, health: Health | None) -> Said:
        """Says that a pool is ill, or (None) well again."""

        def step(said: Said) -> Said:
            others = {name: one for name, one in said.health.items() if name != pool}
            return said.replace(health=others if health is None else {**others, pool: health})

        return self.change(step)


def _encode(said: Said) -> bytes:
    document = {
        "version": 1,
        "holds": [
            {
                "id": hold.id,
                "owner": hold.owner,
                "reason": hold.reason,
                "until": hold.until_s,
                "covers": list(hold.covers),
            }
            for hold in said.holds
        ],
        "pools": {name: {"reason": one.reason, "until": one.until_s} for name, one in said.health.items()},
    }
    return f"{jsontext.dumps(document)}\n".encode("ascii")


def _decode(data: bytes, wall_s: float) -> Said:
    document = jsontext.loads(data.decode("ascii"))
    if not isinstance(document, dict) or document.get("version") != 1:
        raise ValueError("not an operator file of this version")
    holds = tuple(
        Hold(
            id=str(one["id"]),
            owner=str(one["owner"]),
            reason=str(one["reason"]),
            until_s=float(one["until"]),
            covers=tuple(str(name) for name in one["covers"]),
        )
        for one in document["holds"]
    )
    health = {
        str(name): Health(
            reason=str(one["reason"]), until_s=None if one["until"] is None else float(one["until"])
        )
        for name, one in document["pools"].items()
    }
    return Said(
        holds=tuple(hold for hold in holds if hold.until_s > wall_s),
        health={name: one for name, one in health.items() if one.until_s is None or one.until_s > wall_s},
    )
