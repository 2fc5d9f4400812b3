"""Unknown is never gone. It is retained, named, owned, and offered a way out."""

from __future__ import annotations

import fcntl
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests import receipt_files
from tests.blocked import Staging, needs_root
from tests.receipt_files import ABSENT, PROOF_BY, Document
from tests.session import CONTAIN, Reply, Session, alive, in_namespace, inspect, new_id, run_job, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HELD, BUSY = 80, 75


def owned(found: Reply) -> None:
    """Who has the next step, and what it is."""
    assert found["held"]["reason"], found
    assert found["held"]["owner"], found
    assert found["held"]["advice"], found


@needs_root
def test_a_tree_that_outlives_its_wrapper_is_never_called_gone(receipts: Path, staging: Staging) -> None:
    """SIGKILL of the wrapper, and something keeps the tree from ending: kept and named, until it has ended."""
    with Session(receipts, stderr=subprocess.DEVNULL) as session:
        namespace_init = session.start(*staging.command())["namespaceInit"]
        staging.block(namespace_init["pid"])
        session.process.kill()
        session.process.wait()
        for _ in range(2):
            code, [found] = inspect(receipts, session.id)
            assert (code, found["observation"]["state"], found["empty"]) == (HELD, "live", None)
            assert found["state"] != "released"
            owned(found)
            staging.blame(found["held"]["blockers"])
            assert receipt_files.read(receipts, session.id)["state"] != "released"
        staging.lift()
        wait_until(lambda: not in_namespace(namespace_init["namespace"]), what="the tree has ended")
        code, [found] = inspect(receipts, session.id)
        assert (code, found["state"], found["empty"]) == (0, "released", True)
        assert found["outcome"]["cause"] == "wrapper-lost"


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda whole: whole[: len(whole) // 2],
    "zeroed": lambda whole: bytes(len(whole)),
    "zeroed at its end": lambda whole: whole[:-40] + bytes(40),
    "a duplicate key": lambda whole: whole.rstrip().removesuffix(b"}") + b',"state":"released"}\n',
    "a newer version": lambda whole: whole.replace(b'"version": 1', b'"version": 99'),
    "no UTF-8": lambda whole: whole.replace(b"sleep", b"sle\xffp"),
    "another job's": lambda whole: whole.replace(json.loads(whole)["id"].encode(), new_id().encode()),
    "an unknown state": lambda whole: whole.replace(b'"state": "r', b'"state": "R'),
    "no proof's pid": lambda whole: whole.replace(b'"pid"', b'"pad"'),
}


@pytest.mark.parametrize("suffix", ["running", "json"])
def test_an_unreadable_receipt_is_held_and_never_dropped(receipts: Path, suffix: str) -> None:
    """Whatever damaged it: held, its bytes untouched, and the receipts beside it are settled all the same."""
    document = receipt_files.lost(receipts)
    damaged = {}
    for damage, spoil in DAMAGE.items():
        job_id = receipt_files.put(receipts, document, suffix)
        path = receipts / f"{job_id}.{suffix}"
        whole = path.read_bytes()
        path.write_bytes(spoil(whole))
        assert path.read_bytes() != whole, damage
        damaged[job_id] = (damage, path, path.read_bytes())
    sound = [receipt_files.put(receipts, document) for _ in range(3)]
    for _ in range(2):
        code, found = inspect(receipts)
        by_id = {finding["id"]: finding for finding in found}
        assert (code, set(by_id)) == (HELD, {*damaged, *sound})
        assert [by_id[job_id]["state"] for job_id in sound] == ["released"] * len(sound)
        for job_id, (damage, path, data) in damaged.items():
            assert by_id[job_id]["state"] == "held", damage
            owned(by_id[job_id])
            assert "empty" not in by_id[job_id], damage
            assert path.read_bytes() == data, damage


