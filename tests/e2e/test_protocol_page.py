"""docs/PROTOCOL.md is true: its session is held, its messages are valid, its commands run, its tables are right."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from contain import errors, job, protocol
from receipts import CAUSES
from tests.session import (
    CONTAIN,
    ROOT,
    TOKEN,
    WAIT_S,
    Session,
    descendants,
    inspect,
    installed,
    new_id,
    run_job,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = (ROOT / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")
SCHEMA = json.loads((ROOT / "contain" / "schemas" / "protocol.json").read_text(encoding="ascii"))
VALID = Draft202012Validator(SCHEMA)

VOLATILE = {"wrapperPid", "createdAt", "endedAt", "namespaceInit", "usage"}
KERNEL = {"pidfsId", "pidfsHandle", "timeNamespace"}
"""Fields of the proof that an older kernel does not have."""


def blocks(kind: str) -> list[str]:
    """The fenced blocks of one kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def table(first: str) -> list[list[str]]:
    """The cells of every row of the table whose first heading is ``first``."""
    rows: list[list[str]] = []
    for text in PAGE[PAGE.index(f"\n| {first} |") + 1 :].splitlines()[2:]:
        if not text.startswith("|"):
            break
        rows.append([cell.strip() for cell in text.strip("|").split(" | ")])
    assert rows
    return rows


def words(cell: str) -> list[str]:
    """What stands between backquotes."""
    return re.findall(r"`([^`]+)`", cell)


# -- examples --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [line for block in blocks("json") for line in block.splitlines()])
def test_every_example_is_a_message(text: str) -> None:
    """Each line that the page shows is valid by the schema."""
    VALID.validate(json.loads(text))


def test_the_example_request_is_taken() -> None:
    """By the parser too, which also knows what is counted in bytes."""
    requests = [line for block in blocks("json") for line in block.splitlines() if '"command"' in line]
    found = protocol.parse_request(requests[0].encode())
    assert found.job.args[-1].encode("utf-8", "surrogateescape") == b"caf\xe9"
    assert {"id", "permitId", "token", "command", "args", *protocol.OPTIONAL} == {
        field for field in json.loads(requests[0]) if not field.startswith("x-")
    }


def test_the_session_of_the_page_is_held(receipts: Path) -> None:
    """What the host says there, in that order, is answered by those replies, field by field."""
    (block,) = blocks("session")
    with Session(receipts) as session:
        for line in block.splitlines():
            who, _, text = line.partition("> ")
            if who == "host":
                session.send_raw(text.encode() + b"\n")
                continue
            VALID.validate(json.loads(text))
            same(json.loads(text), session.read())
        assert session.read() is None
    assert session.process.wait(WAIT_S) == 0


def same(told: dict[str, Any], heard: dict[str, Any] | None) -> None:
    """The same fields in the same order, and the same values where a value does not depend on the machine."""
    assert heard is not None
    assert list(heard) == list(told)
    assert {k: v for k, v in heard.items() if k not in VOLATILE} == {
        k: v for k, v in told.items() if k not in VOLATILE
    }
    for part in ("usage", "namespaceInit"):
        assert set(told.get(part, ())) - set(heard.get(part, ())) <= KERNEL
        assert set(heard.get(part, ())) <= set(told.get(part, ()))


