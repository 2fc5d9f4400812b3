"""``contain exec`` at a terminal, on Darwin: Linux's promises, and those of a job that has a group of its own."""

from __future__ import annotations

import shlex
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.blocked import needs_root
from tests.budget import test_scenarios_commands as scenarios
from tests.budget.account import Account
from tests.darwin.jobs import parent, program
from tests.exec import test_terminal as promises
from tests.exec.runner import line
from tests.session import ROOT, descendants, kill, stat_fields, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.darwin.world import World
    from tests.exec.terminals import Terminal

terminal = promises.terminal


@pytest.fixture
def contain(xnu: World, receipts: Path) -> str:
    """What a person types before the command."""
    return shlex.join(line(receipts, program=program(xnu.library)))


@pytest.fixture
def account(xnu: World, tmp_path: Path) -> Iterator[Account]:
    """Of one unit."""
    with ExitStack() as stack:
        yield Account(tmp_path, stack, program=("env", f"PYTHONPATH={ROOT}", *program(xnu.library)))


class TestAsOnLinux:
    """The same tests, with another ``contain``."""

    test_ctrl_c_comes_once = staticmethod(promises.test_ctrl_c_comes_once)
    test_ctrl_z_and_fg = staticmethod(promises.test_ctrl_z_and_fg)
    test_in_the_background = staticmethod(promises.test_in_the_background)
    test_an_interactive_shell = staticmethod(promises.test_an_interactive_shell)
    test_a_shell_that_suspends_itself = staticmethod(promises.test_a_shell_that_suspends_itself)
    test_kill_9 = staticmethod(promises.test_kill_9_leaves_a_terminal_that_can_be_used)
    test_ctrl_c_in_the_queue = staticmethod(needs_root(scenarios.test_ctrl_c_in_the_queue))


@pytest.mark.slow
class TestAsOnLinuxToo:
    """Those that go the ways of the others."""

    test_it_sees_the_terminal = staticmethod(promises.test_it_sees_the_terminal)
    test_a_new_size_is_told = staticmethod(promises.test_a_new_size_is_told)
    test_stopped_and_bg = staticmethod(promises.test_stopped_and_bg)
    test_a_stop_in_the_background = staticmethod(promises.test_a_stop_in_the_background)
    test_a_pipeline = staticmethod(promises.test_a_pipeline)
    test_a_terminal_that_hangs_up = staticmethod(promises.test_a_terminal_that_hangs_up)
    test_ctrl_c_ends_it = staticmethod(promises.test_ctrl_c_ends_it)
    test_a_signal_to_the_wrapper = staticmethod(promises.test_a_signal_to_the_wrapper_is_handed_on)
    test_a_command_that_stops_itself = staticmethod(promises.test_a_command_that_stops_itself)
    test_interactive_programs = staticmethod(promises.test_interactive_programs)


def state(pid: int) -> str:
    """As ps shows it."""
    fields = stat_fields(pid)
    return "gone" if fields is None else fields[0]


def lent(terminal: Terminal) -> int:
    """Waits until a job's group has the terminal; its anchor."""
    comm = "/proc/{}/comm"
    wait_until(
        lambda: Path(comm.format(terminal.foreground())).read_text(encoding="ascii") == "contain-anchor\n",
        what="it is lent the terminal",
    )
    return terminal.foreground()


LOOKS = "import os; print(os.tcgetpgrp(2) == os.getpgrp())"


def test_it_has_the_terminal_before_it_runs(terminal: Terminal, contain: str) -> None:
    """A program that looks for that at once, as interactive ones do, is not misled."""
    terminal.type(f"{contain} {sys.executable} -c '{LOOKS}'").until(r"\nTrue\r\n(.*\n)*?OUT> ")


def test_a_pipeline_is_one_job(terminal: Terminal, contain: str, tmp_path: Path) -> None:
    """What is typed comes to our group, and is handed to the job's: Ctrl-Z, ``fg``, and each Ctrl-C once."""
    script = tmp_path / "counts.py"
    script.write_text(promises.COUNTS, encoding="ascii")
    terminal.type(f"{contain} sh -c 'exec {sys.executable} {script} >&2' | cat").until(r"\nready\r\n")
    wrapper = terminal.foreground()  # whoever is behind it may need the keyboard
    _, _, command = descendants(wrapper)  # supervisor and anchor are the others
    terminal.press("Z").until(r"Stopped(.*\n)*?OUT> ")
    assert [state(pid) for pid in (wrapper, command)] == ["T", "T"]
    terminal.type("fg").until(r"cat\r\n")
    wait_until(lambda: state(command) != "T", what="it runs again")
    terminal.press("C").until(r"heard 1\r\n")
    terminal.press("C").until(r"heard 2\r\n")
    kill(wrapper, signal.SIGUSR1)
    assert "heard" not in terminal.until("OUT> ")


def test_a_script_around_it(terminal: Terminal, contain: str) -> None:
    """It is lent the terminal when it reads, and gives it back, killed or not; Ctrl-C is meant for the script too."""
    terminal.type(f"sh -c '{contain} cat; read x; echo got $x; {contain} cat; echo not reached'")
    anchor = lent(terminal)
    terminal.type("one").until(r"one\r\none\r\n")
    kill(parent(anchor))
    terminal.until("contain: what had launched the command was killed.*\n")
    terminal.type("two").until(r"\ngot two\r\n")
    lent(terminal)
    terminal.type("three").until(r"three\r\nthree\r\n")
    assert "not reached" not in terminal.press("C").until("OUT> ")
    assert terminal.status() == 128 + signal.SIGINT


def test_nobody_could_continue_it(terminal: Terminal, contain: str) -> None:
    """Without a shell around it nothing stops for good: Ctrl-Z does nothing, as bare, and who must wait is ended."""
    terminal.type(f"(({contain} cat /dev/tty; echo end $? >&2) &)").until(rf"end {128 + signal.SIGTERM}\r\n")
    terminal.type(f"exec {contain} sh -c 'echo ready; read x; echo went $x'").until(r"\nready\r\n")
    terminal.press("Z").until(r"\^Z")
    terminal.type("on").until(r"\nwent on\r\n")
