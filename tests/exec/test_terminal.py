"""``contain exec`` at a terminal: what a person types does what it does without us."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.exec.runner import line
from tests.exec.terminals import Terminal
from tests.session import alive, descendants, kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

HEARD = "trap 'echo heard; exit 4' {0}; echo ready; while :; do sleep 0.05; done"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A person's terminal."""
    with Terminal(tmp_path) as opened:
        yield opened


@pytest.fixture
def contain(receipts: Path) -> str:
    """What a person types before the command."""
    return " ".join(line(receipts))


def wrapper_of(terminal: Terminal) -> int:
    """The only child of the shell."""
    [child] = Path(f"/proc/{terminal.pid}/task/{terminal.pid}/children").read_text(encoding="ascii").split()
    return int(child)


def test_it_sees_the_terminal(terminal: Terminal, contain: str) -> None:
    """All three are the terminal, /dev/tty is it too, and its size is known, also when it changes."""
    script = "tty; tty <&1; exec 3</dev/tty; stty size; read x; stty size"
    terminal.type(f"{contain} sh -c '{script}'")
    terminal.until(r"/dev/pts/\d+\r\n/dev/pts/\d+\r\n40 100\r\n")
    terminal.resize(30, 90)
    terminal.type("").until(r"30 90\r\n")
    terminal.until("OUT> ")
    assert terminal.status() == 0


def test_a_new_size_is_told(terminal: Terminal, contain: str) -> None:
    """SIGWINCH comes from the terminal itself."""
    terminal.type(
        f"{contain} bash -c 'trap \"echo told; exit 0\" WINCH; echo ready; while :; do sleep 0.05; done'"
    )
    terminal.until(r"\nready\r\n")
    terminal.resize(20, 80)
    terminal.until(r"told\r\n(.*\n)*?OUT> ")


@pytest.mark.parametrize(("key", "number"), [("C", signal.SIGINT), ("\\", signal.SIGQUIT)])
def test_ctrl_c_ends_it(terminal: Terminal, contain: str, key: str, number: int) -> None:
    """As bare: the shell sees 128 and the number."""
    terminal.type(f"ulimit -c 0; {contain} sh -c 'echo ready; exec sleep 1000'").until(r"\nready\r\n")
    terminal.press(key).until("OUT> ")
    assert terminal.status() == 128 + number


# Not a shell: bash drops an INT that arrives while it starts a command (2 of 400, with nothing of ours around it).
COUNTS = """
import signal
numbers = {signal.SIGINT, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print("ready", flush=True)
heard = 0
while signal.sigwait(numbers) == signal.SIGINT:
    heard += 1
    print("heard", heard, flush=True)
raise SystemExit(heard)
"""


def test_ctrl_c_comes_once(terminal: Terminal, contain: str, tmp_path: Path) -> None:
    """From the terminal alone, and not a second time from us."""
    script = tmp_path / "counts.py"
    script.write_text(COUNTS, encoding="ascii")
    terminal.type(f"{contain} {sys.executable} {script}").until(r"\nready\r\n")
    terminal.press("C").until(r"heard 1\r\n")
    terminal.press("C").until(r"heard 2\r\n")
    kill(wrapper_of(terminal), signal.SIGUSR1)
    terminal.until("OUT> ")
    assert terminal.status() == 2


@pytest.mark.parametrize("name", ["INT", "HUP", "USR1"])
def test_a_signal_to_the_wrapper_is_handed_on(terminal: Terminal, contain: str, name: str) -> None:
    """One that is not the terminal's own."""
    terminal.type(f'{contain} sh -c "{HEARD.format(name)}"').until(r"\nready\r\n")
    kill(wrapper_of(terminal), getattr(signal, f"SIG{name}"))
    terminal.until(r"heard\r\n")
    terminal.until("OUT> ")
    assert terminal.status() == 4


