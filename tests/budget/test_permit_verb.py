"""``contain permit``: a host in another process asks, binds what it starts elsewhere, and returns on evidence alone."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from jsonschema import Draft202012Validator

from tests.blocked import needs_root
from tests.budget.scripted import calm, in_an_account, words
from tests.session import ROOT, WAIT_S, Session, inspect, installed, kill, new_id, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [needs_root, pytest.mark.slow]
VALID = Draft202012Validator(json.loads((ROOT / "contain" / "schemas" / "permit.json").read_text("ascii")))
Reply = dict[str, Any]


class Counter:
    """One ``contain permit`` in an account of its own, from its host's side."""

    def __init__(self, path: Path) -> None:
        """Starts it."""
        self.path = path
        self.replies: list[Reply] = []
        self.process = subprocess.Popen(
            words(path, "exec $C permit"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def say(self, permit_id: str, action: str, **fields: object) -> Self:
        """One message; it is of the schema."""
        message = {"id": permit_id, "action": action, **fields}
        VALID.validate(message)
        return self.raw(json.dumps(message).encode() + b"\n")

    def raw(self, data: bytes) -> Self:
        """Bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        return self

    def ask(self, *command: str, **fields: object) -> str:
        """An ask; its id."""
        permit_id = new_id()
        self.say(permit_id, "ask", command=command[0], args=list(command[1:]), **fields)
        return permit_id

    def hear(self, permit_id: str | None, event: str | None = None) -> Reply:
        """The next reply for this id, if it is an ``event``; earlier ones that were passed over included."""
        while (found := self._heard(permit_id, event)) is None:
            assert self.process.stdout is not None
            line = self.process.stdout.readline()
            assert line, f"it ended; so far: {self.replies}"
            reply = json.loads(line)
            VALID.validate(reply)
            self.replies.append(reply)
        return found

    def _heard(self, permit_id: str | None, event: str | None) -> Reply | None:
        for number, reply in enumerate(self.replies):
            if reply["id"] == permit_id and event in (None, reply["event"]):
                return self.replies.pop(number)
        return None

    def hang_up(self) -> int:
        """The end of its input; what it still says is kept. Its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.stdout is not None
        self.replies += [json.loads(line) for line in self.process.stdout]
        return self.process.wait(WAIT_S)

    def status(self) -> Reply:
        """What stands in the account's registry."""
        found: Reply = json.loads(in_an_account(self.path, "$C status").stdout)
        return found

    def close(self) -> None:
        """Ends it, by its id."""
        if self.process.poll() is None:
            self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait(WAIT_S)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Counter]]:
    """Starts one with a policy of so many units."""
    with contextlib.ExitStack() as stack:

        def start(base: int = 1, more: str = "") -> Counter:
            in_an_account(tmp_path, calm(base) + more)
            counter = Counter(tmp_path)
            stack.callback(counter.close)
            return counter

        yield start


@pytest.fixture
def job(receipts: Path) -> Iterator[Callable[..., Session]]:
    """A ``contain run`` that has said prepared, under a permit's id."""
    with contextlib.ExitStack() as stack:

        def start(permit_id: str, *command: str) -> Session:
            session = stack.enter_context(Session(receipts))
            session.request(command[0], *command[1:], permitId=permit_id)
            session.until("prepared")
            return session

        yield start


def bind(counter: Counter, permit_id: str, session: Session, receipts: Path) -> None:
    """Binds a permit to what a session has prepared."""
    proof = session.replies[0]["namespaceInit"]
    counter.say(permit_id, "bind", proof=proof, receipts=str(receipts), jobId=session.id)


def test_from_the_ask_to_the_return(
    opened: Callable[..., Counter], job: Callable[..., Session], receipts: Path
) -> None:
    """Granted, bound before the gate, refused while the tree lives, returned when the receipt says that it is gone."""
    counter = opened()
    permit_id = counter.ask("sleep", "1000", session="mine", holder="task 7")
    granted = counter.hear(permit_id, "granted")
    assert (granted["units"], granted["how"]) == (1, "limit")
    assert granted["env"]["set"]["CARGO_BUILD_JOBS"] == "1"
    session = job(permit_id, "sleep", "1000")
    bind(counter, permit_id, session, receipts)
    counter.hear(permit_id, "bound")
    session.go().until("running")
    [held] = counter.status()["permits"]
    assert (held["session"], held["holder"], held["job"]) == ("mine", "task 7", session.id)
    assert held["state"] in ("bound", "running")
    counter.say(permit_id, "release")
    assert counter.hear(permit_id, "refused")["reason"] == "no-evidence"
    session.cancel().finish()
    counter.say(permit_id, "release")
    assert counter.hear(permit_id, "returned")["why"]
    assert counter.status()["permits"] == []
    assert counter.hang_up() == 0


