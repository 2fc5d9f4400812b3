"""The names of a job's files. The state is in the name, because a rename costs half of a rewrite."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

MOVES: Final = ("prepared", "running", "exited", "json")
"""Suffixes of a receipt, in the order in which a job moves; the last one holds `released` or `held`."""

LOCK: Final = "lock"
TEMPORARY: Final = "tmp"

_GROUPS: Final = [8, 4, 4, 4, 12]
_HEX: Final = frozenset("0123456789abcdef")


def is_id(text: object) -> bool:
    """Say whether `text` is a UUID in its one canonical form: 36 characters, lower case."""
    return (
        isinstance(text, str)
        and [len(group) for group in text.split("-")] == _GROUPS
        and _HEX.issuperset(text.replace("-", ""))
    )


def check_id(job_id: str) -> str:
    """Return the id, or raise `ValueError`: an id becomes a file name, so nothing else may pass."""
    if not is_id(job_id):
        raise ValueError(f"not a job id (a lower-case UUID of 36 characters): {job_id!r:.60}")
    return job_id


def name_of(job_id: str, suffix: str) -> str:
    """Return the file name of one kind."""
    return f".{job_id}.tmp" if suffix == TEMPORARY else f"{job_id}.{suffix}"


def parse(name: str) -> tuple[str, str] | None:
    """Return (job id, suffix) of a file name, or None where the file is not one of ours."""
    job_id, dot, suffix = name.lstrip(".").partition(".")
    if dot and is_id(job_id) and suffix in (*MOVES, LOCK, TEMPORARY) and name_of(job_id, suffix) == name:
        return job_id, suffix
    return None
