"""The shipped schema is the protocol: every line of real sessions is valid, and what is no message is not.

``contain/schemas/protocol.json`` is strict where hosts write and open where they read.
"""

from __future__ import annotations

import importlib.resources
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from contain import errors, job, protocol
from receipts import CAUSES
from tests.session import ROOT, TOKEN, Session, alive, inspect, kill, new_id, run_job, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA: dict[str, Any] = json.loads(
    (importlib.resources.files("contain") / "schemas" / "protocol.json").read_text(encoding="ascii")
)
REPLIES = ("prepared", "running", "exited", "released", "held", "refused", "ignored", "inspected")
MESSAGES = ("request", "action", *REPLIES)
ID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
STRICT = ("request", "action")


def validator(name: str) -> Draft202012Validator:
    """For one message of the shipped schema."""
    return Draft202012Validator({**SCHEMA, "oneOf": [{"$ref": f"#/$defs/{name}"}]})


ANY = Draft202012Validator(SCHEMA)


def properties(name: str) -> dict[str, Any]:
    """The fields that the schema gives a message or a part of one."""
    found: dict[str, Any] = SCHEMA["$defs"][name]["properties"]
    return found


def known(place: dict[str, Any]) -> set[str]:
    """The words that the schema lists where newer ones may come."""
    return set(place["anyOf"][0]["enum"])


def request(**extra: object) -> dict[str, object]:
    """A request with every required field."""
    return {"id": new_id(), "permitId": new_id(), "token": TOKEN, "command": "true", "args": [], **extra}


@pytest.fixture(scope="module")
def told() -> dict[str, list[dict[str, Any]]]:
    """Real messages of every kind, from sessions that are driven to say each."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in MESSAGES}
    with tempfile.TemporaryDirectory(prefix="contain-schema-") as directory:
        receipts = Path(directory, "receipts")
        receipts.mkdir(mode=0o700)
        for replies in (*ordinary(receipts), *refusals(receipts), *lost(receipts)):
            for reply in replies:
                found[reply["event"]].append(reply)
        found["inspected"] += inspected(receipts)
    found["request"].append(request())
    found["action"] += [{"id": new_id(), "token": TOKEN, "action": word} for word in ("go", "cancel")]
    released = found["released"][0]
    found["held"].append(
        {
            **released,
            "event": "held",
            "state": "held",
            "empty": False,
            "held": {"reason": "r", "owner": "o", "advice": "a", "blockers": [{**BLOCKER, "tracer": 12}]},
        }
    )
    return found


BLOCKER: dict[str, object] = {"pid": 7, "name": "sh", "state": "D", "why": "in an uninterruptible wait"}


def ordinary(receipts: Path) -> Iterator[list[dict[str, Any]]]:
    """Jobs that end by themselves, by a limit, by a signal, by exec; with leftovers; with a second go."""
    yield run_job(receipts, "true", timeoutMs=60_000)[1].replies
    yield run_job(receipts, "sh", "-c", "kill -9 $$")[1].replies
    yield run_job(receipts, "/no/such/command")[1].replies
    yield run_job(receipts, "sh", "-c", "sleep 60 & exit 3", graceMs=100, killMs=100)[1].replies
    with Session(receipts) as session:
        session.start("sleep", "60")
        session.go().until("ignored")
        session.cancel(graceMs=5000).finish()
        yield session.replies


def refusals(receipts: Path) -> Iterator[list[dict[str, Any]]]:
    """Before a job, without an id; after one is prepared; by the place."""
    for raw in (b"{}\n", b"\n", b'{"id": 1', json.dumps(request(cwd="/no/such")).encode() + b"\n"):
        with Session(receipts) as session:
            session.send_raw(raw)
            session.hang_up().finish()
            yield session.replies
    with Session(receipts) as session:
        session.request("true").until("prepared")
        session.go("00" * 32).finish()
        yield session.replies
    open_place = receipts.parent / "open"
    open_place.mkdir()
    open_place.chmod(0o755)
    with Session(open_place) as session:
        session.request("true").finish()
        yield session.replies


def lost(receipts: Path) -> Iterator[list[dict[str, Any]]]:
    """A wrapper that is killed, for inspect to find."""
    with Session(receipts) as session:
        init = session.start("sleep", "60")["namespaceInit"]
        session.process.kill()
        wait_until(lambda: not alive(init["pid"], init["startTicks"]))
        yield session.replies


def inspected(receipts: Path) -> list[dict[str, Any]]:
    """Everything that is there, a job that is alive, one in somebody's hands, and one that cannot be read."""
    (receipts / f"{new_id()}.json").write_bytes(b"\0" * 20)
    with Session(receipts) as session:
        session.start("sleep", "60")
        _, busy = inspect(receipts, session.id)
        kill(session.process.pid, signal.SIGKILL)
        _, finished = inspect(receipts, session.id, "--finish")
    return busy + finished + inspect(receipts)[1]