@pytest.mark.parametrize("script", blocks("sh"))
def test_every_command_of_the_page_runs(script: str, tmp_path: Path) -> None:
    """As it stands, by bash with its strictest options, beside a `contain` that is installed."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    installed(bin_dir)
    python = bin_dir / "python3"
    python.symlink_to(CONTAIN[0])
    env = {**os.environ, "PATH": f"{bin_dir}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


# -- tables ----------------------------------------------------------------------------------------------------------


def test_the_table_of_fields_is_the_parsers() -> None:
    """Every field of a request, which of them are required, and their defaults."""
    rows = {words(row[0])[0]: row for row in table("field")}
    assert list(rows) == [*protocol.REQUIRED, *protocol.OPTIONAL]
    assert [name for name, row in rows.items() if row[2] == "required"] == list(protocol.REQUIRED)
    assert (rows["graceMs"][2], rows["killMs"][2]) == (str(job.GRACE_MS), str(job.KILL_MS))
    assert words(rows["requireTier"][1]) == list(job.TIERS)
    assert words(rows["network"][1]) == list(job.NETWORKS)
    assert rows["timeoutMs"][1] == f"0 to {protocol.LONGEST_MS}"


def test_the_numbers_of_the_page_are_the_codes() -> None:
    """Limits that a host must keep."""
    assert f"{protocol.REQUEST_LINE_BYTES >> 20} MiB, every other one {protocol.LINE_BYTES >> 10} KiB" in PAGE
    assert f"at most {job.MAX_STRING_BYTES} bytes each" in PAGE
    assert f"from {protocol.LEAST_CPUS} to {protocol.MOST_CPUS:.0f}" in PAGE
    for name in (*protocol.LIMIT_FIELDS, "nice", "cpus"):
        assert f"`{name}`" in PAGE


def test_the_table_of_exit_codes_is_the_hierarchys() -> None:
    """Each class of error once, with its reason word."""
    rows = {words(row[1])[0]: int(row[0]) for row in table("exit")}
    assert rows == {kind.reason: kind.exit_code for kind in errors.ContainError.__subclasses__()}


def said_in(path: str, function: str) -> set[str]:
    """The first string of every call of ``function``, or of every tuple that a function of that name returns."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            first: ast.expr | None = node.args[0]
        elif isinstance(node, ast.FunctionDef) and node.name == function:
            returned = [inner.value for inner in ast.walk(node) if isinstance(inner, ast.Return)]
            found |= {
                item.elts[0].value
                for item in returned
                if isinstance(item, ast.Tuple) and isinstance(item.elts[0], ast.Constant)
            }
            continue
        else:
            continue
        if isinstance(first, ast.Constant):
            found.add(first.value)
    return {str(word) for word in found}


def test_the_details_of_the_page_are_the_codes() -> None:
    """Which rule denied the namespaces, and what is wrong with a place."""
    details = {words(row[1])[0]: set(words(row[2])) for row in table("exit")}
    assert details["namespaces-denied"] == said_in("contain/linux/host.py", "_which_rule")
    unsafe = said_in("receipts/ground.py", "Unsafe") | said_in("receipts/place.py", "Unsafe")
    assert details["unsafe-place"] == unsafe
    assert len(unsafe) > 5


def test_the_table_of_causes_is_whole() -> None:
    """Every cause that a receipt may bear. That each is true is tests/e2e/test_causes.py's."""
    assert [words(row[0])[0] for row in table("cause")] == list(CAUSES)


# -- refusals, live --------------------------------------------------------------------------------------------------


def no_json(session: Session, _: Path) -> None:
    """A first line that is none."""
    session.send_raw(b"hello\n")


def wrong_token(session: Session, _: Path) -> None:
    """After `prepared`."""
    session.request("true").until("prepared")
    session.go("00" * 32)


def used_id(session: Session, receipts: Path) -> None:
    """An id that has a receipt."""
    session.id = run_job(receipts, "true")[1].id
    session.request("true")


def no_directory(session: Session, _: Path) -> None:
    """A working directory that is not there."""
    session.request("true", cwd="/no/such/directory")


REFUSALS: dict[str, Callable[[Session, Path], None]] = {
    "protocol": no_json,
    "bad-token": wrong_token,
    "impossible": no_directory,
    "duplicate-id": used_id,
}


@pytest.mark.parametrize("reason", REFUSALS)
def test_a_refusal_has_its_reason_and_exit_code(reason: str, receipts: Path) -> None:
    """The reply says the reason, the exit code is the table's, and standard error has the sentences."""
    with Session(receipts) as session:
        REFUSALS[reason](session, receipts)
        last = session.finish()
    refused = next(reply for reply in session.replies if reply["event"] == "refused")
    assert refused["reason"] == reason
    assert [str(session.process.returncode), f"`{reason}`"] in [row[:2] for row in table("exit")]
    for sentence in ("message", "state", "advice"):
        assert refused[sentence] in session.errors().decode()
    assert ("prepared" in session.events()) == (last["event"] == "released")


