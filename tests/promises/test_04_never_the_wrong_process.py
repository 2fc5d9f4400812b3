"""Never the wrong process. From outside, signals go through a pidfd of a proven birth; never to a bare number."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests import receipt_files
from tests.blocked import needs_root
from tests.capsule import LOWEST, RANGE, Capsule, wrapper_of
from tests.nobody import UID, nobody
from tests.receipt_files import ABSENT, PROOF_BY
from tests.session import CONTAIN, WAIT_S, Session, alive, inspect, keeper_of, kill, new_id

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
def there(tmp_path: Path) -> Path:
    """A second place, for copies whose locks are free."""
    return receipt_files.place(tmp_path / "there")


def lives(session: Session) -> bool:
    """The tree of a session of this namespace is untouched."""
    found = session.replies[0]["namespaceInit"]
    return alive(found["pid"], found["startTicks"])


def looks(found: Reply) -> tuple[str, str]:
    """What was said of a receipt, and what was seen."""
    return found["state"], found["observation"]["state"]


# -- recycled numbers --------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.parametrize("kind", ["child", "init"])
@pytest.mark.parametrize("knowledge", PROOF_BY)
def test_a_recycled_number_is_somebody_elses(receipts: Path, knowledge: str, kind: str) -> None:
    """The init is dead and a bystander has its number: gone by any identity, and no signal, not even by --finish."""
    with Capsule() as capsule:
        document = capsule.lost(receipts)
        number = document["proof"]["pid"]
        with capsule.inside("reuse", number, kind) as bystander:
            assert bystander.first["pid"] == number
            naive = subprocess.run([*capsule.enter, "sh", "-c", f"kill -0 {number}"], check=False)
            assert naive.returncode == 0, "the control: by its number it would be taken for alive"
            for words in ((), ("--finish",)):
                job_id = receipt_files.put(receipts, document, proof=PROOF_BY[knowledge])
                code, [found] = inspect(receipts, job_id, *words, program=capsule.contain)
                assert (code, looks(found), found["empty"]) == (0, ("released", "gone"), True)
                assert "held" not in found
            assert bystander.end()["lives"]


@needs_root
def test_one_number_and_one_start_time_are_not_yet_one_process(receipts: Path) -> None:
    """Where start ticks are all that is known and agree (10 ms are long), it must still lead a namespace of its own."""
    with Capsule() as capsule:
        document = capsule.lost(receipts)
        number = document["proof"]["pid"]
        with capsule.inside("reuse", number, "child") as bystander:
            same = {**PROOF_BY["ticks"], "startTicks": bystander.first["startTicks"]}
            for words in ((), ("--finish",)):
                job_id = receipt_files.put(receipts, document, proof=same)
                code, [found] = inspect(receipts, job_id, *words, program=capsule.contain)
                assert (code, looks(found)) == (0, ("released", "gone"))
            assert bystander.end()["lives"]


@needs_root
def test_the_bystander_would_be_harmed_by_a_number(receipts: Path) -> None:
    """The control of the control: a signal to the recorded number does reach the bystander, and is noticed."""
    with Capsule() as capsule:
        number = capsule.lost(receipts)["proof"]["pid"]
        with capsule.inside("reuse", number, "child") as bystander:
            subprocess.run([*capsule.enter, "sh", "-c", f"kill {number}"], check=True)
            assert not bystander.end()["lives"]


# -- another boot, another namespace -----------------------------------------------------------------------------------


@pytest.mark.parametrize("knowledge", PROOF_BY)
def test_another_boot_is_a_proof_of_its_own(
    receipts: Path, living: Session, there: Path, knowledge: str
) -> None:
    """What another boot recorded is gone with it, whoever fits the record now: released for that reason, unharmed."""
    document = receipt_files.read(receipts, living.id)
    edits = {**PROOF_BY[knowledge], "bootId": new_id()}
    for words in ((), ("--finish",)):
        job_id = receipt_files.put(there, document, proof=edits)
        code, [found] = inspect(there, job_id, *words)
        assert (code, looks(found), found["empty"]) == (0, ("released", "gone"), True)
        assert "another boot" in found["observation"]["why"]
    assert lives(living)


@needs_root
@pytest.mark.parametrize("knowledge", PROOF_BY)
def test_a_number_of_another_pid_namespace_means_nothing_here(
    receipts: Path, living: Session, there: Path, knowledge: str
) -> None:
    """From outside and from inside, of a living tree and of a dead one: unknown, kept, never signalled."""
    with Capsule() as capsule, Session(there, program=capsule.contain) as within:
        within.start("sleep", "1000")
        inside, outside = receipt_files.read(there, within.id), receipt_files.read(receipts, living.id)
        copies = receipt_files.place(there / "copies")
        looked = [
            (CONTAIN, receipt_files.put(copies, inside, proof=PROOF_BY[knowledge])),
            (CONTAIN, receipt_files.put(copies, capsule.lost(there), proof=PROOF_BY[knowledge])),
            (capsule.contain, receipt_files.put(copies, outside, proof=PROOF_BY[knowledge])),
        ]
        for program, job_id in looked:
            for words in ((), ("--finish",)):
                code, [found] = inspect(copies, job_id, *words, program=program)
                assert (code, looks(found)) == (HELD, ("held", "unknown"))
                assert "another PID namespace" in found["observation"]["why"]
                assert receipt_files.read(copies, job_id)["state"] == "running"
        assert lives(living)
        assert alive(wrapper_of(within))
        # The control: from where it was recorded, the same copy is decided.
        code, [found] = inspect(copies, looked[0][1], program=capsule.contain)
        assert (code, looks(found)) == (HELD, ("running", "live"))


@needs_root
def test_a_start_time_of_another_time_namespace_means_nothing_here(
    receipts: Path, living: Session, there: Path
) -> None:
    """There the clock of start ticks is another: by ticks alone unknown, by pidfs decided, and never wrongly."""
    document = receipt_files.read(receipts, living.id)
    ids = {receipt_files.put(there, document, proof=edits): kind for kind, edits in PROOF_BY.items()}
    elsewhere = ("unshare", "--time", "--boottime", "100000", "--fork", *CONTAIN)
    code, found = inspect(there, program=elsewhere)
    assert code == HELD
    seen = {ids[finding["id"]]: finding["observation"]["state"] for finding in found}
    assert seen == {"handle": "live", "id": "live", "ticks": "unknown"}
    by_ticks = next(job_id for job_id, kind in ids.items() if kind == "ticks")
    assert inspect(there, by_ticks, "--finish", program=elsewhere)[0] == HELD
    assert lives(living)
    code, found = inspect(there)
    assert {finding["observation"]["state"] for finding in found} == {"live"}, "the control: from here"


# -- another user, who sees nothing ------------------------------------------------------------------------------------


@needs_root
def test_another_user_under_hidepid_neither_releases_nor_ends(receipts: Path, living: Session) -> None:
    """A /proc that hides the process of another user: never gone while it lives; gone, by its pidfd, when it is."""
    document = receipt_files.read(receipts, living.id)
    hidden = ("unshare", "--mount", "sh", "-ec", 'mount -t proc -o hidepid=2 proc /proc; exec "$@"', "sh")
    with nobody() as user:
        ids = {
            receipt_files.put(user.receipts, document, proof=edits): kind for kind, edits in PROOF_BY.items()
        }
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


# -- what is really called ---------------------------------------------------------------------------------------------


class Sent(NamedTuple):
    """One system call that sends a signal."""

    pid: int
    call: str
    target: str


SIGNALLING = "kill,tkill,tgkill,rt_sigqueueinfo,rt_tgsigqueueinfo,pidfd_send_signal"
LINE = re.compile(r"^(\d+) +(\w+)\(([^,]+), ")


def traced(log: Path) -> tuple[str, ...]:
    """``contain`` under a tracer of everything that sends signals."""
    return ("strace", "-f", "-qq", "-o", str(log), "-e", f"trace={SIGNALLING}", *CONTAIN)


def sent(log: Path) -> list[Sent]:
    """What was sent, by whom, as the kernel was asked."""
    found = [LINE.match(line) for line in log.read_text().splitlines()]
    return [Sent(int(match[1]), match[2], match[3]) for match in found if match]


@pytest.mark.parametrize("grace_ms", [0, 200])
def test_wrapper_and_keeper_know_no_other_call_than_pidfd_send_signal(
    receipts: Path, tmp_path: Path, grace_ms: int
) -> None:
    """A whole life with a cancel, every process of ours traced: numbers are the init's alone, and only -1."""
    log = tmp_path / "log"
    with Session(receipts, program=traced(log)) as session:
        prepared = session.start("sh", "-c", 'trap "" TERM; kill -0 $$; sleep 1000 & wait; wait')
        wrapper, init = prepared["wrapperPid"], prepared["namespaceInit"]["pid"]
        keeper = keeper_of(wrapper)
        last = session.cancel(graceMs=grace_ms).finish()
    assert last["event"] == "released"
    calls = sent(log)
    by_wrapper = [call for call in calls if call.pid == wrapper]
    by_init = [call for call in calls if call.pid == init]
    assert [call for call in calls if call.pid == keeper] == []
    assert {call.call for call in by_wrapper} <= {"pidfd_send_signal"}
    assert {(call.call, call.target) for call in by_init} <= {("kill", "-1")}
    assert by_wrapper if grace_ms == 0 else by_init, "the control: the end that was asked for is in the log"


