"""Whatever a host sends: no crash, no hang, nothing executed without the exact token, nothing left, and a last word.

``mutants.py`` makes the sessions, ``lane.py`` the wrappers. A failure names its seed, and this repeats it:

    python -m tests.e2e.test_fuzzed_sessions SEED...
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from contain import errors
from tests.e2e import mutants
from tests.e2e.lane import Lane
from tests.e2e.mutants import MADE, Plan, Step, may_run, mutant
from tests.session import ROOT, WAIT_S, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNKS, CHUNK = 10, 100
"""1,000 sessions in forked wrappers, in tests that two workers can share; ten times as many are slow ones."""

REAL_CHUNKS, REAL_CHUNK = 2, 30
"""60 more through the real command."""

SLOW_CHUNKS, SLOW_CHUNK = 40, 500

EXIT_CODES = {0, 128 + signal.SIGTERM} | {kind.exit_code for kind in errors.ContainError.__subclasses__()}
ENDS = ("released", "held")
VALID = Draft202012Validator(json.loads((ROOT / "contain" / "schemas" / "protocol.json").read_text()))

Reply = dict[str, Any]
Order = Mapping[str, object]
NOTHING_MORE: Order = {}


class Fault(AssertionError):
    """A session in which something was wrong."""


class Conversation:
    """One plan, held with one wrapper."""

    def __init__(self, lane: Lane, plan: Plan, cwd: Path, receipts: Path, order: Order) -> None:
        """Starts the wrapper; ``order`` says more to the lane."""
        self.plan = plan
        self.heard = b""
        self.errors = b""
        self.termed = False
        (theirs_in, self._in), (self._out, theirs_out), (self._err, theirs_err) = (
            os.pipe() for _ in range(3)
        )
        os.set_blocking(self._in, False)
        theirs = [theirs_in, theirs_out, theirs_err]
        message = {"cwd": str(cwd), "receipts": str(receipts), "stdout": plan.stdout, **order}
        self._pidfd = lane.start(message, theirs)
        for fd in theirs:
            os.close(fd)

    def hold(self, wait_s: float) -> None:
        """Does what the plan says, and listens to the end. Raises Fault when that does not come."""
        deadline_s = time.monotonic() + wait_s
        for step in self.plan.steps:
            self._do(step, deadline_s)
        if not self.plan.patient():
            self._shut("_in")
        self._pump(deadline_s, lambda: self._replies_ended() and self._err < 0)

    def _do(self, step: Step, deadline_s: float) -> None:
        if step.kind == "send":
            self._write(step.data, deadline_s)
        elif step.kind == "hear":
            self._pump(deadline_s, lambda: self._replies_ended() or self.heard.count(b"\n") >= step.replies)
        elif step.kind == "term":
            self.termed = True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
        else:
            self._shut("_out" if step.kind == "deaf" else "_in")

    def _replies_ended(self) -> bool:
        return self._out < 0

    def _shut(self, name: str) -> None:
        if getattr(self, name) >= 0:
            os.close(getattr(self, name))
            setattr(self, name, -1)

    def _write(self, data: bytes, deadline_s: float) -> None:
        view = memoryview(data)
        while view and self._in >= 0:
            if self._select(deadline_s, [self._in]):
                try:
                    view = view[os.write(self._in, view) :]
                except BrokenPipeError:
                    return

    def _pump(self, deadline_s: float, done: Any) -> None:  # noqa: ANN401 - any callable
        while not done():
            self._select(deadline_s, [])

    def _select(self, deadline_s: float, writers: list[int]) -> bool:
        """Waits, and reads what there is; True when something can be written."""
        readers = [fd for fd in (self._out, self._err) if fd >= 0]
        ready = select.select(readers, writers, [], max(0.0, deadline_s - time.monotonic()))
        if not any(ready):
            raise Fault(f"it hangs; heard: {self.heard!r}")
        for fd in ready[0]:
            data = os.read(fd, 65536)
            name = "_out" if fd == self._out else "_err"
            if not data:
                self._shut(name)
            elif name == "_out":
                self.heard += data
            else:
                self.errors += data
        return bool(ready[1])

    def give_up(self) -> None:
        """Kills the wrapper."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Lets go of everything."""
        for name in ("_in", "_out", "_err", "_pidfd"):
            self._shut(name)


