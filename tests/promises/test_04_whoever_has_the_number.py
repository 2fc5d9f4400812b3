"""Never the wrong process: what a receipt names is compared with whoever has the number now, by whoever looks.

Receipts are edited to name a bystander, which is what a reused number amounts to; and are looked at by another user,
from whom /proc hides the process.
"""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import receipt_files
from tests.blocked import needs_root
from tests.ground import UID, ground_of
from tests.programs import shared_programs
from tests.receipt_files import PROOF_BY
from tests.session import Session, alive, inspect, stat_fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.session import Reply

HELD = 80


@pytest.fixture
def living(receipts: Path) -> Iterator[Session]:
    """A job that runs, in ``receipts``."""
    with Session(receipts) as session:
        session.start("sleep", "1000")
        yield session


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process that is nobody's job; it must be alive at the end."""
    process = subprocess.Popen(["sleep", "1000"])
    try:
        yield process.pid
        assert process.poll() is None, "the bystander was ended"
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A second place, for copies whose locks are free."""
    return receipt_files.place(tmp_path / "there")


def lives(session: Session) -> bool:
    """The tree of a session is untouched."""
    found = session.replies[0]["namespaceInit"]
    return alive(found["pid"], found["startTicks"])


def looks(found: Reply) -> tuple[str, str]:
    """What was said of a receipt, and what was seen."""
    return found["state"], found["observation"]["state"]


@pytest.mark.parametrize("words", [(), ("--finish",)], ids=["inspect", "finish"])
@pytest.mark.parametrize("knowledge", PROOF_BY)
def test_the_number_is_a_strangers(
    receipts: Path, there: Path, bystander: int, knowledge: str, words: tuple[str, ...]
) -> None:
    """An ordinary process has the number: gone, and never signalled, even where its start time is the recorded one."""
    document = receipt_files.lost(receipts)
    same_tick = {"pid": bystander, "startTicks": int((stat_fields(bystander) or [])[19])}
    for edits in ({"pid": bystander}, same_tick):
        job_id = receipt_files.put(there, document, proof={**PROOF_BY[knowledge], **edits})
        code, [found] = inspect(there, job_id, *words)
        assert (code, looks(found), "held" in found) == (0, ("released", "gone"), False)


@pytest.mark.parametrize("words", [(), ("--finish",)], ids=["inspect", "finish"])
@pytest.mark.parametrize("knowledge", PROOF_BY)
def test_the_number_is_another_jobs(
    receipts: Path, there: Path, living: Session, knowledge: str, words: tuple[str, ...]
) -> None:
    """Another job's init has the number, a PID 1 like ours was: gone, and that job is untouched."""
    document = receipt_files.lost(receipts)
    stranger = living.replies[0]["namespaceInit"]
    # Its own start is what tells them apart by ticks: a job of the same 10 ms would not do for that.
    earlier = stranger["startTicks"] - 100
    edits = {**PROOF_BY[knowledge], "pid": stranger["pid"], "startTicks": earlier}
    job_id = receipt_files.put(there, document, proof=edits)
    code, [found] = inspect(there, job_id, *words)
    assert (code, looks(found)) == (0, ("released", "gone"))
    assert lives(living)


@needs_root
def test_another_user_under_hidepid_neither_releases_nor_ends(
    receipts: Path, living: Session, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A /proc that hides the process of another user: never gone while it lives; gone, by its pidfd, when it is."""
    document = receipt_files.read(receipts, living.id)
    hidden = ("unshare", "--mount", "sh", "-ec", 'mount -t proc -o hidepid=2 proc /proc; exec "$@"', "sh")
    with ground_of("nobody", shared_programs(tmp_path_factory)) as user:
        ids = {}
        for kind, edits in PROOF_BY.items():
            ids[receipt_files.put(user.receipts, document, proof=edits)] = kind
        for path in user.receipts.iterdir():
            os.chown(path, UID, UID)
        program = (*hidden, *user.contain)
        code, found = inspect(user.receipts, program=program)
        assert code == HELD
        seen = {ids[finding["id"]]: finding["observation"]["state"] for finding in found}
        assert seen == {"handle": "live", "id": "live", "ticks": "unknown"}
        for job_id in ids:
            code, [finding] = inspect(user.receipts, job_id, "--finish", program=program)
            assert (code, finding["state"] != "released") == (HELD, True)
        assert lives(living)
        living.cancel(graceMs=0).finish()
        code, found = inspect(user.receipts, program=program)
        assert (code, {looks(finding) for finding in found}) == (0, {("released", "gone")})