def test_finish_sends_one_signal_through_one_pidfd(
    receipts: Path, living: Session, there: Path, tmp_path: Path
) -> None:
    """``inspect`` sends none; ``inspect --finish`` sends SIGKILL once, to the pidfd that its own look has proven."""
    job_id = receipt_files.put(there, receipt_files.read(receipts, living.id))
    log = tmp_path / "log"
    assert inspect(there, job_id, program=traced(log))[0] == HELD
    assert sent(log) == []
    assert inspect(there, job_id, "--finish", program=traced(log))[0] == 0
    assert [call.call for call in sent(log)] == ["pidfd_send_signal"]
    assert "SIGKILL" in log.read_text()


# -- races -------------------------------------------------------------------------------------------------------------


@needs_root
@pytest.mark.timeout(180)
def test_a_cancel_that_races_with_the_end_harms_nobody(receipts: Path) -> None:
    """Hundreds of jobs end while they are cancelled and killed, and their numbers go to bystanders at once."""
    with Capsule() as capsule, capsule.inside("fill") as fillers:
        with capsule.inside("race", 600, 20260) as racers:
            seen = racers.first
            assert seen["natural"] + seen["ended"] == 600
            assert min(seen.values()) > 30, f"the control: both sides won at times, {seen}"
        dice = random.Random(20261)  # noqa: S311 - no secret
        for _ in range(40):
            one_race(receipts, capsule, dice)
        last = fillers.end()
    assert last["harmed"] == []
    assert last["born"] > 3 * RANGE, f"the control: every number from {LOWEST} on was used again and again"


def one_race(receipts: Path, capsule: Capsule, dice: random.Random) -> None:
    """A session whose cancel comes about when its command ends by itself."""
    with Session(receipts, program=capsule.contain) as session:
        session.start("sleep", f"{dice.random() / 100:.4f}")
        if dice.random() < 0.8:
            session.cancel(graceMs=dice.choice((0, 0, 20, 1000)))
        last = session.finish()
    assert (last["event"], last["empty"], session.process.returncode) == ("released", True, 0)
    assert last["outcome"]["cause"] in ("exited", "canceled")
    assert session.errors() == b""