def test_the_schema_is_a_schema() -> None:
    """Draft 2020-12, and every reference leads somewhere."""
    Draft202012Validator.check_schema(SCHEMA)
    for name in SCHEMA["$defs"]:
        list(validator(name).iter_errors({}))


@pytest.mark.parametrize("name", MESSAGES)
def test_every_real_message_is_valid(name: str, told: dict[str, list[dict[str, Any]]]) -> None:
    """What the wrapper says is what the schema says; and one line is one kind of message, never two."""
    assert told[name], f"no session said {name}"
    for message in told[name]:
        validator(name).validate(message)
        ANY.validate(message)


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_without_a_required_field_is_invalid(
    name: str, told: dict[str, list[dict[str, Any]]]
) -> None:
    """The negative control: each required field is really asked for."""
    message = told[name][0]
    for field in SCHEMA["$defs"][name]["required"]:
        less = {key: value for key, value in message.items() if key != field}
        assert not validator(name).is_valid(less), f"{name} without {field}"


@pytest.mark.parametrize("name", MESSAGES)
def test_a_field_of_a_wrong_type_is_invalid(name: str, told: dict[str, list[dict[str, Any]]]) -> None:
    """The negative control for every field that was said: no field takes just anything."""
    for message in told[name]:
        for field in set(message) & set(properties(name)):
            assert not validator(name).is_valid({**message, field: [{}]}), f"{name}.{field}"


@pytest.mark.parametrize("name", MESSAGES)
def test_unknown_fields_are_refused_in_requests_and_read_over_in_replies(
    name: str, told: dict[str, list[dict[str, Any]]]
) -> None:
    """A host that misspells a limit is told; a wrapper that says more breaks no host. `x-` is always the host's."""
    more = {**told[name][0], "newField": 1}
    assert validator(name).is_valid(more) == (name not in STRICT)
    assert validator(name).is_valid({**told[name][0], "x-note": [1]})


def test_every_field_that_is_said_is_described(told: dict[str, list[dict[str, Any]]]) -> None:
    """Open for newer versions does not mean silent about this one."""
    for name in MESSAGES:
        said = {field for message in told[name] for field in message}
        assert said <= set(properties(name)), name
    parts = {
        "namespaceInit": "namespaceInit",
        "outcome": "outcome",
        "usage": "usage",
        "leftovers": "leftovers",
    }
    for message in (message for messages in told.values() for message in messages):
        for field, part in parts.items():
            assert set(message.get(field, ())) <= set(properties(part)), field
        assert set(message.get("held", ())) <= set(properties("obstacle"))


def test_parser_and_schema_name_the_same_fields() -> None:
    """What contain.protocol reads is what the schema allows, no more and no less."""
    assert set(SCHEMA["$defs"]["request"]["required"]) == set(protocol.REQUIRED)
    assert set(properties("request")) == set(protocol.REQUIRED) | set(protocol.OPTIONAL)
    assert set(properties("limits")) == set(protocol.LIMIT_FIELDS) | {"nice", "cpus"}
    assert properties("request")["requireTier"]["enum"] == list(job.TIERS)
    assert properties("request")["graceMs"]["default"] == job.GRACE_MS
    assert properties("request")["killMs"]["default"] == job.KILL_MS
    assert SCHEMA["$defs"]["milliseconds"]["maximum"] == protocol.LONGEST_MS


