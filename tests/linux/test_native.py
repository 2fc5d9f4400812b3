"""The cffi module: messages are the bytes that wire.h says, and its three calls do what the kernel does."""

from __future__ import annotations

import errno
import os
import re
import signal
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contain.linux import native
from contain.linux._native import ffi, lib
from contain.linux.init_build import SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterator

WIRE = re.sub(r"/\*.*?\*/", "", (SOURCES / "wire.h").read_text(), flags=re.DOTALL)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
PROC_MAGIC = 0x9FA0


def test_every_name_of_wire_h_is_known() -> None:
    """Each constant and enumerator of the header has its number in Python."""
    constants = re.findall(r"^#define (\w+) +(\w+) *$", WIRE, flags=re.MULTILINE)
    assert len(constants) > 10
    assert {name: getattr(lib, name) for name, _ in constants} == {
        name: int(text, 0) for name, text in constants
    }
    for enum in re.findall(r"enum (\w+) \{", WIRE):
        written = re.search(rf"enum {enum} \{{(.*?)\}}", WIRE, flags=re.DOTALL)
        assert written is not None
        names = [part.partition("=")[0].strip() for part in written[1].split(",")]
        first = int(written[1].split(",")[0].partition("=")[2] or 0)
        known = ffi.typeof(f"enum {enum}").relements
        assert known == {name: first + place for place, name in enumerate(names)}


@pytest.mark.parametrize(
    ("message", "layout"),
    [
        ("launch_request", "=4I i 5I 33Q 32i"),
        ("launch_reply", "=iIiI"),
        ("command_block", "=4I"),
        ("report", "=IIiiiIII5Q"),
        ("order", "=IiII"),
    ],
)
def test_a_message_has_no_padding(message: str, layout: str) -> None:
    """The sizes are those of the fields one after another: no byte of a stack crosses over."""
    assert ffi.sizeof(f"struct {message}") == struct.calcsize(layout)


@given(
    head=st.tuples(U32, U32, U32, st.none() | st.integers(-20, 19)),
    limits=st.dictionaries(st.integers(0, 15), st.tuples(U64, U64)),
)
def test_a_launch_request(head: tuple[int, int, int, int | None], limits: dict[int, tuple[int, int]]) -> None:
    """Every field is where the header puts it; a limit that is not set is zero and its bit is not set."""
    leftovers_ms, kill_ms, umask, nice = head
    values = [value for number in range(16) for value in limits.get(number, (0, 0))]
    asked = sum(1 << number for number in limits)
    level = 100 if nice is None else nice
    head_bytes = struct.pack("=4IiI", 2, leftovers_ms, kill_ms, umask, level, asked)
    tail_bytes = struct.pack("=32Q", *values)
    plain = native.launch_request(leftovers_ms, kill_ms, umask, nice, limits)
    assert plain == head_bytes + bytes(24) + tail_bytes + bytes(128)
    asked_extras = native.Extras(flags=5, drop_capabilities=1 << 63, cgroups=2, keep=(7, 99))
    extras = native.launch_request(leftovers_ms, kill_ms, umask, nice, limits, asked_extras)
    more_bytes = struct.pack("=4IQ", 5, 2, 2, 0, 1 << 63)
    assert extras == head_bytes + more_bytes + tail_bytes + struct.pack("=32i", 7, 99, *[0] * 30)


@pytest.mark.parametrize("limits", [{16: (1, 1)}, {0: (-1, 1)}, {0: (1 << 64, 1)}])
def test_an_impossible_limit_is_no_message(limits: dict[int, tuple[int, int]]) -> None:
    """Numbers that do not fit are an error here and never another number there."""
    with pytest.raises((OverflowError, IndexError)):
        native.launch_request(0, 0, 0, None, limits)


TEXT = st.binary(max_size=20).filter(lambda data: b"\0" not in data)


@given(
    paths=st.lists(TEXT, min_size=1, max_size=5),
    args=st.lists(TEXT, min_size=1, max_size=5),
    variables=st.lists(TEXT, max_size=5),
)
def test_a_command_block(paths: list[bytes], args: list[bytes], variables: list[bytes]) -> None:
    """The head counts; every string ends with a NUL, empty ones too."""
    head = struct.pack("=4I", 2, len(paths), len(args), len(variables))
    strings = b"".join(text + b"\0" for text in (*paths, *args, *variables))
    assert native.command_block(paths, args, variables) == head + strings


@given(error=st.integers(-(2**31), 2**31 - 1), step=U32, pid=st.integers(-(2**31), 2**31 - 1))
def test_a_launch_reply(error: int, step: int, pid: int) -> None:
    """Known steps have their word, others are ``unknown``."""
    found = native.launch_reply(struct.pack("=iIiI", error, step, pid, 0))
    assert found == (error, native.STEPS.get(step, "unknown"), pid)


