"""A launch between the request and the proof: supervisor and anchor set themselves up meanwhile."""

from __future__ import annotations

import os

from contain.darwin.containment import AnchoredContainment
from contain.darwin.supervisor import proof_of
from contain.errors import SetupFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from contain.darwin.libproc import Libproc
    from contain.darwin.supervisor import Supervisor
    from receipts import Anchor, LimitsInForce


class SupervisedLaunch:
    """An anchor that a supervisor was asked for. See contain.backend.Launch."""

    def __init__(
        self,
        supervisor: Supervisor,
        libproc: Libproc,
        limits: LimitsInForce | None,
        another: Callable[[], Supervisor],
    ) -> None:
        """Owns the supervisor until ``ready`` hands it on."""
        self._supervisor = supervisor
        self._libproc = libproc
        self._limits = limits
        self._another = another
        self._open = True

    def ready(self) -> AnchoredContainment:
        """Takes the supervisor's answer: the proof, or the step that failed."""
        try:
            proof = self._proof(self._supervisor.answer())
        except BaseException:
            self.close()
            raise
        self._open = False
        return AnchoredContainment(self._supervisor, proof, self._libproc, self._limits, self._another)

    @staticmethod
    def _proof(message: Mapping[str, object]) -> Anchor:
        if message["event"] == "ready":
            return proof_of(message)
        if message["event"] == "failed":
            raise SetupFailed(
                f"The supervisor failed ({message['why']}).",
                step="supervisor",
                advice="Report this: it is a bug.",
            )
        number = int(str(message["errno"]))
        raise SetupFailed(
            f"The anchor could not be started ({os.strerror(number) if number else 'it ended'}).",
            step=str(message["step"]),
            detail=str(number),
            advice="Nothing was started; look whether contain-anchor is installed and may be executed.",
        )

    def close(self) -> None:
        """Hangs up: the supervisor ends what it has started."""
        if self._open:
            self._open = False
            self._supervisor.close()
