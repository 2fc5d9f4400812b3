"""Every uncertain state has a way out: an owner, a deadline, and a next step that works."""

from __future__ import annotations

import json
import os
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests import receipt_files
from tests.blocked import FrozenMember, FrozenTree, Holder, Staging, needs_freezer, needs_root
from tests.receipt_files import PROOF_BY
from tests.session import (
    CONTAIN,
    WAIT_S,
    Session,
    alive,
    in_namespace,
    inspect,
    keeper_of,
    run_job,
    wait_until,
)
from tests.survivors import stop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.session import Reply

HELD, BUSY, USAGE, SETUP_FAILED = 80, 75, 64, 71
BOUND_S = 20.0 * WAIT_S / 30
"""Far above the product's own 5 s, far below for ever."""


def drained(namespace_init: Reply) -> None:
    """Waits until the kernel shows nothing more of a tree."""
    wait_until(lambda: not in_namespace(namespace_init["namespace"]), what="the tree has ended")


# -- held, and released later ------------------------------------------------------------------------------------------


@needs_root
def test_what_cannot_end_is_held_and_later_released(receipts: Path, staging: Staging, tmp_path: Path) -> None:
    """Cancel: ``held`` in time with the true reason; each look says it again, and releases when it is over."""
    with (tmp_path / "errors").open("wb") as errors, Session(receipts, stderr=errors.fileno()) as session:
        namespace_init = session.start(*staging.command())["namespaceInit"]
        staging.block(namespace_init["pid"])
        begun_s = time.monotonic()
        last = session.cancel(graceMs=0).finish()
        assert time.monotonic() - begun_s < BOUND_S
        assert (last["event"], last["empty"], session.process.returncode) == ("held", False, HELD)
        assert last["outcome"]["cause"] == "canceled"
        assert "not proven empty" in last["held"]["reason"]
        blamed = staging.blame(last["held"]["blockers"])
        document = receipt_files.read(receipts, session.id)
        assert (document["held"], document["empty"]) == (last["held"], False)
        assert (document["permitId"], document["proof"]) == (last["permitId"], namespace_init)
        assert last["held"]["advice"].encode() in (tmp_path / "errors").read_bytes()
        for _ in range(2):
            code, [found] = inspect(receipts, session.id)
            assert (code, found["state"], found["observation"]["state"]) == (HELD, "held", "live")
            assert staging.blame(found["held"]["blockers"]) == blamed
        staging.lift()
        drained(namespace_init)
        code, [found] = inspect(receipts, session.id)
        assert (code, found["state"], found["empty"]) == (0, "released", True)
        assert (found["outcome"], "held" in found) == (last["outcome"], False)


@needs_root
@needs_freezer
def test_the_init_that_waits_for_the_others_says_so(receipts: Path, tmp_path: Path) -> None:
    """A killed init is not "alive": a person who reads that would look in the wrong place."""
    staging = FrozenMember(tmp_path)
    try:
        with Session(receipts, stderr=subprocess.DEVNULL) as session:
            init = session.start(*staging.command())["namespaceInit"]["pid"]
            staging.block(init)
            blockers = session.cancel(graceMs=0).finish()["held"]["blockers"]
    finally:
        staging.lift()
    first = blockers[0]
    assert (first["pid"], first["name"]) == (init, "contain-init")
    assert first["why"] == "killed, and waits for the others to end"


@needs_root
@needs_freezer
def test_finish_is_bounded_and_says_what_is_in_the_way(receipts: Path, tmp_path: Path) -> None:
    """A frozen tree takes no SIGKILL: ``--finish`` does not wait for ever, and its KILL works when it is thawed."""
    staging = FrozenTree(tmp_path)
    try:
        with Session(receipts, stderr=subprocess.DEVNULL) as session:
            namespace_init = session.start(*staging.command())["namespaceInit"]
            staging.block(namespace_init["pid"])
            session.process.kill()
            session.process.wait()
            begun_s = time.monotonic()
            code, [found] = inspect(receipts, session.id, "--finish")
            assert time.monotonic() - begun_s < BOUND_S
            assert (code, found["observation"]["state"]) == (HELD, "live")
            staging.blame(found["held"]["blockers"])
            staging.lift()
            drained(namespace_init)
            assert inspect(receipts, session.id)[0] == 0
    finally:
        staging.lift()


# -- no wait of the wrapper is unbounded -------------------------------------------------------------------------------


@needs_root
@needs_freezer
def test_a_frozen_keeper_does_not_keep_the_wrapper(receipts: Path) -> None:
    """The v1 freezer holds back the keeper's death: the wrapper says ``released`` and goes all the same."""
    with Session(receipts) as session:
        init = session.start("sleep", "1000")["namespaceInit"]["pid"]
        holder = Holder("freezer", f"contain-test-keeper-{init}", keeper_of(session.process.pid))
        try:
            holder.block()
            last = session.cancel(graceMs=0).finish(BOUND_S)
        finally:
            holder.lift()
    assert (last["event"], session.process.returncode) == ("released", 0)