def test_a_busy_id_is_refused_and_inspected_as_busy(receipts: Path) -> None:
    """While its wrapper lives; the first session is none the worse."""
    with Session(receipts) as first, Session(receipts) as second:
        first.start("sleep", "60")
        second.id = first.id.upper()
        assert second.request("true").finish()["reason"] == "busy"
        assert second.process.returncode == errors.JobBusy.exit_code
        code, (found,) = inspect(receipts, first.id)
        assert (code, found["state"]) == (errors.JobBusy.exit_code, "busy")
        first.cancel(graceMs=0)
        assert first.finish()["empty"] is True


def test_a_place_that_others_may_enter_is_refused(receipts: Path) -> None:
    """With its detail, and the command that helps."""
    receipts.chmod(0o755)
    with Session(receipts) as session:
        last = session.request("true").finish()
    assert (last["reason"], last["detail"], last["id"]) == ("unsafe-place", "mode", None)
    assert f"chmod 700 {receipts}" in last["advice"]
    assert session.process.returncode == errors.UnsafePlace.exit_code


@pytest.mark.parametrize("verb", ["run", "inspect"])
def test_a_wrong_command_line_is_a_usage_error(verb: str) -> None:
    """On standard error only."""
    done = subprocess.run(
        [*CONTAIN, verb, "--no-such-option"], capture_output=True, timeout=WAIT_S, check=False
    )
    assert (done.returncode, done.stdout) == (errors.UsageError.exit_code, b"")


def test_an_id_without_a_receipt_is_told_on_standard_error(receipts: Path) -> None:
    """With an exit code of its own: nothing of that id can have run."""
    assert inspect(receipts, new_id()) == (errors.NoReceipt.exit_code, [])


def test_an_unreadable_receipt_is_held(receipts: Path) -> None:
    """With exit code 80, and the next step named."""
    job_id = new_id()
    (receipts / f"{job_id}.json").write_text("{")
    code, (found,) = inspect(receipts, job_id)
    assert (code, found["state"]) == (errors.ContainmentHeld.exit_code, "held")
    assert found["held"]["advice"]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_job_and_is_in_the_exit_code(number: signal.Signals, receipts: Path) -> None:
    """129, 130 and 143: the job is released all the same."""
    with Session(receipts) as session:
        session.start("sleep", "60")
        session.process.send_signal(number)
        last = session.finish()
    assert (last["event"], last["empty"]) == ("released", True)
    assert (last["outcome"]["cause"], last["outcome"]["by"]) == ("canceled", number.name)
    assert session.process.returncode == 128 + number
    assert f"{128 + number}" in PAGE


def test_a_signal_before_a_request_ends_without_a_reply(receipts: Path) -> None:
    """There is no job to speak of."""
    with Session(receipts) as session:
        session.send_raw(b'{"id":')
        wait_until(
            lambda: descendants(session.process.pid), what="the keeper, which is later than the handlers"
        )
        session.process.send_signal(signal.SIGTERM)
        assert session.read() is None
        assert session.process.wait(WAIT_S) == 128 + signal.SIGTERM


def test_fields_of_the_host_are_never_stored(receipts: Path) -> None:
    """`x-` fields reach no reply and no receipt; nor does the token."""
    _, session = run_job(receipts, "true", **{"x-secret": "needle-in-x"})
    stored = b"".join(path.read_bytes() for path in receipts.iterdir())
    told = json.dumps(session.replies).encode()
    for needle in (b"needle-in-x", TOKEN.encode()):
        assert needle not in stored + told


def test_an_id_in_upper_case_is_echoed_and_filed_in_lower_case(receipts: Path) -> None:
    """One job whatever its case: the second spelling is a duplicate, and inspect knows both."""
    with Session(receipts) as session:
        session.id = session.id.upper()
        session.start("true")
        session.finish()
        assert {reply["id"] for reply in session.replies} == {session.id}
    assert {path.stem for path in receipts.iterdir()} == {session.id.lower()}
    code, (found,) = inspect(receipts, session.id)
    assert (code, found["id"]) == (0, session.id.lower())
    with Session(receipts) as again:
        again.id = session.id.lower()
        assert again.request("true").finish()["reason"] == "duplicate-id"
