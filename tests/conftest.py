"""Fixtures of every test: a receipt directory of its own."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pathlib import Path


# Under nohup HUP is ignored, behind a shell's & INT and QUIT are, and a wrapper keeps that on purpose: the tests ask
# about an ordinary caller.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Some machines set it for everything: a test that needs it would hang on the others.
os.environ.pop("PYTHONUNBUFFERED", None)

# How long an example takes is the machine's business, and others work on it.
settings.register_profile("any speed", deadline=None)
settings.load_profile("any speed")


@pytest.fixture
def receipts(tmp_path: Path) -> Path:
    """A private directory for receipts."""
    place = tmp_path / "receipts"
    place.mkdir(mode=0o700)
    return place
