"""A directory as `place` would give it, and a store on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.receipts.lives import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from receipts import Store


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a fresh private directory."""
    path = tmp_path / "receipts"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def store(home: Path) -> Iterator[Store]:
    """Return a store on `home`."""
    opened = open_store(home)
    yield opened
    os.close(opened.directory.fd)
