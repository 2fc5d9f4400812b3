"""Return values and errors of libproc: what 0 means, which refusal comes first, and who may ask what."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest

from tests.darwin.abi import (
    ALL_PIDS,
    BOTH,
    BSD,
    CHILDREN,
    COALITION,
    GROUP,
    LOCAL,
    PATH,
    PEER_PID,
    PEER_TOKEN,
    SHORT,
    STRUCT_OF,
    TASK,
    UNIQUE,
    USER,
    Struct,
    ffi,
)
from tests.darwin.build import missing_compiler
from tests.darwin.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.abi import Darwin
    from tests.darwin.processes import Actors

UNKNOWN_FLAVOUR = 9999
NO_SUCH_PID = 99999 + 4_000_000


@pytest.mark.parametrize("flavour", STRUCT_OF)
def test_a_buffer_one_byte_short_is_enomem(flavour: int, darwin: Darwin) -> None:
    """And nothing is written: 0 with errno, never a part."""
    whole = ffi.sizeof(STRUCT_OF[flavour])
    assert darwin.pidinfo(os.getpid(), flavour, 0, whole - 1) is None
    assert darwin.errno == errno.ENOMEM


def test_an_unknown_flavour_is_einval(darwin: Darwin) -> None:
    """Before the process is looked for: a pid that nobody has says the same."""
    room = ffi.new("char[]", 4096)
    for pid in (os.getpid(), NO_SUCH_PID):
        ffi.errno = 0
        assert darwin.lib.proc_pidinfo(pid, UNKNOWN_FLAVOUR, 0, room, 4096) == 0
        assert darwin.errno == errno.EINVAL


@pytest.mark.parametrize("pid", [NO_SUCH_PID, -1])
def test_a_pid_that_nobody_has_is_esrch(pid: int, darwin: Darwin) -> None:
    """By every flavour, whatever the argument; the size is looked at first."""
    for flavour in STRUCT_OF:
        for arg in (0, 1):
            assert (darwin.pidinfo(pid, flavour, arg), darwin.errno) == (None, errno.ESRCH)
        assert (darwin.pidinfo(pid, flavour, 0, 1), darwin.errno) == (None, errno.ENOMEM)


def test_listpids_counts_bytes_and_its_wrappers_pids(darwin: Darwin, actors: Actors) -> None:
    """Four bytes a pid: the unit that was confused in the wild."""
    pid = actors.sleeper().pid
    room = ffi.new("int[]", 8192)
    assert darwin.lib.proc_listpids(GROUP, pid, room, 8192 * 4) == 4
    assert darwin.lib.proc_listpgrppids(pid, room, 8192 * 4) == 1
    assert room[0] == pid
    assert darwin.lib.proc_listchildpids(os.getpid(), room, 8192 * 4) >= 1
    assert darwin.lib.proc_listallpids(room, 8192 * 4) > 1


@pytest.mark.parametrize("kind", [ALL_PIDS, GROUP, CHILDREN])
def test_without_a_buffer_there_is_room_for_all_and_twenty_more(kind: int, darwin: Darwin) -> None:
    """For any type: the answer is a size in bytes, not a count of matches."""
    size = darwin.lib.proc_listpids(kind, os.getpid(), ffi.NULL, 0)
    assert size % 4 == 0
    assert size >= (len(darwin.listpids(GROUP, os.getpgid(0))) + 20) * 4


def test_a_full_buffer_is_cut_in_silence(darwin: Darwin, actors: Actors) -> None:
    """No error: whoever gets back all that he gave must ask again with more."""
    leader = actors.sleeper()
    members = {leader.pid, actors.sleeper(leader.pid).pid, actors.sleeper(leader.pid).pid}
    assert len(darwin.listpids(GROUP, leader.pid, room=2)) == 2
    assert darwin.errno == 0
    assert set(darwin.listpids(GROUP, leader.pid, room=4)) == members


def test_an_empty_list_and_a_failure_differ_in_errno_alone(darwin: Darwin) -> None:
    """Both are 0: errno is cleared before, and read after."""
    assert (darwin.listpids(GROUP, NO_SUCH_PID), darwin.errno) == ([], 0)
    assert (darwin.listpids(99), darwin.errno) == ([], errno.EINVAL)
    assert (darwin.listpids(ALL_PIDS, room=0), darwin.errno) == ([], errno.ENOMEM)


def test_a_census_of_a_user_goes_by_the_effective_id(darwin: Darwin, actors: Actors) -> None:
    """Ours are listed under our id, and under no other."""
    pid = actors.sleeper().pid
    assert pid in darwin.listpids(USER, os.geteuid())
    assert pid not in darwin.listpids(USER, os.geteuid() + 12345)


def test_a_path_wants_room_between_1024_and_4096(darwin: Darwin) -> None:
    """ENOMEM below, EOVERFLOW above."""
    for size, number in ((1023, errno.ENOMEM), (4097, errno.EOVERFLOW)):
        room = ffi.new("char[]", size)
        ffi.errno = 0
        assert darwin.lib.proc_pidpath(os.getpid(), room, size) == 0
        assert darwin.errno == number


def test_a_path_is_the_programs(darwin: Darwin, actors: Actors) -> None:
    """With links followed; the answer is its length."""
    pid, program = actors.sleeper().pid, os.path.realpath(shutil.which("sleep") or "/bin/sleep")
    until(lambda: path_of(darwin, pid) == program, "it executes sleep")
    room = ffi.new("char[]", 4096)
    assert darwin.lib.proc_pidpath(pid, room, 4096) == len(os.fsencode(program))


def test_a_zombie_has_no_path(darwin: Darwin, actors: Actors) -> None:
    """ESRCH: flavour 11 does not look among zombies."""
    pid = actors.zombie().pid
    room = ffi.new("char[]", 4096)
    assert darwin.lib.proc_pidpath(pid, room, 4096) == 0
    assert darwin.errno == errno.ESRCH


def test_a_deleted_program_has_no_path(darwin: Darwin, actors: Actors, tmp_path: Path) -> None:
    """ENOENT, while the process runs on."""
    reason = missing_compiler()
    if reason:
        pytest.skip(reason)
    program = tmp_path / "pauses"
    pauses = "#include <unistd.h>\nint main(void) { return pause(); }\n"
    subprocess.run(["cc", "-x", "c", "-o", program, "-"], input=pauses, text=True, check=True)
    process = actors.run([str(program)])
    until(lambda: path_of(darwin, process.pid) == os.path.realpath(program), "it executes the program")
    program.unlink()
    room = ffi.new("char[]", 4096)
    assert darwin.lib.proc_pidpath(process.pid, room, 4096) == 0
    assert darwin.errno == errno.ENOENT


def path_of(darwin: Darwin, pid: int) -> str:
    """What it executes; empty when unknown."""
    room = ffi.new("char[]", 4096)
    darwin.lib.proc_pidpath(pid, room, 4096)
    named = ffi.string(room)
    return os.path.realpath(os.fsdecode(named)) if named else ""


def test_a_name_is_the_programs(darwin: Darwin, actors: Actors) -> None:
    """What proc_name says is its length and the base name."""
    pid = actors.sleeper().pid
    room = ffi.new("char[]", 64)
    until(lambda: darwin.lib.proc_name(pid, room, 64) == len("sleep"), "it executes sleep")
    assert ffi.string(room) == b"sleep"


@pytest.mark.skipif(os.geteuid() != 0, reason="capability: root, to start a process of another user")
@pytest.mark.parametrize("flavour", STRUCT_OF)
def test_root_may_ask_everything_of_anybody(flavour: int, darwin: Darwin, actors: Actors) -> None:
    """Equal effective ids or root: root is never refused."""
    pid = actors.sleeper(user=65534 if sys.platform == "linux" else 501).pid
    assert darwin.pidinfo(pid, flavour) is not None, darwin.errno


@pytest.mark.skipif(os.geteuid() == 0, reason="capability: a user who is not root")
@pytest.mark.parametrize("flavour", STRUCT_OF)
def test_some_flavours_need_no_privilege(flavour: int, darwin: Darwin) -> None:
    """13, 17, 11, 20 are told of anybody's process; 2, 3, 4 and 18 are EPERM. Asked of pid 1, which is root's."""
    answer = darwin.pidinfo(1, flavour)
    if flavour in (SHORT, UNIQUE, PATH, COALITION):
        assert answer is not None, darwin.errno
    else:
        assert flavour in (BSD, BOTH, TASK, 2)
        assert (answer, darwin.errno) == (None, errno.EPERM)


def test_the_sysctl_answers_of_anybody(darwin: Darwin) -> None:
    """KERN_PROC_PID checks no user: the way to a start time of another's process."""
    assert darwin.kinfo(1) is not None