def test_a_wrapper_that_dies_returns_its_permit(
    opened: Callable[..., Counter], job: Callable[..., Session], receipts: Path
) -> None:
    """The tree is seen to be gone: nobody has to say it, and a release after that is no fault."""
    counter = opened()
    permit_id = counter.ask("sleep", "1000")
    counter.hear(permit_id, "granted")
    session = job(permit_id, "sleep", "1000")
    bind(counter, permit_id, session, receipts)
    session.go().until("running")
    kill(session.process.pid)
    assert counter.hear(permit_id, "returned")["why"] == "its tree is gone"
    counter.say(permit_id, "release")
    assert counter.hear(permit_id, "ignored")["reason"] == "not-live"


def test_many_wait_in_one_thread(opened: Callable[..., Counter]) -> None:
    """Sixty at two units: each is granted in turn, never three at a time, and all of it in one thread."""
    counter = opened(2)
    ids = [counter.ask("sleep", "1") for _ in range(60)]
    left, most = set(ids), 0
    while left:
        held = [one for one in left if counter.replies and _granted(counter, one)]
        if not held:
            permit_id = counter.hear(next(iter(left)), None)["id"] if len(left) == 1 else _next(counter)
            held = [permit_id] if _granted(counter, permit_id) else []
        most = max(most, len(held))
        assert "Threads:\t1\n" in Path(f"/proc/{counter.process.pid}/status").read_text()
        for permit_id in held:
            counter.say(permit_id, "withdraw").hear(permit_id, "withdrawn")
            left.discard(permit_id)
    assert most <= 2
    found = counter.status()
    assert (found["permits"], found["waiting"]) == ([], [])


def _next(counter: Counter) -> str:
    """Reads one more reply, and says whose it is."""
    assert counter.process.stdout is not None
    counter.replies.append(json.loads(counter.process.stdout.readline()))
    return str(counter.replies[-1]["id"])


def _granted(counter: Counter, permit_id: str) -> bool:
    return any((one["id"], one["event"]) == (permit_id, "granted") for one in counter.replies)


def test_what_waits_is_said_once_and_on_change(opened: Callable[..., Counter]) -> None:
    """The place and the reasons; not again while they are the same, though everybody looks every two seconds."""
    counter = opened()
    first, second = counter.ask("sleep", "1"), counter.ask("sleep", "1", maxWaitMs=5000)
    counter.hear(first, "granted")
    waiting = counter.hear(second, "waiting")
    assert (waiting["place"], waiting["waiting"]) == (1, 1)
    assert "cpu: needs 1, has 0 of 1" in waiting["reasons"][0]
    assert counter.hear(second, "refused")["reason"] == "waited-too-long"
    again = counter.say(second, "ask", **{"class": "lint"})
    assert again.hear(second, "waiting")["place"] == 1
    counter.say(first, "withdraw")
    counter.hear(second, "granted")


def test_the_end_of_input_leaves_what_is_bound_to_its_tree(
    opened: Callable[..., Counter], job: Callable[..., Session], receipts: Path
) -> None:
    """What waits and what is not bound is withdrawn; the bound one returns when its tree is gone, and not before."""
    counter = opened(2)
    bound, unbound = counter.ask("sleep", "1000"), counter.ask("sleep", "1000")
    waiting = counter.ask("sleep", "1")
    session = job(bound, "sleep", "1000")
    for permit_id in (bound, unbound):
        counter.hear(permit_id, "granted")
    bind(counter, bound, session, receipts)
    counter.hear(bound, "bound")
    session.go().until("running")
    assert counter.hang_up() == 0
    told = {(one["id"], one["event"]) for one in counter.replies if one["event"] == "withdrawn"}
    assert told == {(unbound, "withdrawn"), (waiting, "withdrawn")}
    found = counter.status()
    assert [(one["id"], one["state"]) for one in found["permits"]] == [(bound, "cleanup")]
    assert found["waiting"] == []
    session.cancel().finish()
    assert counter.status()["permits"] == []


