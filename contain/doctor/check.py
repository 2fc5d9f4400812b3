"""One thing that was looked at."""

from __future__ import annotations

from receipts import Record

OK, WARNING, FAILED, UNKNOWN = "ok", "warning", "failed", "unknown"


class Check(Record):
    """``state`` is ok; warning: works, and something is worth a look; failed: a job would be refused; or unknown."""

    name: str
    state: str
    what: str
    """One sentence for a person."""
    fix: str | None = None
    """The narrowest thing to do about it, as it would be typed where it is a command."""
    exit_code: int = 0
    """Of the verb that fails by this."""

    def document(self) -> dict[str, object]:
        """As ``--json`` has it."""
        found: dict[str, object] = {"name": self.name, "state": self.state, "what": self.what}
        return found if self.fix is None else {**found, "fix": self.fix}