CALLER = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()"


def local(darwin: Darwin, fd: int, option: int, room: int) -> bytes | None:
    """What a socket tells of its other end; None with ``errno``."""
    value, size = ffi.new(f"unsigned char[{room}]"), ffi.new("uint32_t *", room)
    ffi.errno = 0
    if darwin.lib.getsockopt(fd, LOCAL, option, value, size):
        return None
    return bytes(ffi.buffer(value, size[0]))


def test_a_socket_tells_the_peer_that_connected(darwin: Darwin) -> None:
    """By its pid, and by a token with the version that flavour 17 tells; a peer that hung up is ENOTCONN."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{folder}/ear")
        listener.listen()
        command = [sys.executable, "-c", CALLER, f"{folder}/ear"]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as caller:
            connection, _ = listener.accept()
            pid = local(darwin, connection.fileno(), PEER_PID, 4)
            token = local(darwin, connection.fileno(), PEER_TOKEN, 32)
            version = darwin.unique(caller.pid).p_idversion
            assert pid == caller.pid.to_bytes(4, "little")
            assert token is not None
            words = [int.from_bytes(token[at : at + 4], "little") for at in range(0, 32, 4)]
            assert (words[5], words[7]) == (caller.pid, version & 0xFFFFFFFF)
            assert caller.stdin is not None
            caller.stdin.close()
            caller.wait()
        assert (local(darwin, connection.fileno(), PEER_PID, 4), darwin.errno) == (None, errno.ENOTCONN)
        connection.close()


def test_a_socket_that_is_not_connected_has_no_peer(darwin: Darwin) -> None:
    """ENOTCONN, by either option."""
    with socket.socket(socket.AF_UNIX) as alone:
        for option, room in ((PEER_PID, 4), (PEER_TOKEN, 32)):
            assert (local(darwin, alone.fileno(), option, room), darwin.errno) == (None, errno.ENOTCONN)


def file_system(darwin: Darwin, call: str, fd: int) -> str | None:
    """The name that this call tells; None with ``errno``."""
    found: Struct = ffi.new("struct statfs *")
    ffi.errno = 0
    if getattr(darwin.lib, call)(fd, found):
        return None
    return bytes(ffi.buffer(found.f_fstypename)).partition(b"\0")[0].decode()


def test_a_file_system_is_told_by_name(darwin: Darwin) -> None:
    """By the call with 64-bit inodes: of two names on x86-64, of the plain one alone on arm64."""
    call = "fstatfs$INODE64" if hasattr(darwin.lib, "fstatfs$INODE64") else "fstatfs"
    fd = os.open("/", os.O_RDONLY)
    assert file_system(darwin, call, fd) == "apfs"
    os.close(fd)
    assert (file_system(darwin, call, fd), darwin.errno) == (None, errno.EBADF)
