"""The directory of receipts, read without the product: every receipt in it is whole, or this says so."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

SUFFIXES = ("prepared", "running", "exited", "json")
"""In the order in which a job moves. Temporaries and locks are no receipts."""


class OnDisk(NamedTuple):
    """The latest receipt of one job."""

    suffix: str
    content: dict[str, Any]

    @property
    def may_have_run(self) -> bool:
        """The gate was, or was about to be, open."""
        return self.suffix != "prepared"


def receipts_on_disk(folder: Path) -> dict[str, OnDisk]:
    """Id -> the latest receipt. Fails for one that is torn, empty, or not the job's that its name says."""
    found: dict[str, OnDisk] = {}
    for suffix in SUFFIXES:
        for path in folder.glob(f"*.{suffix}"):
            content = json.loads(path.read_bytes())
            assert content["id"] == path.stem, f"{path.name} speaks of {content['id']}"
            assert content["proof"]["startTicks"] > 0, f"{path.name} proves nothing"
            found[path.stem] = OnDisk(suffix, content)
    return found
