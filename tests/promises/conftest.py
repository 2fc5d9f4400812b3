"""What more than one promise is tried with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.blocked import STAGINGS, Staging
from tests.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=STAGINGS)
def staging(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Staging]:
    """One thing that is in the way; gone after the test, however that ends."""
    made: Staging = request.param(tmp_path)
    try:
        yield made
    finally:
        made.lift()


@pytest.fixture
def living(receipts: Path) -> Iterator[Session]:
    """A job that runs, in ``receipts``."""
    with Session(receipts) as session:
        session.start("sleep", "1000")
        yield session
