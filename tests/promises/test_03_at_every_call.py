"""Any of us may die. The wrapper is killed at each of its system calls that changes anything, one after the other.

strace delivers the SIGKILL at the N-th such call, for N = 1, 2, ... until a session comes to its end unharmed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.on_disk import receipts_on_disk
from tests.session import CONTAIN, Session, inspect
from tests.survivors import Watch, adopting

if TYPE_CHECKING:
    from pathlib import Path

CALLS = (
    "socketpair,pipe2,memfd_create,sendmsg,recvmsg,flock,fchmod,pwrite64,"
    "fsync,renameat,renameat2,unlinkat,write,poll"
)
MOST = 400
WORKERS = 4


def die_at(receipts: Path, mark: Path, number: int) -> bool:
    """One session, killed at the call of this number. False when it was not: there were not so many."""
    killer = (
        "strace",
        "-qq",
        "-o",
        "/dev/null",
        "-e",
        f"trace={CALLS}",
        "-e",
        f"inject={CALLS}:signal=KILL:when={number}",
    )
    with Session(receipts, program=(*killer, *CONTAIN)) as session:
        watch = Watch(session.process.pid)
        session.request("touch", str(mark))
        replies = []
        while (reply := session.read()) is not None:
            replies.append(reply["event"])
            if reply["event"] == "prepared":
                watch.look()
                session.go()
        session.process.wait()
        watch.assert_gone()
    latest = receipts_on_disk(receipts).get(session.id)
    assert not mark.exists() or (latest is not None and latest.may_have_run)
    if replies:
        assert latest is not None, f"call {number}: no receipt, but it said {replies}"
    if "released" in replies:
        assert latest is not None
        assert latest.content["state"] == "released"
    if latest is not None:
        code, (found,) = inspect(receipts, session.id)
        assert (code, found["state"], found["empty"]) == (0, "released", True)
    mark.unlink(missing_ok=True)
    return session.process.returncode != 0


@pytest.mark.timeout(300)
@pytest.mark.parametrize("worker", range(WORKERS))
def test_killed_at_every_call(receipts: Path, tmp_path: Path, worker: int) -> None:
    """Whatever the call: nothing is left, receipts are the old or the new, and what was said is on disk."""
    with adopting():
        number = worker + 1
        while die_at(receipts, tmp_path / "executed", number):
            number += WORKERS
            assert number < MOST, "the loop never ran clean"
        assert number > 4 * WORKERS, "it was never killed in the middle"
