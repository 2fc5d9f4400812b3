"""Scenarios of commands that wait for a permit and are ended in every way: as typed, in an account of their own."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.blocked import needs_root
from tests.budget.account import HOME, ONE_UNIT, Account
from tests.exec.terminals import Terminal
from tests.session import WAIT_S, alive, kill, wait_file, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.timeout(180)]

SECRET = "a-word-that-only-the-command-knows"  # noqa: S105 - it is none


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """Of one unit."""
    with ExitStack() as stack:
        yield Account(tmp_path, stack)


def init_of(account: Account, name: str) -> tuple[int, int]:
    """(pid, start ticks) of the init whose tree a session's permit follows."""
    row = account.permit(name)
    assert row is not None
    assert row.proof is not None
    proof = json.loads(row.proof)
    return proof["pid"], proof["startTicks"]


def test_a_lifetime_that_ends_leaves_nothing(account: Account) -> None:
    """One runs and one waits, each in a group of its own: both are told to end, and the place can be removed."""
    running = account.holds("a", "sleep", "1000", start_new_session=True)
    waiting = account.waits("b", "touch", "ran", start_new_session=True)
    init = init_of(account, "a")
    for process in (waiting, running):
        kill(process.pid, signal.SIGTERM)
    assert [one.wait(WAIT_S) for one in (running, waiting)] == [128 + signal.SIGTERM] * 2
    assert not alive(*init)
    assert account.empty()
    shutil.rmtree(account.root / "live")
    assert not (account.folder / "ran").exists()


def test_term_ends_it_and_frees_its_place(account: Account) -> None:
    """The status is the signal's, the tree is gone before it is said, and why the permit returned is on record."""
    process = account.holds("a", "sleep", "1000")
    init = init_of(account, "a")
    kill(process.pid, signal.SIGTERM)
    assert process.wait(WAIT_S) == 128 + signal.SIGTERM
    assert not alive(*init)
    assert account.empty()
    assert account.past()[-1] == ("returned", "a", "its receipt says released, empty")


def test_no_variable_makes_more_room(account: Account) -> None:
    """Three ask in turn, with every word of their environment against it; and the registry holds no argument."""
    elsewhere = account.folder / "elsewhere"
    env = {
        **os.environ,
        "HEAVY_SLOTS": "99",
        "CONTAIN_POLICY": str(elsewhere),
        "CONTAIN_ROOT": str(elsewhere),
        "HOME": str(elsewhere),
        "XDG_STATE_HOME": str(elsewhere),
    }
    first = account.holds("a", "sh", "-c", f"cat; : {SECRET}", env=env, stdin=subprocess.PIPE)
    second = account.waits("b", "echo", SECRET, env=env)
    third = account.waits("c", "touch", "ran", env=env)
    assert account.queue() == ["b", "c"]
    kill(third.pid, signal.SIGTERM)
    assert third.wait(WAIT_S) == 128 + signal.SIGTERM
    assert account.queue() == ["b"]
    written = b"".join(file.read_bytes() for file in account.root.rglob("*") if file.is_file())
    assert SECRET.encode() not in written
    assert b"sleep" not in written
    first.communicate(timeout=WAIT_S)
    assert second.communicate(timeout=WAIT_S)[0] == f"{SECRET}\n"
    assert not elsewhere.exists()
    assert not (account.folder / "ran").exists()


def test_a_killed_init_frees_the_place_of_its_tree(account: Account) -> None:
    """Who waits goes on when the kernel has emptied the namespace; one line tells why, and no argument."""
    first = account.holds("a", "sh", "-c", f"sleep 1000; : {SECRET}")
    second = account.waits("b", "true")
    init = init_of(account, "a")
    kill(init[0])
    assert second.wait(WAIT_S) == 0
    assert not alive(*init)
    assert first.wait(WAIT_S) == 125
    returned = [why for what, session, why in account.past() if (what, session) == ("returned", "a")]
    # Whoever sees it first says it: the wrapper, by its receipt, or the one who waits, by the init's end.
    assert returned in (["its receipt says released, empty"], ["its tree is gone"])


@pytest.mark.parametrize(
    ("trap", "by"), [("exit 0", "TERM"), ("", "KILL")], ids=["a polite child", "a deaf child"]
)
def test_a_place_is_taken_until_the_leftovers_are_gone(account: Account, trap: str, by: str) -> None:
    """The status is the command's own, 0; the next starts when what it left behind has ended, and not before."""
    left = f"trap '{trap}' TERM; exec 9>lock; flock 9; echo up > up; while :; do sleep 0.05; done"
    leaves = f"sh -c {shlex.quote(left)} & until [ -s up ]; do sleep 0.02; done"
    options = ("--leftovers", "1s", "--kill-after", "0.5s")
    first = account.asks("a", "sh", "-c", leaves, options=options)
    wait_file(account.folder / "up")
    second = account.asks("b", "flock", "-n", "lock", "echo", "nobody has it")
    assert second.communicate(timeout=WAIT_S)[0] == "nobody has it\n"
    _, said = first.communicate(timeout=WAIT_S)
    assert first.returncode == 0
    assert f"ended by {by}" in said