def test_ctrl_z_and_fg(terminal: Terminal, contain: str) -> None:
    """Stopped, listed, continued in the foreground, and ended there."""
    terminal.type(f"{contain} sh -c 'echo ready; exec sleep 1000'").until(r"\nready\r\n")
    wrapper = wrapper_of(terminal)
    terminal.press("Z").until(r"Stopped(.*\n)*?OUT> ")
    everyone = [wrapper, *descendants(wrapper)]
    wait_until(
        lambda: sorted(_state(pid) for pid in everyone) == ["S", "S", "T", "T"],
        what="wrapper and command stop; keeper and init watch on",
    )
    terminal.type("jobs").until(r"\[1\]\+  Stopped(.*\n)*?OUT> ")
    terminal.type("fg").until(r"\n.*sleep 1000'?\r\n")
    wait_until(lambda: _state(wrapper) == "S", what="it runs again")
    terminal.press("C").until("OUT> ")
    assert terminal.status() == 128 + signal.SIGINT


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123
        return stat.read().rpartition(")")[2].split()[0]


def test_a_command_that_stops_itself(terminal: Terminal, contain: str) -> None:
    """The shell gets its terminal back, and ``fg`` goes on where the command stopped."""
    terminal.type(f"{contain} sh -c 'kill -STOP $$; echo went on; exit 6'")
    terminal.until(r"Stopped(.*\n)*?OUT> ")
    terminal.type("fg").until(r"went on\r\n")
    terminal.until("OUT> ")
    assert terminal.status() == 6


def test_stopped_and_bg(terminal: Terminal, contain: str) -> None:
    """What ends in the background takes nothing from the shell, which has the keyboard then."""
    outer = terminal.foreground()
    terminal.type(f"{contain} sh -c 'kill -STOP $$; echo done'").until(r"Stopped(.*\n)*?OUT> ")
    wrapper = wrapper_of(terminal)
    terminal.type("bg").until(r"done\r\n")
    wait_until(lambda: not alive(wrapper), what="it ends in the background")
    assert terminal.foreground() == outer
    terminal.type("echo sane").until(r"\nsane\r\n")


def test_a_stop_in_the_background(terminal: Terminal, contain: str) -> None:
    """Whoever had the keyboard then was the shell: ``fg`` gives it to the command, and Ctrl-C ends that."""
    terminal.type(f"{contain} sh -c 'kill -STOP $$; echo ready; exec sleep 1000' &")
    terminal.until(r"\[1\] \d+(.*\n)*?OUT> ")
    wrapper = wrapper_of(terminal)
    wait_until(lambda: _state(wrapper) == "T", what="it has stopped")
    terminal.type("fg").until(r"\nready\r\n")
    terminal.press("C").until("OUT> ")
    assert terminal.status() == 128 + signal.SIGINT


def test_in_the_background(terminal: Terminal, contain: str) -> None:
    """Whoever reads from the background is stopped, as bare; in the foreground it reads."""
    terminal.type(f"{contain} cat &").until(r"\[1\] \d+(.*\n)*?OUT> ")
    wrapper = wrapper_of(terminal)
    wait_until(lambda: _state(wrapper) == "T", what="it wanted to read")
    terminal.type("fg").until(r"cat\r\n")
    wait_until(lambda: _state(wrapper) == "S", what="it runs again")
    terminal.type("typed").until(r"typed\r\ntyped\r\n")
    terminal.press("D").until("OUT> ")
    assert terminal.status() == 0


def test_a_pipeline(terminal: Terminal, contain: str) -> None:
    """Into a pager or any other program: one process group, one Ctrl-C."""
    terminal.type(f"{contain} sh -c 'echo one; echo two >&2' | sed s/one/three/")
    found = terminal.until(r"OUT> ")
    assert "three\r\n" in found
    assert "two\r\n" in found
    terminal.type(f"{contain} sh -c 'echo ready >&2; exec sleep 1000' | cat").until(r"\nready\r\n")
    terminal.press("C").until("OUT> ")