OF_THE_BUDGET = {
    "bad-policy",
    "costs-unusable",
    "nested-unanswered",
    "nested-refused",
    "no-evidence",
    "registry-locked",
    "registry-damaged",
    "permit-lost",
    "waited-too-long",
    "interrupted",
    "impossible-request",
    "operator-file",
}
"""Said on standard error, or by contain permit, whose schema is its own: no host of jobs meets them."""


def test_words_of_the_schema_are_those_of_the_code() -> None:
    """Causes and reasons: listed once more for hosts, and never out of date."""
    assert known(properties("outcome")["cause"]) == set(CAUSES)
    reasons = {kind.reason for kind in errors.ContainError.__subclasses__()}
    assert known(properties("refused")["reason"]) == reasons - {"usage", "no-receipt", "held"} - OF_THE_BUDGET


REQUESTS: tuple[dict[str, object], ...] = (
    {},
    {"id": ID.upper()},
    {"id": ID.replace("-", "")},
    {"id": 5},
    {"id": "{" + ID + "}"},
    {"token": TOKEN.upper()},
    {"token": TOKEN[1:]},
    {"token": TOKEN + "\n"},
    {"command": ""},
    {"command": "a\0b"},
    {"args": "true"},
    {"args": [1]},
    {"args": ["", "\udc80", "a\nb"]},
    {"cwd": None},
    {"env": {}},
    {"env": {"": "x"}},
    {"env": {"A=B": "x"}},
    {"env": {"A": 1}},
    {"env": []},
    {"limits": {}},
    {"limits": {"openFiles": 2**63 - 1, "nice": -20}},
    {"limits": {"openFiles": 2**63}},
    {"limits": {"nice": 20}},
    {"limits": {"x-note": 1}},
    {"graceMs": 0},
    {"graceMs": 2**31 - 1},
    {"graceMs": 2**31},
    {"graceMs": -1},
    {"graceMs": True},
    {"killMs": "5"},
    {"timeoutMs": None},
    {"timeoutMs": 1.5},
    {"requireTier": "namespace"},
    {"requireTier": "vm"},
    {"x-anything": {"a": 1}},
    {"shell": True},
)


@pytest.mark.parametrize("extra", REQUESTS, ids=repr)
def test_parser_and_schema_take_the_same_requests(extra: dict[str, object]) -> None:
    """A host that validates before it writes is never refused for a field's type, and never passes what is."""
    message = request(**extra)
    try:
        protocol.parse_request(json.dumps(message).encode())
        parsed = True
    except errors.ContainError:
        parsed = False
    assert validator("request").is_valid(message) == parsed


ACTIONS: tuple[dict[str, object], ...] = (
    {},
    {"action": "cancel"},
    {"action": "cancel", "graceMs": 0},
    {"action": "cancel", "graceMs": 2**31},
    {"action": "go", "graceMs": 0},
    {"action": "stop"},
    {"action": None},
    {"token": None},
    {"id": None},
    {"x-note": 1},
    {"note": 1},
)


@pytest.mark.parametrize("extra", ACTIONS, ids=repr)
def test_parser_and_schema_take_the_same_actions(extra: dict[str, object]) -> None:
    """The same for go and cancel."""
    asked = protocol.parse_request(json.dumps(request()).encode())
    message = {"id": asked.job.id, "token": asked.token, "action": "go", **extra}
    try:
        protocol.parse_action(json.dumps(message).encode(), asked)
        parsed = True
    except errors.ContainError:
        parsed = False
    assert validator("action").is_valid(message) == parsed


def test_the_schema_is_shipped() -> None:
    """The build counts it among the data of the package, so a wheel and a source distribution hold it."""
    program = (
        "from setuptools.dist import Distribution\n"
        "found = Distribution()\n"
        "found.parse_config_files(['pyproject.toml'], ignore_option_errors=True)\n"
        "build = found.get_command_obj('build_py')\n"
        "build.ensure_finalized()\n"
        "print(*(f'{package}/{name}' for package, _, _, names in build.data_files for name in names))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "contain/schemas/protocol.json" in done.stdout.split(), done.stderr
