"""What a command gets from its caller: exactly what it would get bare, and of the descriptors only those named."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from contain.cli import exec_options
from tests.exec.runner import line, run
from tests.session import CONTAIN, WAIT_S, descendants, pids

FDS = "import os; print(sorted(int(n) for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')))"


def fds(receipts: Path, *, close_fds: bool = True) -> str:
    """The descriptors of a command; the one that reads the directory is not there any more."""
    return run(receipts, sys.executable, "-c", FDS, close_fds=close_fds).out.strip()


def test_three_descriptors(receipts: Path) -> None:
    """Nothing of the caller's, and nothing of ours."""
    assert fds(receipts) == "[0, 1, 2]"


def test_a_thousand_open_descriptors(receipts: Path) -> None:
    """A caller's thousand inheritable descriptors stay its own."""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(900)]
    try:
        for fd in opened:
            os.set_inheritable(fd, True)
        assert fds(receipts, close_fds=False) == "[0, 1, 2]"
    finally:
        for fd in opened:
            os.close(fd)


def test_kept_descriptors(receipts: Path, tmp_path: Path) -> None:
    """``--keep-fd N``: the same file under the same number, and no other."""
    path = tmp_path / "kept"
    contain = " ".join(line(receipts, "--keep-fd", "9", "--keep-fd=200"))
    script = f"exec 3>&1 7<>{path} 9<>{path} 200<>{path}; {contain} "
    done = subprocess.run(
        ["bash", "-c", script + "sh -c 'echo nine >&9; ls -l /proc/self/fd'"],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert path.read_text() == "nine\n"
    numbers = [int(text.split()[-3]) for text in done.stdout.splitlines()[1:]]
    assert {0, 1, 2, 9, 200} < set(numbers)
    assert len(numbers) == 6, "and the one that reads the directory"


def test_a_lock_is_not_kept(receipts: Path, tmp_path: Path) -> None:
    """A caller's flock on descriptor 9 is the wrapper's, as any child's, and nobody's below."""
    lock = tmp_path / "lock"
    script = f"exec 9>{lock}; flock 9; exec {' '.join(line(receipts))} sh -c 'echo ready; exec sleep 1000'"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as wrapper:
        try:
            assert wrapper.stdout is not None
            assert wrapper.stdout.read(6) == b"ready\n"
            below = descendants(wrapper.pid)
            assert len(below) == 3, "keeper, init and command"
            assert {pid for pid in pids() if str(lock) in _links(pid)} == {wrapper.pid}
        finally:
            wrapper.kill()
        wrapper.wait()
        with lock.open("w") as again:
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _links(pid: int) -> set[str]:
    """What a process has open, as far as we may look."""
    found = set()
    with contextlib.suppress(OSError):
        for path in Path(f"/proc/{pid}/fd").iterdir():
            found.add(str(path.readlink()))
    return found


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_descriptors(receipts: Path, tmp_path: Path, closed: str) -> None:
    """The command finds the null device there, and never a file of ours."""
    out = tmp_path / "out"
    script = f"{' '.join(line(receipts))} sh -c 'readlink /proc/self/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 > {out}' {closed}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0
    links = out.read_text().splitlines()
    assert links[0] == os.devnull
    assert all(link == os.devnull or link.startswith("pipe:") for link in links[2:]), links
    assert not any(str(receipts) in link for link in links)


def test_umask_directory_environment_and_limits(receipts: Path, tmp_path: Path) -> None:
    """All of it is the caller's."""
    there = tmp_path / "there"
    there.mkdir()
    resource_limits = "ulimit -Sn 123; ulimit -Hn 1234; ulimit -c 0; umask 0037"
    words = 'umask; pwd; ulimit -Sn; ulimit -Hn; ulimit -c; echo "$SPECIAL"; env | wc -l'
    script = f"{resource_limits}; {{ {words}; }}; {' '.join(line(receipts))} sh -c '{words}'"
    done = subprocess.run(
        ["sh", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        cwd=there,
        env={**os.environ, "SPECIAL": "a  b\nc=d"},
        timeout=WAIT_S,
    )
    lines = done.stdout.splitlines()
    half = len(lines) // 2
    assert lines[:half] == lines[half:]
    assert lines[:5] == ["0037", str(there), "123", "1234", "0"]


def test_a_variable_and_a_directory_of_its_own(receipts: Path, tmp_path: Path) -> None:
    """``--env`` adds, ``--cwd`` moves; neither is written down anywhere."""
    done = run(
        receipts,
        "sh",
        "-c",
        'pwd; echo "$EXTRA $HOME"',
        options=("--env", "EXTRA=secret=word", f"--cwd={tmp_path}"),
    )
    assert done.out == f"{tmp_path}\nsecret=word {os.environ['HOME']}\n"
    assert not any("secret" in path.read_text(errors="replace") for path in receipts.iterdir())


def test_a_low_limit_of_open_files(receipts: Path) -> None:
    """``ulimit -n 20`` is enough for us, and is what the command has."""
    script = f"ulimit -n 20; {' '.join(line(receipts))} sh -c 'ulimit -n'"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, timeout=WAIT_S)
    assert (done.returncode, done.stdout) == (0, "20\n"), done.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 20


def test_in_a_session_of_its_own_without_a_terminal(receipts: Path) -> None:
    """Nothing of the job can be stopped by a terminal that it does not have."""
    done = run(receipts, "sh", "-c", "ps -o sid=,tty= -p $$; exec 3</dev/tty", start_new_session=True)
    assert done.status == 2, "there is no /dev/tty"
    session, tty = done.out.split()
    assert (session != "0", tty) == (True, "?")


def test_the_help_is_whole() -> None:
    """``--help`` names every option that a person may give."""
    done = subprocess.run([*CONTAIN, "exec", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    for name in {*exec_options.VALUES, *exec_options.FLAGS} - {"--resumed"}:
        assert f"  {name} " in done.stdout or f"  {name}\n" in done.stdout, name