def test_a_stopped_keeper_is_a_named_refusal(receipts: Path) -> None:
    """It never answers the launch: refused by step within the bound, nothing is left, no receipt."""
    with Session(receipts) as session:
        wait_until(lambda: _has_keeper(session), what="the wrapper has a keeper")
        keeper = keeper_of(session.process.pid)
        stop(keeper)
        last = session.request("true").finish(BOUND_S)
        assert (last["event"], last["reason"], last["step"]) == ("refused", "setup-failed", "clone")
        assert session.process.returncode == SETUP_FAILED
        assert not alive(keeper)
    assert receipt_files.files(receipts, session.id) == []


def _has_keeper(session: Session) -> bool:
    try:
        return keeper_of(session.process.pid) > 0
    except AssertionError:
        return False


def test_a_stopped_init_does_not_keep_a_cancel(receipts: Path, living: Session) -> None:
    """It cannot send the TERM that it was asked for; after the grace the wrapper kills it from outside."""
    namespace_init = living.replies[0]["namespaceInit"]
    stop(namespace_init["pid"])
    last = living.cancel(graceMs=100).finish(BOUND_S)
    assert (last["event"], last["empty"], last["outcome"]["cause"]) == ("released", True, "canceled")
    assert in_namespace(namespace_init["namespace"]) == []
    assert inspect(receipts)[0] == 0


# -- --finish ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("knowledge", PROOF_BY)
def test_finish_ends_exactly_the_recorded_tree(
    receipts: Path, living: Session, tmp_path: Path, knowledge: str
) -> None:
    """A tree whose wrapper let go of it lives on: kept by a look, ended by ``--finish``, whatever is known of it."""
    namespace_init = living.replies[0]["namespaceInit"]
    document = receipt_files.read(receipts, living.id)
    there = receipt_files.place(tmp_path / "there")
    job_id = receipt_files.put(there, document, proof=PROOF_BY[knowledge])
    with Session(receipts) as other:
        bystander = other.start("sleep", "1000")["namespaceInit"]
        code, [found] = inspect(there, job_id)
        assert (code, found["state"], found["observation"]["state"]) == (HELD, "running", "live")
        assert f"{found['held']['advice']}".endswith("contain inspect ID --finish.")
        assert alive(namespace_init["pid"], namespace_init["startTicks"])
        code, [found] = inspect(there, job_id, "--finish")
        assert (code, found["state"], found["empty"]) == (0, "released", True)
        assert in_namespace(namespace_init["namespace"]) == []
        assert alive(bystander["pid"], bystander["startTicks"])
        assert (found["outcome"]["cause"], found["outcome"]["by"]) == ("wrapper-lost", "inspect --finish")
        assert receipt_files.read(there, job_id)["state"] == "released"
    assert living.finish()["outcome"]["cause"] == "init-killed"


def test_finish_claims_no_end_that_it_did_not_make(receipts: Path) -> None:
    """The tree had gone before: it is released, and nobody is named as the one who ended it."""
    job_id = receipt_files.put(receipts, receipt_files.lost(receipts))
    code, [found] = inspect(receipts, job_id, "--finish")
    assert (code, found["state"], found["outcome"]["cause"]) == (0, "released", "wrapper-lost")
    assert "by" not in found["outcome"]


# -- --forget ----------------------------------------------------------------------------------------------------------


def unknown(receipts: Path) -> str:
    """The id of a receipt that can never be settled from here: recorded in a PID namespace that is not this one."""
    return receipt_files.put(receipts, receipt_files.lost(receipts), proof={"observerNamespace": 4026530000})


def test_forget_is_recorded_and_never_called_empty(receipts: Path) -> None:
    """An operator's word settles an unknown: who, when and why are in the receipt, and emptiness stays unknown."""
    job_id = unknown(receipts)
    code, [found] = inspect(receipts, job_id)
    assert (code, found["state"], found["observation"]["state"]) == (HELD, "held", "unknown")
    assert "--forget" in found["held"]["advice"]
    before_s = time.time()
    code, [found] = inspect(receipts, job_id, "--forget", "--reason", "that machine was scrapped")
    assert (code, found["state"], found["empty"]) == (0, "released", None)
    document = receipt_files.read(receipts, job_id)
    assert (document["state"], document["empty"]) == ("released", None)
    forgotten = document["forgotten"]
    assert (forgotten["reason"], forgotten["by"]) == ("that machine was scrapped", os.getuid())
    assert before_s <= forgotten["at"] <= time.time()
    code, [again] = inspect(receipts, job_id)
    assert (code, again["empty"], again["forgotten"]) == (0, None, forgotten)