def check(talk: Conversation, end: dict[str, Any], made: list[str], receipts: Path) -> None:
    """Everything that must be true of any session. Raises Fault."""
    plan, code = talk.plan, end["status"]
    replies: list[Reply] = [json.loads(line) for line in talk.heard.splitlines()]
    events = [reply["event"] for reply in replies]
    early = talk.termed and code == -signal.SIGTERM and not events  # it was still on its way to its handlers
    rules = {
        "its exit code is a documented one": code in EXIT_CODES or early,
        "it has no traceback": b"Traceback" not in talk.errors and b"Fatal Python" not in talk.errors,
        "nothing of it is left": end["left"] == [],
        "nothing was executed without an exact go": not made or may_run(plan.stream()),
        "nothing ran that was not told, where one could hear": not made or "running" in events or deaf(plan),
        "the last reply is a last word": deaf(plan) or has_last_word(talk, events, code),
        "the exit code is of the last word": deaf(plan) or agrees(replies, code, termed=talk.termed),
        "a good session ends well": not plan.clean or (ended_well(replies) and made == [MADE] and code == 0),
        "its replies are of the schema": plan.seed % 10 != 0 or all(map(VALID.is_valid, replies)),
        "its receipt says the same": not ends(replies) or on_disk(receipts, replies[-1]),
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    if broken:
        raise Fault(
            f"not true: {broken}; end: {end}; made: {made}; replies: {replies}; stderr: {talk.errors!r}"
        )


def deaf(plan: Plan) -> bool:
    """The host did not listen to the end."""
    return plan.stdout == "closed" or mutants.DEAF in plan.steps


def ends(replies: list[Reply]) -> bool:
    """There was a job, and its end was told."""
    return bool(replies) and replies[-1]["event"] in ENDS


def has_last_word(talk: Conversation, events: list[str], code: int) -> bool:
    """`released` or `held` after `prepared`, else one `refused`; none only for a signal that came before a request."""
    if not events:
        return talk.termed and code in (128 + signal.SIGTERM, -signal.SIGTERM)
    return events[-1] in ENDS if "prepared" in events else events == ["refused"]


def agrees(replies: list[Reply], code: int, *, termed: bool) -> bool:
    """0 for released, the reason's own code for a refusal, 143 for a signal."""
    reasons = [reply["reason"] for reply in replies if reply["event"] == "refused"]
    codes = {kind.reason: kind.exit_code for kind in errors.ContainError.__subclasses__()}
    expected = codes[reasons[0]] if reasons else 0
    return code == expected or (termed and code in (128 + signal.SIGTERM, -signal.SIGTERM))


def ended_well(replies: list[Reply]) -> bool:
    """As a job that only had to make a file."""
    last = replies[-1] if replies else {}
    return (last.get("event"), last.get("empty"), last.get("outcome", {}).get("code")) == (
        "released",
        True,
        0,
    )


def on_disk(receipts: Path, last: Reply) -> bool:
    """The receipt has the outcome of the last reply."""
    stored = json.loads((receipts / f"{last['id'].lower()}.json").read_text())
    return bool((stored["state"], stored["outcome"]) == (last["event"], last["outcome"]))


class Ground:
    """Where sessions are held: a directory of commands, one of receipts, and one for each session."""

    def __init__(self, where: Path) -> None:
        """Makes them."""
        self.commands, self.receipts, self.sessions = (
            where / name for name in ("bin", "receipts", "sessions")
        )
        for place in (self.commands, self.receipts, self.sessions):
            place.mkdir(mode=0o700)
        touch, sleep = shutil.which("touch"), shutil.which("sleep")
        assert touch is not None
        assert sleep is not None
        (self.commands / mutants.QUICK).symlink_to(touch)
        slow = self.commands / mutants.SLOW
        slow.write_text(f'#!/bin/sh\n: >"$1"\nexec {sleep} 60\n')
        slow.chmod(0o755)

    def hold(
        self, lane: Lane, plan: Plan, order: Order = NOTHING_MORE, wait_s: float = WAIT_S
    ) -> Conversation:
        """One session, from its start to the checks. Raises Fault, with what repeats it."""
        cwd = self.sessions / f"{plan.seed}"
        cwd.mkdir()
        talk = Conversation(lane, plan, cwd, self.receipts, order)
        try:
            try:
                talk.hold(wait_s)
            except Fault:
                talk.give_up()
                lane.end(WAIT_S)
                raise
            check(talk, lane.end(WAIT_S), [path.name for path in cwd.iterdir()], self.receipts)
        except Fault as fault:
            raise Fault(f"seed {plan.seed} ({plan.name}), {order}: {fault!s}; steps: {brief(plan)}") from None
        finally:
            talk.close()
            shutil.rmtree(cwd)
        return talk

    def settled(self) -> None:
        """Nothing is held, busy or unreadable, whatever has been done here."""
        code, found = inspect(self.receipts)
        assert (code, {reply["state"] for reply in found} - {"released"}) == (0, set())
        assert all(reply["empty"] is True for reply in found)


def brief(plan: Plan) -> list[object]:
    """The steps, without the long ones' middles."""
    return [
        (step.kind, step.data if len(step.data) < 900 else step.data[-400:], step.replies)
        for step in plan.steps
    ]


@pytest.fixture
def ground() -> Iterator[Ground]:
    """In memory where there is such a file system: thousands of sessions are thousands of syncs of the disk."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="contain-fuzz-", dir=memory) as where:
        yield Ground(Path(where))


def hold_many(ground: Ground, seeds: range, order: Order = NOTHING_MORE) -> None:
    """Sessions of consecutive seeds in one lane."""
    with Lane(ROOT, ground.commands) as lane:
        for seed in seeds:
            ground.hold(lane, mutant(seed), order)
    ground.settled()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_session_breaks_a_wrapper(chunk: int, ground: Ground) -> None:
    """A hundred seeds, each a forked wrapper of its own."""
    hold_many(ground, range(chunk * CHUNK, (chunk + 1) * CHUNK))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("chunk", range(REAL_CHUNKS))
def test_no_session_breaks_the_real_command(chunk: int, ground: Ground) -> None:
    """The same through a Python that starts: also what happens before its handlers stand."""
    first = 1_000_000 + chunk * REAL_CHUNK
    hold_many(ground, range(first, first + REAL_CHUNK), {"real": True})


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("chunk", range(SLOW_CHUNKS))
def test_many_more_sessions(chunk: int, ground: Ground) -> None:
    """Twenty thousand more."""
    first = 2_000_000 + chunk * SLOW_CHUNK
    hold_many(ground, range(first, first + SLOW_CHUNK))


# -- the checks themselves -------------------------------------------------------------------------------------------


def plan_of(name: str, seed: int = 0) -> Plan:
    """The first patient plan of a kind from ``seed`` on."""
    plans = map(mutant, range(seed, seed + 20_000))
    return next(plan for plan in plans if plan.name == name and plan.patient())


@pytest.mark.parametrize(
    ("sabotage", "kind", "rule"),
    [
        ("any-token", "wrong_field", "without an exact go"),
        ("raises", "clean", "has no traceback"),
        ("leaves", "clean", "nothing of it is left"),
        ("mute", "clean", "last reply is a last word"),
        ("odd-exit", "clean", "exit code is a documented one"),
        ("hangs", "clean", "it hangs"),
    ],
)
def test_a_broken_wrapper_is_noticed(sabotage: str, kind: str, rule: str, ground: Ground) -> None:
    """The negative controls: a wrapper that is broken in one way breaks the rule that is meant for it."""
    plan = plan_of(kind)
    with Lane(ROOT, ground.commands) as lane:
        ground.hold(lane, plan)  # nothing is wrong with such a plan
        fresh = plan_of(kind, plan.seed + 1)
        with pytest.raises(Fault, match=rule):
            ground.hold(
                lane, fresh, {"sabotage": sabotage, "leftS": 0.3}, 2.0 if sabotage == "hangs" else WAIT_S
            )


def test_every_kind_of_mutant_is_among_the_seeds() -> None:
    """No kind is so rare that CI never holds it; and most seeds do not simply run."""
    plans = [mutant(seed) for seed in range(CHUNKS * CHUNK)]
    assert {plan.name for plan in plans} == {make.__name__ for _, make in mutants.KINDS}
    runs = sum(may_run(plan.stream()) for plan in plans)
    assert len(plans) // 5 < runs < len(plans) // 2
    assert mutant(7) == mutant(7)


def test_no_mutant_names_a_place_outside() -> None:
    """Commands and arguments stay in the session's own directory, whatever bits were flipped."""
    assert not any(b"/" in mutant(seed).stream() for seed in range(CHUNKS * CHUNK))


GO = {"id": "I", "token": "T", "action": "go"}
SECONDS: list[tuple[str, bool]] = [
    (json.dumps(GO), True),
    (f"  {json.dumps(GO)}\t\r", True),
    (json.dumps({**GO, "id": "i", "x-note": [1]}), True),
    (json.dumps({**GO, "note": 1}), False),
    (json.dumps({**GO, "token": "t"}), False),
    (json.dumps({**GO, "action": "cancel"}), False),
    (json.dumps(GO)[:-1], False),
    (json.dumps(GO)[:-1] + ', "action": "go"}', False),
    (json.dumps({**GO, "x-note": float("nan")}), False),
    (f"[{json.dumps(GO)}]", False),
    (" " * mutants.ACTION_BYTES + json.dumps(GO), False),
    ("", False),
]


@pytest.mark.parametrize(("second", "runs"), SECONDS, ids=range(len(SECONDS)))
def test_the_oracle_knows_an_exact_go(second: str, runs: bool) -> None:  # noqa: FBT001 - a column of the table
    """What the other tests rely on: only the second line counts, and only when it is whole and exact."""
    first = json.dumps({"id": "I", "token": "T"})
    assert may_run(f"{first}\n{second}\n".encode()) is runs
    assert not may_run(f"{first}\n{second}".encode())
    assert not may_run(f"{first}\n\n{second}\n".encode())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        there = Ground(Path(scratch))
        with Lane(ROOT, there.commands) as only:
            for wanted in map(int, sys.argv[1:]):
                held = there.hold(only, mutant(wanted), {"real": wanted // 1_000_000 == 1})
                sys.stdout.write(f"{wanted}: {held.plan.name}: {held.heard.decode()}\n")
