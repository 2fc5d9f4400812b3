"""``contain exec`` at a terminal, on Darwin: the promises of ``tests/exec``, and those that need a group of its own."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest

from tests.darwin.jobs import program
from tests.exec.runner import line
from tests.exec.test_terminal import *  # noqa: F403 - the same promises, with another ``contain``

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.world import World


@pytest.fixture
def contain(xnu: World, receipts: Path) -> str:
    """What a person types before the command."""
    return shlex.join(line(receipts, program=program(xnu.library)))