def test_an_interactive_shell(terminal: Terminal, contain: str) -> None:
    """Its own prompt, job control inside, and the terminal is the outer shell's again."""
    outer = terminal.foreground()
    terminal.type(f"{contain} env PS1='IN> ' bash --norc --noprofile -i").until(r"\nIN> ")
    assert terminal.foreground() != outer
    terminal.type("sleep 1000").until(r"sleep 1000\r\n")
    shell = terminal.foreground()
    wait_until(
        lambda: terminal.foreground() != shell or _sleeping(terminal), what="the inner job has the keyboard"
    )
    terminal.press("Z").until(r"Stopped(.*\n)*?IN> ")
    terminal.type("fg").until(r"sleep 1000\r\n")
    wait_until(lambda: _sleeping(terminal), what="the inner job has the keyboard")
    terminal.press("C").until(r"IN> ")
    terminal.type("exit 5").until(r"OUT> ")
    assert terminal.status() == 5
    assert terminal.foreground() == outer


def _sleeping(terminal: Terminal) -> bool:
    try:
        with open(f"/proc/{terminal.foreground()}/comm") as comm:  # noqa: PTH123
            return comm.read() == "sleep\n"
    except OSError:
        return False


def test_a_shell_that_suspends_itself(terminal: Terminal, contain: str) -> None:
    """``suspend`` inside gives the outer prompt; ``fg`` gives the inner one, with the keyboard."""
    terminal.type(f"{contain} env PS1='IN> ' bash --norc --noprofile -i").until(r"\nIN> ")
    terminal.type("suspend").until(r"Stopped(.*\n)*?OUT> ")
    terminal.type("fg").until(r"IN> ")
    terminal.type("echo back").until(r"\nback\r\n(.*\n)*?IN> ")
    terminal.type("exit 3").until(r"OUT> ")
    assert terminal.status() == 3


PROGRAMS = {
    "vim": ("vim -u NONE -n", "~", ":q!\n"),
    "less": ("less /etc/passwd", "root:", "q"),
    "top": ("top", "COMMAND", "q"),
    "python": (f"{sys.executable} -q", ">>> ", "exit()\n"),
}
"""A program -> its command, what its first screen shows, and the keys that end it."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_interactive_programs(terminal: Terminal, contain: str, name: str) -> None:
    """They run on the terminal, quit by their own keys, and leave it as it was."""
    command, screen, keys = PROGRAMS[name]
    if shutil.which(command.split()[0]) is None:
        pytest.skip(f"capability: {name} is not installed")
    terminal.type("export TERM=xterm").until("OUT> ")
    terminal.type(f"{contain} {command}").until(screen)
    os.write(terminal.fd, keys.encode())
    terminal.until("OUT> ")
    assert terminal.status() == 0


def test_kill_9_leaves_a_terminal_that_can_be_used(terminal: Terminal, contain: str) -> None:
    """The command had it in raw mode; the wrapper is killed: nothing is left, and the shell goes on."""
    raw = "import tty, time; tty.setraw(0); print(chr(114) + chr(97) + chr(119)); time.sleep(1000)"
    terminal.type(f'{contain} {sys.executable} -c "{raw}"').until(r"\nraw")
    wrapper = wrapper_of(terminal)
    below = descendants(wrapper)
    kill(wrapper)
    terminal.until(r"Killed(.*\n)*?OUT> ")
    wait_until(lambda: not any(alive(pid) for pid in below), what="nothing is left")
    terminal.type("echo sane").until(r"\nsane\r\n")
    terminal.until("OUT> ")


def test_a_terminal_that_hangs_up(terminal: Terminal, contain: str) -> None:
    """The window is closed: the command hears HUP, and nothing is left."""
    terminal.type(f"{contain} sh -c 'echo ready; exec sleep 1000'").until(r"\nready\r\n")
    wrapper = wrapper_of(terminal)
    everyone = [wrapper, *descendants(wrapper)]
    kill(terminal.pid)  # the session's leader: the kernel sends HUP to the foreground
    wait_until(lambda: not any(alive(pid) for pid in everyone), what="nothing is left")