def test_an_unreadable_receipt_can_be_neither_finished_nor_forgotten(receipts: Path) -> None:
    """Its file is evidence that only a person may move away; the refusal says so."""
    job_id = receipt_files.put(receipts, receipt_files.lost(receipts))
    path = receipts / f"{job_id}.running"
    path.write_bytes(path.read_bytes()[:100])
    code, [found] = inspect(receipts, job_id, "--finish")
    assert (code, found["state"]) == (HELD, "held")
    refused = subprocess.run(
        [*CONTAIN, "inspect", str(receipts), job_id, "--forget", "--reason", "the disk tore it"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (refused.returncode, refused.stdout) == (HELD, "")
    assert "move the file away" in refused.stderr
    assert len(path.read_bytes()) == 100


def test_an_older_readable_receipt_does_not_hide_a_later_unreadable_one(receipts: Path) -> None:
    """The later one may say that the job got further than the older knows."""
    document = receipt_files.lost(receipts)
    job_id = receipt_files.put(receipts, document, "prepared")
    receipt_files.write(receipts, f"{job_id}.json", b"{")
    code, [found] = inspect(receipts, job_id)
    assert (code, found["state"]) == (HELD, "held")
    assert [path.name for path in receipt_files.files(receipts, job_id)] == [
        f"{job_id}.prepared",
        f"{job_id}.json",
    ]


def test_a_busy_job_is_observed_and_left_alone(receipts: Path, living: Session) -> None:
    """While its wrapper works on it: exit 75, ``busy``, who holds it, and a true look at the birth."""
    before = receipt_files.files(receipts, living.id)[-1].read_bytes()
    for words in ((), (living.id,), (living.id, "--finish")):
        code, [found] = inspect(receipts, *words)
        assert (code, found["state"], found["observation"]["state"]) == (BUSY, "busy", "live")
        assert str(living.process.pid) in found["why"]
    assert receipt_files.files(receipts, living.id)[-1].read_bytes() == before
    assert alive(living.replies[0]["namespaceInit"]["pid"])


def test_a_busy_job_that_is_gone_is_not_released(receipts: Path) -> None:
    """Only the holder of the lock changes a receipt; the observation says ``gone`` all the same."""
    job_id = receipt_files.put(receipts, receipt_files.lost(receipts))
    with (receipts / f"{job_id}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, [found] = inspect(receipts, job_id)
        assert (code, found["state"], found["observation"]["state"]) == (BUSY, "busy", "gone")
        assert inspect(receipts, job_id, "--forget", "--reason", "it is in the way") == (BUSY, [])
    assert [path.suffix for path in receipt_files.files(receipts, job_id)] == [".running"]
    assert inspect(receipts, job_id)[0] == 0


def test_a_busy_job_is_the_code_of_many_only_if_none_is_worse(receipts: Path, living: Session) -> None:
    """75 says "try again later"; one that is held needs more than that."""
    assert living.process.poll() is None
    receipt_files.write(receipts, f"{new_id()}.running", b"{")
    code, found = inspect(receipts)
    assert sorted(finding["state"] for finding in found) == ["busy", "held"]
    assert code == HELD


def under(mounts: str, scratch: Path, *words: str) -> tuple[int, list[Reply]]:
    """``contain inspect`` in a mount namespace of its own, in which ``mounts`` were made; $0 there is ``scratch``."""
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "sh",
            "-ec",
            f'{mounts}; exec "$@"',
            str(scratch),
            *CONTAIN,
            "inspect",
            *words,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, HELD), done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def copies(folder: Path, document: Document) -> tuple[Path, dict[str, str]]:
    """A place with one copy for each kind of knowledge: id -> kind."""
    there = receipt_files.place(folder)
    return there, {receipt_files.put(there, document, proof=edits): kind for kind, edits in PROOF_BY.items()}


PARTS = {
    "no /proc": "umount -l /proc",
    "no /proc/sys": "mount -t proc -o subset=pid proc /proc",
    "no boot id": "mount --bind /dev/null /proc/sys/kernel/random/boot_id",
    "another boot id over it": "cat /proc/sys/kernel/random/uuid > $0; mount --bind $0 /proc/sys/kernel/random/boot_id",
    "an empty /proc": "mount -t tmpfs none /proc",
}


@needs_root
@pytest.mark.parametrize("mounts", PARTS.values(), ids=PARTS)
def test_a_proc_that_does_not_show_is_no_proof(
    receipts: Path, living: Session, tmp_path: Path, mounts: str
) -> None:
    """Where the boot or the namespace cannot be told, nothing is gone: not a living tree, and not a dead one."""
    there, ids = copies(tmp_path / "copies", receipt_files.read(receipts, living.id))
    dead = receipt_files.put(there, receipt_files.lost(receipts))
    code, found = under(mounts, tmp_path / "scratch", str(there))
    assert code == HELD
    assert {finding["id"] for finding in found} == {*ids, dead}
    for finding in found:
        assert (finding["state"], finding["observation"]["state"]) == ("held", "unknown"), finding
        owned(finding)
    assert all(receipt_files.read(there, job_id)["state"] == "running" for job_id in ids)


INVENTED = """
cat /proc/sys/kernel/random/uuid > "$0"
mount --bind "$0" /proc/sys/kernel/random/boot_id
exec "$@"
"""


@needs_root
def test_an_invented_boot_id_is_no_other_boot(receipts: Path, tmp_path: Path) -> None:
    """A container manager mounts a boot id of its own: a receipt from there is not "of another boot" for the host."""
    nspawn = ("unshare", "--mount", "sh", "-ec", INVENTED, str(tmp_path / "boot_id"), *CONTAIN)
    with Session(receipts, program=nspawn) as session:
        namespace_init = session.start("sleep", "1000")["namespaceInit"]
        assert namespace_init["bootIdSource"] == "mounted"
        document = receipt_files.read(receipts, session.id)
        there = receipt_files.place(tmp_path / "copies")
        job_id = receipt_files.put(there, document)
        code, [found] = inspect(there, job_id)
        assert (code, found["state"], found["observation"]["state"]) == (HELD, "held", "unknown")
        owned(found)
        assert alive(namespace_init["pid"], namespace_init["startTicks"])
    code, [found] = inspect(there, job_id)
    assert (code, found["observation"]["state"]) == (HELD, "unknown"), "dead now, and still it cannot be told"


@needs_root
def test_a_number_that_proc_hides_is_no_proof(receipts: Path, living: Session, tmp_path: Path) -> None:
    """A pidfd proves by its id alone; a start time that cannot be read proves nothing."""
    there, ids = copies(tmp_path / "copies", receipt_files.read(receipts, living.id))
    pid = living.replies[0]["namespaceInit"]["pid"]
    # An empty directory over it is what hidepid shows of a process: nothing.
    code, found = under(f"mount -t tmpfs none /proc/{pid}", tmp_path, str(there))
    assert code == HELD
    seen = {ids[finding["id"]]: finding["observation"]["state"] for finding in found}
    assert seen == {"handle": "live", "id": "live", "ticks": "unknown"}


def test_a_receipt_without_a_proof_is_held(receipts: Path) -> None:
    """Nothing can ever tell whether its tree is gone; ``--forget`` is named as the way out."""
    document = receipt_files.lost(receipts)
    job_id = new_id()
    text = {**document, "id": job_id, "proof": None}
    receipt_files.write(receipts, f"{job_id}.running", json.dumps(text))
    code, [found] = inspect(receipts, job_id)
    assert (code, found["state"]) == (HELD, "held")
    owned(found)
    assert "--forget" in found["held"]["advice"]


def test_what_is_known_is_released(receipts: Path) -> None:
    """The control: the same receipts, whole and looked at from here, are released at once."""
    document = receipt_files.lost(receipts)
    ids = {receipt_files.put(receipts, document, proof=edits) for edits in PROOF_BY.values()}
    assert ABSENT not in document.values()
    last, _ = run_job(receipts, "true")
    code, found = inspect(receipts)
    assert code == 0
    assert {finding["id"] for finding in found} == {*ids, last["id"]}
    assert all((finding["state"], finding["empty"]) == ("released", True) for finding in found)