def test_status_alone_settles_a_killed_wrapper(account: Account) -> None:
    """Nobody waits, and its command would never end: the kernel ends it, and who asks how things stand settles it."""
    process = account.holds("a", "sleep", "1000")
    init = init_of(account, "a")
    kill(process.pid)
    process.wait(WAIT_S)
    wait_until(lambda: account.status()["permits"] == [], what="its permit has returned")
    assert not alive(*init)
    assert account.past()[-1] == ("returned", "a", "its owner and its tree are gone")


def test_light_runs_beside_a_gate(account: Account) -> None:
    """The only unit is taken and another full job waits: a test of one file starts, with few workers."""
    tool = account.folder / "vitest"
    tool.write_text("#!/bin/sh\necho $VITEST_MAX_WORKERS\nread _\n", encoding="ascii")
    tool.chmod(0o755)
    (account.folder / "one.test.ts").touch()
    gate = account.holds("gate", "cat", stdin=subprocess.PIPE)
    account.waits("full", "true")
    light = account.holds("light", "./vitest", "run", "one.test.ts", stdin=subprocess.PIPE)
    found = account.status()
    assert [(one["session"], one["lane"], one["units"]) for one in found["permits"]] == [
        ("gate", "full", 1),
        ("light", "light", 0),
    ]
    assert [one["session"] for one in found["waiting"]] == ["full"]
    assert found["free"]["light"] == 0
    assert int(light.communicate("\n", timeout=WAIT_S)[0]) <= 2
    gate.communicate(timeout=WAIT_S)
    wait_until(account.empty, what="all have ended")


def test_ctrl_c_frees_the_place(account: Account) -> None:
    """At a terminal: 130, nothing of the tree is left, and nobody has a permit."""
    terminal = Terminal(account.folder)
    try:
        terminal.type(shlex.join(account.command("exec", "--session", "a", "--", "sleep", "1000")))
        wait_until(lambda: account.state("a") in ("bound", "running"), what="it runs")
        init = init_of(account, "a")
        terminal.press("C")
        assert terminal.status() == 128 + signal.SIGINT
        assert not alive(*init)
        assert account.empty()
    finally:
        terminal.close()


def test_ctrl_c_in_the_queue(account: Account) -> None:
    """The line says why it waits; Ctrl-Z stops the wait, and ``fg`` goes on with it; Ctrl-C withdraws it."""
    account.holds("a", "sleep", "1000")
    terminal = Terminal(account.folder)
    try:
        terminal.type(shlex.join(account.command("exec", "--session", "b", "--", "touch", "ran")))
        terminal.until(r"waiting, place 1 of 1: cpu: needs 1, has 0 of 1; held by a \(1\)")
        terminal.press("Z").until(r"Stopped(.*\n)*?OUT> ")
        terminal.type("fg").until(r"touch ran\r\n(.*\n)*?.*waiting, place 1")
        terminal.press("C")
        assert terminal.status() == 128 + signal.SIGINT
        assert account.queue() == []
        assert not (account.folder / "ran").exists()
    finally:
        terminal.close()


def test_a_signal_while_somebody_else_has_the_lock(account: Account) -> None:
    """Whoever is stopped inside the registry stops nobody's Ctrl-C."""
    account.holds("a", "sleep", "1000")
    stopped = account.lock()
    process = account.asks("b", "touch", "ran")
    wait_until(lambda: account.wants_lock(process.pid), what="it wants the lock")
    kill(process.pid, signal.SIGINT)
    assert process.wait(WAIT_S) == 128 + signal.SIGINT
    stopped()
    assert not (account.folder / "ran").exists()
    assert account.run("status").returncode == 0
    assert account.queue() == []


def test_status_while_somebody_else_has_the_lock(account: Account) -> None:
    """It shows what was last committed, and who is in the way."""
    account.holds("a", "sleep", "1000")
    unlock = account.lock()
    said = account.run("status", "--json")
    unlock()
    assert [one["session"] for one in json.loads(said.stdout)["permits"]] == ["a"]
    assert f"process {os.getpid()} has held the registry's lock" in said.stderr