def test_a_kill_leaves_the_same(
    opened: Callable[..., Counter], job: Callable[..., Session], receipts: Path
) -> None:
    """SIGKILL: whoever looks next sees that the owner is gone."""
    counter = opened(2)
    bound, unbound = counter.ask("sleep", "1000"), counter.ask("sleep", "1000")
    waiting = counter.ask("sleep", "1")
    session = job(bound, "sleep", "1000")
    counter.hear(unbound, "granted")
    bind(counter, bound, session, receipts)
    counter.hear(bound, "bound")
    counter.hear(waiting, "waiting")
    kill(counter.process.pid, signal.SIGKILL)
    counter.process.wait(WAIT_S)
    found = counter.status()
    assert [(one["id"], one["state"]) for one in found["permits"]] == [(bound, "cleanup")]
    assert found["waiting"] == []
    session.cancel().finish()
    assert inspect(receipts, session.id)[0] == 0
    assert counter.status()["permits"] == []


def test_a_bind_needs_the_receipt_of_this_permit(
    opened: Callable[..., Counter], job: Callable[..., Session], receipts: Path, tmp_path: Path
) -> None:
    """Of another permit, of another proof, in another directory: refused, and the permit stays granted."""
    counter = opened(2)
    permit_id = counter.ask("sleep", "1000")
    counter.hear(permit_id, "granted")
    session, other = job(permit_id, "sleep", "1000"), job(new_id(), "sleep", "1000")
    proof = session.replies[0]["namespaceInit"]
    for fields in (
        {"proof": proof, "receipts": str(receipts), "jobId": other.id},
        {"proof": other.replies[0]["namespaceInit"], "receipts": str(receipts), "jobId": session.id},
        {"proof": proof, "receipts": str(tmp_path / "none"), "jobId": session.id},
    ):
        counter.say(permit_id, "bind", **fields)
        assert counter.hear(permit_id, "refused")["reason"] == "no-evidence"
    bind(counter, permit_id, session, receipts)
    assert counter.hear(permit_id)["event"] == "bound"
    for action in ("bind", "withdraw"):
        fields = {"proof": proof, "receipts": str(receipts), "jobId": session.id} if action == "bind" else {}
        counter.say(permit_id, action, **fields)
        assert counter.hear(permit_id, "refused")["reason"] == "protocol"


def test_a_grant_that_is_not_taken_waits_in_its_place(
    opened: Callable[..., Counter], job: Callable[..., Session], receipts: Path
) -> None:
    """A bind after ten seconds is refused, and the permit is granted again."""
    counter = opened()
    permit_id = counter.ask("sleep", "1000")
    counter.hear(permit_id, "granted")
    session = job(permit_id, "sleep", "1000")
    wait_until(
        lambda: [one["dormant"] for one in counter.status()["waiting"]] == [True], what="it is dormant"
    )
    bind(counter, permit_id, session, receipts)
    assert counter.hear(permit_id, "refused")["reason"] == "permit-lost"
    counter.hear(permit_id, "granted")
    bind(counter, permit_id, session, receipts)
    counter.hear(permit_id, "bound")


def test_targets_are_followed(
    opened: Callable[..., Counter], job: Callable[..., Session], receipts: Path
) -> None:
    """Alone it may take everything; when somebody waits it is told to give back, and only what it says is free."""
    counter = opened(2, "sed -i '1a order = \"fair\"' ~/.contain/policy.toml")
    permit_id = counter.ask("make", "all", session="a", resizable=True)
    assert counter.hear(permit_id, "granted")["units"] == 1
    session = job(permit_id, "sleep", "1000")
    bind(counter, permit_id, session, receipts)
    assert counter.hear(permit_id, "target")["units"] == 2
    counter.say(permit_id, "settled", units=2).hear(permit_id, "settled")
    other = counter.ask("sleep", "1", session="b")
    assert counter.hear(permit_id, "target")["units"] == 1
    assert counter.status()["permits"][0]["units"] == 2
    counter.say(permit_id, "settled", units=3)
    assert counter.hear(permit_id, "refused")["reason"] == "protocol"
    counter.say(permit_id, "settled", units=1)
    assert counter.hear(other, "granted")["units"] == 1


