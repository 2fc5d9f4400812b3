"""`contain inspect` after a crash: whatever names a job was left with, the truth is written, and cheaply for many."""

from __future__ import annotations

import json
import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from receipts import RUNNING, Store, loads
from tests import receipt_files
from tests.session import CONTAIN, Reply, Session, inspect, kill, new_id

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

NO_RECEIPT = 68
MANY = 1000
EXITED = {"cause": "exited", "code": 3, "core": False}


def left(receipts: Path, *names: str, torn: bool = False) -> str:
    """A job whose tree is gone and whose wrapper left these names; with ``torn``, a half-written temporary beside."""
    document = receipt_files.lost(receipts)
    job_id = new_id()
    for name in names:
        ended: dict[str, Any] = {"outcome": EXITED, "ran": True} if name == "exited" else {}
        receipt_files.put(receipts, document, name, id=job_id, **ended)
    if torn:
        receipt_files.write(receipts, f".{job_id}.tmp", b'{"id":"')
    return job_id


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "torn"])
@pytest.mark.parametrize(
    ("names", "cause", "ran"),
    [
        (("prepared",), "wrapper-lost", False),
        (("running",), "wrapper-lost", None),
        (("exited",), "exited", True),
        (("prepared", "running"), "wrapper-lost", None),
        (("running", "exited"), "exited", True),
        (("prepared", "running", "exited"), "exited", True),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else "",
)
def test_every_crash_state_is_released_with_what_it_knew(
    receipts: Path, names: Sequence[str], cause: str, *, ran: bool | None, torn: bool
) -> None:
    """One name or several, the latest counts: what is sure is kept, what nobody saw is not invented."""
    job_id = left(receipts, *names, torn=torn)
    code, [found] = inspect(receipts, job_id)
    assert (code, found["state"], found["empty"]) == (0, "released", True)
    assert (found["outcome"]["cause"], found.get("ran")) == (cause, ran)
    if cause == "exited":
        assert found["outcome"] == EXITED
    else:
        assert ("never ran" in found["outcome"]["detail"]) == (names == ("prepared",))
    assert sorted(path.name for path in receipts.iterdir() if job_id in path.name) == [
        f"{job_id}.json",
        f"{job_id}.lock",
    ]
    last = (receipts / f"{job_id}.json").read_bytes()
    assert inspect(receipts, job_id)[0] == 0
    assert (receipts / f"{job_id}.json").read_bytes() == last


def test_an_older_name_beside_the_last_word_changes_nothing(receipts: Path) -> None:
    """A crash before the old name went, or a power loss that brought it back: the job stays released."""
    job_id = left(receipts, "running")
    running = (receipts / f"{job_id}.running").read_bytes()
    assert inspect(receipts, job_id)[0] == 0
    last = (receipts / f"{job_id}.json").read_bytes()
    receipt_files.write(receipts, f"{job_id}.running", running)
    code, [found] = inspect(receipts, job_id)
    assert (code, found["state"]) == (0, "released")
    assert (receipts / f"{job_id}.json").read_bytes() == last


@pytest.mark.parametrize("litter", [".{}.tmp", "{}.lock"])
def test_a_writer_that_died_before_its_first_receipt_left_no_job(receipts: Path, litter: str) -> None:
    """A temporary or a lock alone is of a job that never had a receipt, so that never ran."""
    job_id = new_id()
    receipt_files.write(receipts, litter.format(job_id), b"")
    assert inspect(receipts) == (0, [])
    assert inspect(receipts, job_id)[0] == NO_RECEIPT


def test_a_wrapper_killed_while_the_gate_is_shut_never_ran_its_command(
    receipts: Path, tmp_path: Path
) -> None:
    """By a real crash: ``prepared`` is on disk, and so it is sure that nothing ran."""
    with Session(receipts) as session:
        session.request("touch", str(tmp_path / "ran")).until("prepared")
        kill(session.process.pid)
        session.process.wait()
        session.errors()
    code, [found] = inspect(receipts, session.id)
    assert (code, found["state"], found["ran"]) == (0, "released", False)
    assert not (tmp_path / "ran").exists()


# -- many at once ------------------------------------------------------------------------------------------------------


def fill(receipts: Path, count: int) -> set[str]:
    """Dead births in state running, half of them of another boot; made by the package that is shipped for it."""
    template = loads(json.dumps(receipt_files.lost(receipts)).encode())
    assert template.proof is not None
    elsewhere = template.proof.replace(boot_id=new_id())
    ids = set()
    directory = os.open(receipts, os.O_RDONLY | os.O_DIRECTORY)
    try:
        store = Store(directory, str(receipts))
        with store.batch():
            for number in range(count):
                proof = elsewhere if number % 2 else template.proof
                receipt = template.replace(id=new_id(), state=RUNNING, proof=proof)
                store.prepare(receipt)
                ids.add(receipt.id)
    finally:
        os.close(directory)
    return ids


def bounded(log: Path, *traced: str) -> tuple[str, ...]:
    """``contain`` with 256 descriptors and 256 MB of addresses, under a tracer."""
    small = ("sh", "-c", 'ulimit -n 256; ulimit -v 262144; exec "$@"', "sh")
    return ("strace", "-qq", "-y", "-o", str(log), *traced, *small, *CONTAIN)


def inspected(program: Sequence[str], receipts: Path) -> tuple[int, list[Reply]]:
    """As session.inspect, with the time that a traced thousand may take on a slow disk."""
    done = subprocess.run(
        [*program, "inspect", str(receipts)], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.stderr == ""
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.timeout(180)
def test_a_thousand_receipts_cost_few_directory_syncs(receipts: Path, tmp_path: Path) -> None:
    """Each file is synced, the directory once for many; descriptors and memory do not grow with the number."""
    ids = fill(receipts, MANY)
    log = tmp_path / "log"
    code, found = inspected(bounded(log, "-e", "trace=fsync,fdatasync"), receipts)
    assert code == 0
    assert {finding["id"] for finding in found} == ids
    assert {(finding["state"], finding["empty"]) for finding in found} == {("released", True)}
    assert {path.suffix for path in receipts.iterdir()} == {".json", ".lock"}
    synced = re.findall(r"^f(?:data)?sync\(\d+<([^>]*)>", log.read_text(), re.MULTILINE)
    directory = synced.count(str(receipts))
    assert len(synced) - directory == MANY
    assert 1 <= directory <= MANY // 50


@pytest.mark.parametrize("when", [1, 3, 6])
def test_inspect_killed_at_a_rename_is_only_unfinished(receipts: Path, tmp_path: Path, when: int) -> None:
    """SIGKILL in the middle of a batch: each receipt is the old one or the new one, and the next look ends the work."""
    ids = fill(receipts, 6)
    renames = "?rename,?renameat,?renameat2"
    kills = ("-e", f"trace={renames}", "-e", f"inject={renames}:signal=KILL:when={when}")
    killed = subprocess.run(
        [*bounded(tmp_path / "log", *kills), "inspect", str(receipts)], capture_output=True, check=False
    )
    assert (killed.returncode, killed.stdout) == (-9, b""), "the kill is felt, and nothing was said too early"
    assert {receipt_files.read(receipts, job_id)["state"] for job_id in ids} <= {"running", "released"}
    code, found = inspect(receipts)
    assert (code, {finding["state"] for finding in found}) == (0, {"released"})
    assert {finding["id"] for finding in found} == ids
