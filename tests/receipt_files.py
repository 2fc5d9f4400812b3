"""Receipts as files: read as anybody could, copied to another place, edited as no program of ours would.

A copy under another directory has a lock of its own, which nobody holds: to `contain inspect` it is the receipt of a
job whose wrapper is gone, whatever that wrapper does.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from tests.session import Session, new_id

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Document = dict[str, Any]
STATES = ("prepared", "running", "exited", "json")
ABSENT = object()
"""As a value: the key is taken out."""

PROOF_BY = {
    "handle": {},
    "id": {"pidfsHandle": ABSENT},
    "ticks": {"pidfsHandle": ABSENT, "pidfsId": ABSENT},
}
"""What a receipt of this and of older kernels knows of its init, as edits of its proof."""


def files(receipts: Path, job_id: str) -> list[Path]:
    """The files that hold a receipt of a job, in the order in which a job moves."""
    return [path for state in STATES if (path := receipts / f"{job_id}.{state}").exists()]


def read(receipts: Path, job_id: str) -> Document:
    """The latest receipt of a job."""
    found: Document = json.loads(files(receipts, job_id)[-1].read_text())
    return found


def write(receipts: Path, name: str, text: str | bytes) -> Path:
    """A private file."""
    path = receipts / name
    path.touch(mode=0o600)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def edited(document: Document, proof: Mapping[str, object] | None = None, **changes: object) -> Document:
    """A copy with these keys changed, those of the proof apart."""
    found = {**document, **changes, "proof": {**document["proof"], **(proof or {})}}
    found["proof"] = {key: value for key, value in found["proof"].items() if value is not ABSENT}
    return {key: value for key, value in found.items() if value is not ABSENT}


def put(
    receipts: Path,
    document: Document,
    state: str = "running",
    proof: Mapping[str, object] | None = None,
    **changes: object,
) -> str:
    """Writes an edited copy under a new id (or the one among the changes); returns the id."""
    changes = {"id": new_id(), "state": "released" if state == "json" else state, **changes}
    found = edited(document, proof, **changes)
    write(receipts, f"{found['id']}.{state}", json.dumps(found))
    return str(found["id"])


def place(folder: Path, owner: int | None = None) -> Path:
    """A further directory for receipts."""
    folder.mkdir(mode=0o700)
    if owner is not None:
        os.chown(folder, owner, owner)
    return folder


def lost(receipts: Path) -> Document:
    """The receipt, before anybody looks, of a job whose wrapper was killed while it ran, and whose tree is gone."""
    with Session(receipts) as session:
        session.start("sleep", "1000")
        session.process.kill()
        session.process.wait()
        session.errors()  # its end is the tree's end: the command holds the pipe
    document = read(receipts, session.id)
    for path in files(receipts, session.id):
        path.unlink()
    return document
