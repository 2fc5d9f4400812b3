"""The same lifecycle, receipts and protocol as on Linux, above the Darwin backend."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from contain.darwin import ending
from tests.darwin.jobs import inspected, members, session, until_gone
from tests.session import wait_file

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.world import World
    from tests.session import Reply


def whole(xnu: World, receipts: Path, command: str, *words: str, **extra: object) -> list[Reply]:
    """The replies of one job that ends by itself."""
    with session(xnu, receipts) as job:
        job.start(command, *words, **extra)
        job.finish()
        return job.replies


def test_a_job_from_request_to_released(xnu: World, receipts: Path) -> None:
    """Each step is said, the proof is the anchor's, and the receipt is what was said."""
    replies = whole(xnu, receipts, "sh", "-c", "exit 3")
    assert [reply["event"] for reply in replies] == ["prepared", "running", "exited", "released"]
    prepared, released = replies[0], replies[-1]
    anchor = prepared["anchor"]
    assert (prepared["tier"], anchor["scope"], anchor["signal"]) == ("session", "session", "exact")
    assert (released["empty"], released["outcome"]["cause"], released["outcome"]["code"]) == (
        True,
        "exited",
        3,
    )
    assert (released["anchor"], released["detached"]) == (anchor, "not-observed")
    (path,) = receipts.glob("*.json")
    assert json.loads(path.read_text())["proof"] == anchor
    assert inspected(xnu, receipts)["state"] == "released"


def test_the_command_gets_what_was_asked_for(xnu: World, receipts: Path, tmp_path: Path) -> None:
    """Directory, environment, limits, no descriptors of ours but the mark, default signals."""
    text = f'{{ pwd; echo "$A"; ulimit -n; ls /proc/self/fd | sort -n | tr "\\n" " "; }} > {tmp_path}/out'
    whole(
        xnu,
        receipts,
        "/bin/sh",
        "-c",
        text,
        cwd="/",
        env={"A": "b c", "PATH": "/bin:/usr/bin"},
        limits={"openFiles": 300},
    )
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines[:3] == ["/", "b c", "300"]
    assert lines[3].split() == ["0", "1", "2", "3", "198"]  # 3: ls's own


def test_what_cannot_be_executed_is_told(xnu: World, receipts: Path) -> None:
    """With its errno; nothing ran."""
    released = whole(xnu, receipts, "/no/such/command")[-1]
    assert (released["state"], released["outcome"]["cause"], released["outcome"]["errno"]) == (
        "released",
        "exec-failed",
        2,
    )
    assert released["ran"] is False


def test_a_signal_is_the_outcome(xnu: World, receipts: Path) -> None:
    """The wait status is latched."""
    outcome = whole(xnu, receipts, "sh", "-c", "kill -9 $$")[-1]["outcome"]
    assert (outcome["cause"], outcome["signal"]) == ("signaled", 9)


def test_nothing_runs_before_go(xnu: World, receipts: Path, tmp_path: Path) -> None:
    """A host that goes away before its word refuses."""
    with session(xnu, receipts) as job:
        job.request("touch", f"{tmp_path}/ran")
        anchor = job.until("prepared")["anchor"]["pid"]
        released = job.hang_up().finish()
    until_gone(anchor)
    assert (released["state"], released["ran"]) == ("released", False)
    assert not (tmp_path / "ran").exists()


def test_leftovers_are_named_and_ended(xnu: World, receipts: Path) -> None:
    """What outlives the command in its session gets its grace, TERM, and KILL."""
    text = "trap '' TERM; sleep 600 & exit 4"
    replies = whole(xnu, receipts, "sh", "-c", text, graceMs=100, killMs=100)
    released = replies[-1]
    assert (released["state"], released["outcome"]["code"]) == ("released", 4)
    assert released["leftovers"] == {"count": 1, "names": ["sleep"], "signal": "KILL"}
    assert members(released["anchor"]["pid"]) == []


def test_a_cancel_is_term_first(xnu: World, receipts: Path, tmp_path: Path) -> None:
    """A command that heeds it has its time."""
    text = f"trap 'echo asked > {tmp_path}/out; exit 5' TERM; echo up > {tmp_path}/up; while :; do sleep 0.05; done"
    with session(xnu, receipts) as job:
        job.start("sh", "-c", text)
        wait_file(tmp_path / "up")
        released = job.cancel(graceMs=600_000).finish()
    assert (tmp_path / "out").read_text() == "asked\n"
    assert (released["outcome"]["cause"], released["outcome"]["code"], released["outcome"]["lastSignal"]) == (
        "canceled",
        5,
        "TERM",
    )


def test_a_host_that_goes_takes_its_job_along(xnu: World, receipts: Path) -> None:
    """EOF is KILL at once."""
    with session(xnu, receipts) as job:
        anchor = job.start("sh", "-c", "trap '' TERM HUP; sleep 600")["anchor"]["pid"]
        released = job.hang_up().finish()
    assert (released["empty"], released["outcome"]["cause"]) == (True, "canceled")
    assert members(anchor) == []


def test_what_cannot_be_ended_is_held_with_its_reason(xnu: World, receipts: Path, tmp_path: Path) -> None:
    """Another user's process: named in the last reply, found again by inspect, and ended when it may be."""
    with session(xnu, receipts) as job:
        quiet = "exec > /dev/null 2>&1"  # whoever is held must not hold the wrapper's own output
        job.start("sh", "-c", f"{quiet}; trap '' HUP; sleep 600 & echo $! > {tmp_path}/pid; wait")
        child = int(wait_file(tmp_path / "pid"))
        xnu.control(f"foreign pid={child} uid=12345")
        held = job.hang_up().finish()
    assert (held["event"], held["empty"], held["detached"]) == ("held", False, "not-observed"), held
    assert [(one["pid"], one["why"]) for one in held["held"]["blockers"]] == [(child, ending.FOREIGN)]
    assert inspected(xnu, receipts)["state"] == "held"
    xnu.control("clear")
    assert inspected(xnu, receipts, job.id, "--finish")["state"] == "released"
    assert members(held["anchor"]["pid"]) == []
