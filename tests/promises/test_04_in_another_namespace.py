"""Never the wrong process: a number means something in its own PID namespace, and for as long as it is not reused.

The races run in a namespace of their own (``tests/recycled.py``), where every number is somebody else's a moment
later; receipts of such a namespace are looked at from outside.
"""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import receipt_files
from tests.blocked import needs_root
from tests.receipt_files import PROOF_BY
from tests.recycled import ROUND, within
from tests.session import (
    CONTAIN,
    Session,
    alive,
    descendants,
    in_namespace,
    inspect,
    kill,
    stat_fields,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.session import Reply

HELD = 80
RACES = 400
STATUS_TERM = 15
SIGNALS = 20


@contextlib.contextmanager
def namespace() -> Iterator[tuple[str, ...]]:
    """A PID namespace with a /proc of its own; gives the command that enters it. All that is inside ends with it."""
    # Its PID 1 ignores SIGCHLD, so that whatever loses its parent in there is reaped at once.
    first = ("env", "--ignore-signal=CHLD", "sleep", "1000")
    unshare = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    process = subprocess.Popen([*unshare, *first], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: sleeping_below(process.pid), what="the namespace is there")
        [init] = sleeping_below(process.pid)
        yield ("nsenter", "--target", str(init), "--pid", "--mount", "--")
    finally:
        for pid in descendants(process.pid):
            kill(pid)
        process.kill()
        process.wait()


def sleeping_below(pid: int) -> list[int]:
    """The descendants that have become ``sleep``."""
    found = []
    for below in descendants(pid):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{below}/comm").read_text() == "sleep\n":
                found.append(below)
    return found


def wrapper_of(session: Session) -> int:
    """The number by which the wrapper of a session is known here: the one child of nsenter."""
    [found] = [
        pid
        for pid in descendants(session.process.pid)
        if (stat_fields(pid) or ["", ""])[1] == str(session.process.pid)
    ]
    return found


def lost(receipts: Path, program: tuple[str, ...]) -> receipt_files.Document:
    """The receipt, before anybody looks, of a job of in there whose wrapper was killed, and whose tree is gone."""
    with Session(receipts, program=program) as session:
        namespace_init = session.start("sleep", "1000")["namespaceInit"]
        kill(wrapper_of(session))
        session.process.wait()
        wait_until(lambda: not in_namespace(namespace_init["namespace"]), what="the tree has ended")
    return receipt_files.read(receipts, session.id)


def looks(found: Reply) -> tuple[str, str]:
    """What was said of a receipt, and what was seen."""
    return found["state"], found["observation"]["state"]


@needs_root
@pytest.mark.parametrize("knowledge", PROOF_BY)
def test_a_look_from_outside_decides_nothing(receipts: Path, tmp_path: Path, knowledge: str) -> None:
    """A receipt of an inner PID namespace, of a living tree or of a dead one: unknown, kept, never signalled."""
    copies = receipt_files.place(tmp_path / "copies")
    with namespace() as enter, Session(receipts, program=(*enter, *CONTAIN)) as session:
        inside = (*enter, *CONTAIN)
        inode = session.start("sleep", "1000")["namespaceInit"]["namespace"]
        wrapper, tree = wrapper_of(session), in_namespace(inode)
        living = receipt_files.put(
            copies, receipt_files.read(receipts, session.id), proof=PROOF_BY[knowledge]
        )
        dead = receipt_files.put(copies, lost(receipts, inside), proof=PROOF_BY[knowledge])
        for job_id in (living, dead):
            for words in ((), ("--finish",)):
                code, [found] = inspect(copies, job_id, *words)
                assert (code, looks(found)) == (HELD, ("held", "unknown"))
                assert "another PID namespace" in found["observation"]["why"]
                assert receipt_files.read(copies, job_id)["state"] == "running"
        assert alive(wrapper)
        assert in_namespace(inode) == tree
        # The control: from where they were recorded, both are decided.
        code, [found] = inspect(copies, living, program=inside)
        assert (code, looks(found)) == (HELD, ("running", "live"))
        code, [found] = inspect(copies, dead, program=inside)
        assert (code, looks(found)) == (0, ("released", "gone"))


@needs_root
@pytest.mark.timeout(180)
def test_a_cancel_that_races_with_the_end_harms_nobody(receipts: Path) -> None:
    """Hundreds of jobs end while they are cancelled and killed, and their numbers go to bystanders at once."""
    seen = within("race", RACES, receipts)
    assert seen["harmed"] == []
    assert set(seen["causes"]) <= {"exited", "canceled"}
    assert sum(seen["causes"].values()) == RACES // 16
    assert sum(seen["first"].values()) == RACES
    assert min(seen["first"].get(side, 0) for side in ("itself", "us")) > RACES // 20, f"the control: {seen}"
    assert seen["born"] > 3 * ROUND, "the control: the numbers were used again and again"


@needs_root
def test_a_signal_to_a_number_would_harm_somebody() -> None:
    """The control: the number of a job that has ended is a bystander's, and a signal to it is noticed."""
    seen = within("naive", SIGNALS)
    assert seen["sent"] == SIGNALS
    assert set(seen["harmed"]) == {STATUS_TERM}, seen
