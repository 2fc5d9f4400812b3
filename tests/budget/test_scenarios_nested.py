"""Scenarios of a command that asks for a permit inside a job that has one."""

from __future__ import annotations

import shlex
import signal
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.blocked import needs_root
from tests.budget.account import ONE_UNIT, Account

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

pytestmark = [needs_root, pytest.mark.timeout(180)]
INNER = shlex.join([sys.executable, "-m", "contain", "exec"])
FOUR_UNITS = ONE_UNIT.replace("= 1\n", "= 4\n")


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """Of one unit."""
    with ExitStack() as stack:
        yield Account(tmp_path, stack)


@pytest.mark.parametrize(
    "options", ["", "--holder another --session another"], ids=["the same", "another label"]
)
def test_inside_nobody_queues_behind_itself(account: Account, options: str) -> None:
    """The only unit is the outer job's: what it starts runs under it, whatever it calls itself; its status is kept."""
    said = account.run("exec", "--", "sh", "-c", f"{INNER} {options} -- sh -c 'exit 17'")
    assert said.returncode == 17, said.stderr
    assert [what for what, _, _ in account.past()] == ["asked", "granted", "returned"]
    assert account.empty()


def test_who_only_has_the_variable_queues(account: Account) -> None:
    """The outer permit's name in the environment of somebody else confers nothing: it waits."""
    account.holds("a", "sh", "-c", "echo $CONTAIN_PERMIT > permit; sleep 1000")
    row = account.permit("a")
    assert row is not None
    said = account.run(
        "exec", "--max-wait", "0", "--", "true", before=("env", f"CONTAIN_PERMIT={row.permit.id}")
    )
    assert said.returncode == 125
    assert "held by a (1)" in said.stderr


def test_a_signal_that_is_there_before_it_starts(account: Account) -> None:
    """Blocked and pending when the inner one begins: it launches nothing and says the signal; the outer goes on."""
    start = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}); os.kill(os.getpid(), 2);"
        " os.execv(sys.executable, [sys.executable, '-m', 'contain', 'exec', '--', 'touch', 'ran'])"
    )
    inner = shlex.join([sys.executable, "-c", start])
    said = account.run("exec", "--", "sh", "-c", f"{inner}; echo status=$?")
    assert said.stdout == f"status={128 + signal.SIGINT}\n", said.stderr
    assert not (account.folder / "ran").exists()
    assert account.empty()


@pytest.mark.parametrize(
    ("caller", "printed"),
    [
        ({}, "4 4 4 4 4"),
        (
            {"VITEST_MAX_WORKERS": "", "CARGO_BUILD_JOBS": "", "GOMAXPROCS": "", "OMP_NUM_THREADS": ""},
            "4 4 4 4 4",
        ),
        (
            {"VITEST_MAX_WORKERS": "100%", "CARGO_BUILD_JOBS": "999", "GOMAXPROCS": "64", "MAKEFLAGS": "-j"},
            "4 4 4 4 4",
        ),
        (
            {"VITEST_MAX_WORKERS": "2", "CARGO_BUILD_JOBS": "1", "GOMAXPROCS": "2", "MAKEFLAGS": "-j2"},
            "2 1 2 4 2",
        ),
    ],
    ids=["none", "empty", "huge", "low"],
)
def test_caps_reach_the_innermost_command(tmp_path: Path, caller: Mapping[str, str], printed: str) -> None:
    """Four units: no number of the caller is raised, every other becomes four, also two containments down."""
    shown = "echo $VITEST_MAX_WORKERS $CARGO_BUILD_JOBS $GOMAXPROCS $OMP_NUM_THREADS"
    shown += " $(echo $MAKEFLAGS | grep -o -e '-j[0-9]*' | tr -d j-)"
    (tmp_path / "shown.sh").write_text(shown, encoding="ascii")
    with ExitStack() as stack:
        account = Account(tmp_path, stack, FOUR_UNITS)
        words = tuple(f"{name}={value}" for name, value in caller.items())
        said = account.run("exec", "--", "sh", "-c", f"{INNER} -- sh shown.sh", before=("env", *words))
        assert said.stdout == f"{printed}\n", said.stderr
        assert account.empty()