def test_labels_confer_nothing(account: Account) -> None:
    """Two commands under one label are two requests; an empty label is refused and runs nothing."""
    account.holds("a", "sleep", "1000", options=("--holder", "suite"))
    account.waits("b", "true", options=("--holder", "suite"))
    assert [one["holder"] for one in account.status()["waiting"]] == ["suite"]
    for words in (("--holder", ""), ("--session", "")):
        said = account.run("exec", *words, "--", "touch", "ran")
        assert said.returncode == 125
    assert not (account.folder / "ran").exists()


@pytest.mark.parametrize(("floor_mib", "status"), [(0, 0), (1 << 30, 125)])
def test_a_floor_above_the_memory_refuses(tmp_path: Path, floor_mib: int, status: int) -> None:
    """Nobody gets below the floor; without one everybody passes."""
    with ExitStack() as stack:
        account = Account(tmp_path, stack, f"mem_floor_mib = {floor_mib}\n{ONE_UNIT}")
        said = account.run("exec", "--max-wait", "0", "--", "true")
        assert said.returncode == status, said.stderr
        assert ("memory: needs" in said.stderr) == bool(status)


def test_pid_1_may_own_a_permit(account: Account) -> None:
    """As in a container: it has a birth like everybody, in the registry of its own namespace."""
    namespace = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    said = account.run("exec", "--session", "a", "--", "echo", "ran", before=namespace)
    assert said.stdout == "ran\n", said.stderr
    assert [what for what, _, _ in account.past()] == ["asked", "granted", "returned"]


def test_a_full_disk_runs_nothing_and_loses_nothing(tmp_path: Path) -> None:
    """Every verb says so, what stood before stands, and when there is room again all goes on."""
    with ExitStack() as stack:
        account = Account(tmp_path, stack, room_kib=2048)
        assert account.run("policy", "set", "disk_floor_mib", "0").returncode == 0
        assert account.run("exec", "--", "true").returncode == 0
        fill = [*account.enter, "dd", "if=/dev/zero", f"of={HOME}/.contain/fill", "bs=1k"]
        assert b"No space left" in subprocess.run(fill, capture_output=True, check=False).stderr
        for words in (
            ["exec", "--", "touch", "ran"],
            ["hold", "--for", "5m", "--reason", "x"],
            ["policy", "set", "nice", "1"],
        ):
            said = account.run(*words)
            assert said.returncode in (125, 89), said.stderr
            assert "Make room" in said.stderr
            assert "Traceback" not in said.stderr
        assert not (account.folder / "ran").exists()
        subprocess.run([*account.enter, "rm", f"{HOME}/.contain/fill"], check=True)
        assert account.run("exec", "--", "true").returncode == 0
        assert "disk_floor_mib = 0" in account.run("policy", "show").stdout


def test_every_pid_that_status_shows_may_be_killed(account: Account) -> None:
    """Of who runs and who waits: nothing is left of either, and the next is served."""
    started = [account.holds("a", "sleep", "1000"), account.waits("b", "true"), account.waits("c", "true")]
    init = init_of(account, "a")
    found = account.status()
    shown = [one["ownerPid"] for one in (*found["permits"], *found["waiting"])]
    assert shown == [one.pid for one in started]
    for process in started:
        kill(process.pid)
        process.wait(WAIT_S)
    assert account.run("exec", "--session", "d", "--", "true").returncode == 0
    assert not alive(*init)
    assert account.empty()


def test_a_command_has_no_descriptor_of_the_registry(account: Account) -> None:
    """What it starts may live for ever and holds no lock of ours."""
    said = account.run("exec", "--", "ls", "-l", "/proc/self/fd")
    targets = [line.rpartition(" -> ")[2] for line in said.stdout.splitlines() if " -> " in line]
    assert len(targets) == 4, "0, 1, 2, and the directory that ls reads"
    assert not any(".contain" in target or str(account.root) in target for target in targets)


@pytest.mark.slow
def test_eleven_outlive_a_lock_that_is_held_long(account: Account) -> None:
    """Nobody gives up, no ticket changes, and afterwards all of them run."""
    with (account.folder / "said").open("w") as said:
        first = account.holds("a", "cat", stdin=subprocess.PIPE, stderr=said)
    others = [account.waits(f"n{n}", "true") for n in range(11)]
    before = account.book()
    assert before is not None
    unlock = account.lock()
    assert first.stdin is not None
    first.stdin.close()
    first.stdin = None
    wait_until(
        lambda: "registry's lock" in (account.folder / "said").read_text(), what="who is in the way is named"
    )
    after = account.book()
    assert after is not None
    assert (after.tickets, after.permits) == (before.tickets, before.permits)
    assert [one.poll() for one in (first, *others)] == [None] * 12
    unlock()
    assert [one.wait(WAIT_S) for one in (first, *others)] == [0] * 12
    assert account.empty()