def test_forget_looks_first(receipts: Path, tmp_path: Path, living: Session) -> None:
    """What is alive is not given up, and what is gone is proven empty, not forgotten."""
    there = receipt_files.place(tmp_path / "copies")
    job_id = receipt_files.put(there, receipt_files.read(receipts, living.id))
    code, found = inspect(there, job_id, "--forget", "--reason", "it bores me")
    assert (code, found) == (HELD, [])
    assert receipt_files.read(there, job_id)["state"] == "running"
    living.cancel(graceMs=0).finish()
    code, [told] = inspect(there, job_id, "--forget", "--reason", "it bores me")
    assert (code, told["state"], told["empty"]) == (0, "released", True)
    assert "forgotten" not in receipt_files.read(there, job_id)


def test_many_that_are_alive_cost_one_wait(receipts: Path, tmp_path: Path, living: Session) -> None:
    """The patience with trees that may just be dying is one for all of them."""
    there = receipt_files.place(tmp_path / "copies")
    document = receipt_files.read(receipts, living.id)
    ids = {receipt_files.put(there, document) for _ in range(40)}
    begun_s = time.monotonic()
    code, found = inspect(there)
    assert (code, {finding["id"] for finding in found}) == (HELD, ids)
    assert all(finding["observation"]["state"] == "live" for finding in found)
    assert (
        time.monotonic() - begun_s < 0.5 * len(ids) / 1.5
    )  # a wait for each of them would be half as much again


def test_forget_leaves_a_released_receipt_as_it_is(receipts: Path) -> None:
    """Proven empty stays proven empty."""
    last, session = run_job(receipts, "true")
    before = receipt_files.files(receipts, session.id)[-1].read_bytes()
    code, [found] = inspect(receipts, session.id, "--forget", "--reason", "tidying up")
    assert (code, found["empty"], found["outcome"]) == (0, True, last["outcome"])
    assert receipt_files.files(receipts, session.id)[-1].read_bytes() == before


def test_forget_keeps_what_was_known_of_the_end(receipts: Path) -> None:
    """How the command ended is the truth, whatever became of its tree."""
    outcome = {"cause": "exited", "code": 3, "core": False}
    document = receipt_files.lost(receipts)
    job_id = receipt_files.put(
        receipts, document, "exited", proof={"observerNamespace": 4026530000}, outcome=outcome, ran=True
    )
    code, [found] = inspect(receipts, job_id, "--forget", "--reason", "gone with its container")
    assert (code, found["outcome"], found["ran"], found["empty"]) == (0, outcome, True, None)


def test_forget_settles_a_receipt_without_a_proof(receipts: Path) -> None:
    """Nothing could ever be looked at; the operator's word is all there is."""
    document = receipt_files.lost(receipts)
    job_id = receipt_files.put(receipts, document)
    proofless = {key: value for key, value in receipt_files.read(receipts, job_id).items() if key != "proof"}
    (receipts / f"{job_id}.running").write_text(json.dumps(proofless))
    assert inspect(receipts, job_id)[0] == HELD
    code, [found] = inspect(receipts, job_id, "--forget", "--reason", "of an older program")
    assert (code, found["state"], found["empty"]) == (0, "released", None)


@pytest.mark.parametrize(
    "words",
    [("--forget",), ("--reason", "x"), ("--forget", "--finish", "--reason", "x"), ("--forget", "--reason")],
    ids=" ".join,
)
def test_forget_without_a_reason_changes_nothing(receipts: Path, words: tuple[str, ...]) -> None:
    """Giving a job up is never a slip of the hand."""
    job_id = unknown(receipts)
    assert inspect(receipts, job_id, *words) == (USAGE, [])
    assert receipt_files.read(receipts, job_id)["state"] == "running"


@pytest.mark.parametrize("words", [("--finish",), ("--forget", "--reason", "all of them")], ids=" ".join)
def test_nothing_is_ended_or_forgotten_wholesale(receipts: Path, words: tuple[str, ...]) -> None:
    """Both name one job; a directory is never enough."""
    job_id = unknown(receipts)
    assert inspect(receipts, *words) == (USAGE, [])
    assert receipt_files.read(receipts, job_id)["state"] == "running"


def test_an_id_without_a_receipt_is_said_to_have_none(receipts: Path) -> None:
    """Not "released": there was nothing to release."""
    done = subprocess.run(
        [*CONTAIN, "inspect", str(receipts), "00000000-0000-4000-8000-000000000000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (68, "")
    assert "no receipt" in done.stderr