def test_orders_and_reports() -> None:
    """The other messages, field by field."""
    assert native.arm_order() == struct.pack("=4I", 1, 0, 0, 0)
    assert native.cancel_order(1500) == struct.pack("=4I", 2, 0, 1500, 0)
    found = native.report(
        struct.pack("=IIiiiIII5Q", 4, 24, -2, 256, 1, 1, 0, 7, 2**40, 2**41, 2**42, 512, 1024)
    )
    assert (found.kind, found.step, found.error, found.status, found.pid) == (4, 24, -2, 256, 1)
    assert (found.proc_fresh, found.leftovers, found.reaped) == (1, 0, 7)
    assert (found.user_us, found.system_us, found.max_rss_bytes) == (2**40, 2**41, 2**42)


def test_steps_have_words() -> None:
    """Each step has a word of its own, made from its name."""
    assert len(set(native.STEPS.values())) == len(native.STEPS)
    assert native.STEPS[native.STEP_EXEC] == "exec"
    assert native.STEPS[1] == "request"


@pytest.fixture
def pidfd() -> Iterator[int]:
    """A pidfd of this process."""
    fd = os.pidfd_open(os.getpid())
    yield fd
    os.close(fd)


def process_of(pidfd: int) -> int:
    """Its number, -1 when it is gone."""
    text = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
    return int(text.partition("Pid:")[2].split()[0])


@pytest.fixture
def handle(pidfd: int) -> str:
    """The pidfs handle of this process."""
    found = native.pidfs_handle(pidfd)
    if found is None:
        pytest.skip("capability: pidfs file handles, Linux 6.14")
    return found


def test_a_handle_opens_the_same_process(pidfd: int, handle: str) -> None:
    """Also of another process; the descriptor is closed by an execve."""
    with subprocess.Popen(["sleep", "60"]) as child:
        theirs = os.pidfd_open(child.pid)
        other = native.pidfs_handle(theirs)
        assert other not in (None, handle)
        for text, pid in ((handle, os.getpid()), (str(other), child.pid)):
            opened = native.pidfs_open(pidfd, text)
            assert opened >= 0
            assert (process_of(opened), os.get_inheritable(opened)) == (pid, False)
            os.close(opened)
        signal.pidfd_send_signal(theirs, signal.SIGKILL)
        child.wait()
        os.close(theirs)
        assert native.pidfs_open(pidfd, str(other)) == -errno.ESTALE, "the process is gone, and is not reused"


@pytest.mark.parametrize(
    "wrong", ["fe:00", "0:0000000000000000", "fe:" + "00" * 33, "fe:", "fe", "7fffffff:ffffffffffffffff"]
)
def test_a_wrong_handle_opens_nothing(pidfd: int, handle: str, wrong: str) -> None:
    """An error number, whatever its length and type, and never another process."""
    assert wrong != handle
    assert native.pidfs_open(pidfd, wrong) < 0


@pytest.mark.parametrize("text", ["", "zz", "fe:z", "x:00", "fe:0"])
def test_what_is_no_handle_is_an_error(pidfd: int, text: str) -> None:
    """Digits that are none are a ValueError, before the kernel is asked."""
    with pytest.raises(ValueError, match=r"hex|literal"):
        native.pidfs_open(pidfd, text)


def test_no_handle_of_what_is_no_pidfd(pidfd: int) -> None:
    """A closed descriptor has none, and a place that is none opens nothing."""
    closed = os.dup(pidfd)
    os.close(closed)
    assert native.pidfs_handle(closed) is None
    assert native.pidfs_open(closed, "fe:0000000000000001") == -errno.EBADF


def test_file_systems(tmp_path: Path) -> None:
    """The magic is what stat(1) says, also through an O_PATH descriptor."""
    for place in (Path("/proc"), tmp_path, Path("/dev/shm"), Path("/sys")):
        said = subprocess.run(
            ["stat", "-f", "-c", "%t", place], capture_output=True, check=True, text=True
        ).stdout
        for flags in (os.O_RDONLY, os.O_PATH):
            fd = os.open(place, flags)
            assert native.file_system_magic(fd) == int(said, 16)
            assert not native.is_pidfs(fd)
            os.close(fd)
    with Path("/proc/self/stat").open("rb") as file:
        assert native.file_system_magic(file.fileno()) == PROC_MAGIC
        closed = os.dup(file.fileno())
    os.close(closed)
    with pytest.raises(OSError, match="descriptor") as caught:
        native.file_system_magic(closed)
    assert caught.value.errno == errno.EBADF


def test_pidfs(pidfd: int) -> None:
    """A pidfd is in pidfs exactly where its inode number is its process's own."""
    with subprocess.Popen(["sleep", "60"]) as child:
        theirs = os.pidfd_open(child.pid)
        assert native.is_pidfs(pidfd) == (os.fstat(pidfd).st_ino != os.fstat(theirs).st_ino)
        os.close(theirs)
        child.kill()