def test_a_session_outlives_a_damaged_registry(
    opened: Callable[..., Counter], job: Callable[..., Session], receipts: Path
) -> None:
    """What is said meanwhile is refused and loses nothing; after the repair it is as if nothing had been."""
    counter = opened()
    permit_id = counter.ask("sleep", "1000")
    counter.hear(permit_id, "granted")
    session = job(permit_id, "sleep", "1000")
    bind(counter, permit_id, session, receipts)
    counter.hear(permit_id, "bound")
    waiting = counter.ask("sleep", "1")
    counter.hear(waiting, "waiting")
    for path in (counter.path / "root" / "live").glob("*/registry.db*"):
        path.unlink()
    refused = counter.ask("sleep", "1")
    assert counter.hear(refused, "refused")["reason"] == "registry-damaged"
    assert "contain repair" in counter.hear(waiting, "waiting")["reasons"][0]
    assert in_an_account(counter.path, "$C repair").returncode == 0
    while counter.hear(waiting, "waiting")["place"] != 1:
        pass
    assert [(one["id"], one["how"]) for one in counter.status()["permits"]] == [(permit_id, "rebuilt")]
    session.cancel().finish()
    counter.hear(permit_id, "returned")
    counter.hear(waiting, "granted")


NO_HARM: tuple[tuple[dict[str, object], str], ...] = (
    ({"action": "ask"}, "protocol"),
    ({"action": "ask", "command": "true", "class": "test"}, "protocol"),
    ({"action": "ask", "class": "nonsense"}, "protocol"),
    ({"action": "ask", "command": "true", "speed": 1}, "protocol"),
    ({"action": "ask", "command": "true", "cwd": "relative"}, "protocol"),
    ({"action": "ask", "command": "true", "draws": {"gpu": 0}}, "protocol"),
    ({"action": "ask", "command": "true", "draws": {"gpu": 2}}, "impossible-request"),
    ({"action": "ask", "command": "true", "draws": {"tpu": 1}}, "impossible-request"),
    ({"action": "bind", "proof": {}, "receipts": "/", "jobId": 5}, "protocol"),
    ({"action": "fly"}, "protocol"),
    ({}, "protocol"),
)


def test_what_is_not_allowed_is_refused_and_the_session_goes_on(opened: Callable[..., Counter]) -> None:
    """One answer a line, with its id; nothing is left in the registry, and a good line is answered afterwards."""
    counter = opened()
    for line in (b"\n", b"hello\n", b"[]\n", b'{"id":5,"action":"ask"}\n'):
        assert counter.raw(line).hear(None)["reason"] == "protocol"
    for fields, reason in NO_HARM:
        permit_id = new_id()
        counter.raw(json.dumps({"id": permit_id, **fields}).encode() + b"\n")
        assert counter.hear(permit_id, "refused")["reason"] == reason, fields
    unknown = new_id()
    assert counter.say(unknown, "release").hear(unknown)["event"] == "ignored"
    permit_id = counter.ask("sleep", "1", draws={"gpu": 1, "port:6298": 1})
    assert counter.hear(permit_id, "granted")["draws"] == {"gpu": 1, "port:6298": 1}
    counter.say(permit_id, "ask", command="true")
    assert counter.hear(permit_id, "refused")["reason"] == "busy"
    counter.say(permit_id, "release")
    assert counter.hear(permit_id, "refused")["reason"] == "protocol"
    assert [one["id"] for one in counter.status()["permits"]] == [permit_id]


def test_the_session_of_the_page_is_of_the_schema() -> None:
    """Each line that docs/PROTOCOL.md shows."""
    page = (ROOT / "docs" / "PROTOCOL.md").read_text(encoding="utf-8")
    [block] = re.findall(r"^```permit\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for line in block.splitlines():
        VALID.validate(json.loads(line.partition("> ")[2]))


def test_the_example_host_works_beside_contain_run(tmp_path: Path) -> None:
    """Its command's status is its own, and nothing is left of the permit."""
    bin_dir, receipts = tmp_path / "bin", tmp_path / "receipts"
    for one in (bin_dir, receipts):
        one.mkdir(mode=0o700)
    installed(bin_dir)
    host = ROOT / "docs" / "examples" / "budget_host.py"
    script = f"""export PATH={bin_dir}:$PATH; {host} {receipts} sh -c 'echo jobs=$CARGO_BUILD_JOBS >&2; exit 7'
echo code=$?; {host} {receipts} true; echo code=$?; $C status"""
    done = in_an_account(tmp_path, calm(1) + script)
    lines = done.stdout.splitlines()
    assert lines[:2] == ["code=7", "code=0"], done.stderr
    assert "jobs=1" in done.stderr
    assert json.loads(lines[2])["permits"] == []
