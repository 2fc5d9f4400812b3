"""An account whose commands run on a fake XNU. Needs root: its home is a mount that ends with the test."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from tests.budget.account import ONE_UNIT, Account
from tests.darwin.jobs import program
from tests.session import ROOT

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.darwin.world import World


class DarwinAccount(Account):
    """Everything that was started is ended, by its id, when ``stack`` is closed."""

    def __init__(self, folder: Path, stack: ExitStack, world: World, policy: str = ONE_UNIT) -> None:
        """``world`` is to live longer than the account."""
        super().__init__(folder, stack, policy)
        self.enter = (*self.enter, f"PYTHONPATH={ROOT}")
        self.contain = program(world.library)
        self.inner = f"env PYTHONPATH={ROOT} {shlex.join(self.contain)}"
        """``contain`` for a shell inside a job, whatever is left of its environment."""

    def command(self, *args: str) -> list[str]:
        """``contain ARGS`` on the fake."""
        return [*self.enter, *self.contain, *args]
