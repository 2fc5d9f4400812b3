"""All of it in its order: the trial first, since what it meets is what counts."""

from __future__ import annotations

import shutil
import sys

from contain.doctor import places, trial
from contain.doctor.check import UNKNOWN, Check
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from contain.backend import Backend
    from contain.doctor.trial import Prediction

    Checks = tuple[Check, ...]

VERSION = 1
"""Of the published form, docs/DOCTOR.md and contain/schemas/doctor.json: a field that goes or changes raises it."""

PEERS = (
    *("bwrap", "nsjail", "firejail", "systemd-run"),
    *("crun", "runc", "podman", "docker"),
    *("parallel", "sem", "nq", "tsp"),
)


class Report(Record):
    """What doctor found."""

    prediction: Prediction
    checks: tuple[Check, ...]
    tiers: dict[str, str]
    surroundings: dict[str, object]

    @property
    def exit_code(self) -> int:
        """Of the first that fails: the trial, or whatever else a job of ``contain exec`` needs."""
        return self.prediction.exit_code or next((one.exit_code for one in self.checks if one.exit_code), 0)

    def document(self) -> dict[str, object]:
        """The published form."""
        from contain import version

        return {
            "version": VERSION,
            "contain": version(),
            "python": ".".join(map(str, sys.version_info[:3])),
            "prediction": self.prediction.document(),
            "tiers": self.tiers,
            "surroundings": self.surroundings,
            "checks": [one.document() for one in self.checks],
            "peers": [name for name in PEERS if shutil.which(name)],
        }


def examine(backend: Backend, receipts: str | None) -> Report:
    """Tries a job, and looks at everything that jobs need. What it finds is in the report, and is never raised."""
    prediction, checks = trial.trial(backend, receipts)
    checks += _seen("receipts", lambda: places.receipts(backend, receipts))
    checks += _seen("registry", lambda: (places.registry(backend),))
    checks += _seen("room", lambda: places.room(backend, receipts))
    return Report(
        prediction=prediction,
        checks=checks,
        tiers=trial.tiers(backend, prediction),
        surroundings=backend.surroundings(),
    )


def _seen(name: str, look: Callable[[], Checks]) -> Checks:
    """What the system refuses to show is unknown, and the rest is looked at all the same."""
    try:
        return look()
    except OSError as error:
        what = f"it cannot be looked at ({error.strerror}: {error.filename})"
        return (Check(name=name, state=UNKNOWN, what=what),)
