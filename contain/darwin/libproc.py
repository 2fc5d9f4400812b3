"""What the kernel says of processes, one typed function a question. Raises OSError; concludes nothing.

The traps are passed here: 0 means empty *or* failed, lists are bytes, a full buffer was cut without a word, and a
process that is exiting or a zombie is only shown to those who ask with ``arg`` 1.
"""

from __future__ import annotations

import errno

from contain.darwin import layout
from contain.darwin.handle import failed
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from contain.darwin.handle import Handle

PID_BYTES = 4
SPARE_PIDS = 32
SPARE_COALITIONS = 1024
MOST_LOOKS = 8
"""A list may grow as it is read, and it is read again with more room; not for ever."""

ALSO_ENDED = 1
"""proc_pidinfo's ``arg``: zombies and exiting processes too."""

BOOT_SESSION = b"kern.bootsessionuuid"
MOST_NAME_BYTES = 64


class LayoutChanged(OSError):
    """The kernel's answer is shorter than the structure that we know: it must not be read."""

    def __init__(self, call: str, got_bytes: int, due_bytes: int) -> None:
        """Of which call."""
        super().__init__(errno.EPROTO, f"{call} gave {got_bytes} bytes, not {due_bytes}")


class Identity(Record):
    """Flavour 17. ``unique_id`` is the boot's count of forks at its birth; ``version`` changes with every exec."""

    unique_id: int
    parent_unique_id: int
    """The parent's; since macOS 13 an exec after a change of parents makes it the new one's."""
    version: int
    parent_version: int
    """The parent's version at the fork (15.4 and later), else 0."""


class Short(Record):
    """Flavour 13: of anybody's process."""

    pid: int
    parent_pid: int
    group: int
    status: int
    flags: int
    name: str
    uid: int
    real_uid: int
    saved_uid: int


class Entry(Record):
    """KERN_PROC_PID: of anybody's process, dead or alive."""

    pid: int
    status: int
    uid: int
    start_us: int
    """Microseconds since the Unix epoch, by the clock as it was at the fork."""


class Libproc:
    """The questions, asked through one handle."""

    def __init__(self, handle: Handle) -> None:
        """Borrows the handle."""
        self.handle = handle
        self._ffi: Any = handle.ffi

    def boot_session(self) -> str:
        """A random name of this boot. Raises OSError."""
        data, size = self._ffi.new(f"char[{MOST_NAME_BYTES}]"), self._ffi.new("size_t *", MOST_NAME_BYTES)
        result, number = self.handle.call("sysctlbyname", BOOT_SESSION, data, size, self._ffi.NULL, 0)
        if result != 0:
            raise failed(number)
        found: bytes = self._ffi.string(data)
        if not found:
            raise OSError(errno.ENODATA, "the boot session has no name")
        return found.decode("ascii", "replace")

    def listed(self, kind: int, of: int = 0) -> list[int]:
        """The pids of one kind, zombies and exiting ones among them: one moment's truth. Raises OSError."""
        room = self._room(kind, of)
        for _ in range(MOST_LOOKS):
            buffer = self._ffi.new("int[]", room)
            size = room * PID_BYTES
            got, number = self.handle.call("proc_listpids", kind, of, buffer, size)
            if got <= 0:
                if number:
                    raise failed(number)
                return []
            if got < size:
                return [pid for pid in buffer[0 : got // PID_BYTES] if pid > 0]
            room *= 2
        raise OSError(errno.EAGAIN, "the list of processes grows faster than it can be read")

    def _room(self, kind: int, of: int) -> int:
        got, number = self.handle.call("proc_listpids", kind, of, self._ffi.NULL, 0)
        if got <= 0 and number:
            raise failed(number)
        return max(got, 0) // PID_BYTES + SPARE_PIDS

    def _about(self, pid: int, flavour: int, kind: str) -> Any:  # a C struct
        found = self._ffi.new(f"{kind} *")
        due = layout.SIZES[kind]
        got, number = self.handle.call("proc_pidinfo", pid, flavour, ALSO_ENDED, found, due)
        if got <= 0:
            raise failed(number or errno.ESRCH)
        if got != due:
            raise LayoutChanged(f"proc_pidinfo({flavour})", got, due)
        return found

    def identity(self, pid: int) -> Identity:
        """Who has this number. Raises OSError."""
        found = self._about(pid, layout.UNIQUE_INFO, "struct proc_uniqidentifierinfo")
        return Identity(
            unique_id=found.uniqueid,
            parent_unique_id=found.puniqueid,
            version=found.idversion,
            parent_version=found.orig_ppidversion,
        )

    def short(self, pid: int) -> Short:
        """How it is. Raises OSError."""
        found = self._about(pid, layout.SHORT_INFO, "struct proc_bsdshortinfo")
        return Short(
            pid=found.pid,
            parent_pid=found.ppid,
            group=found.pgid,
            status=found.status,
            flags=found.flags,
            name=self._ffi.string(found.comm).decode("utf-8", "replace"),
            uid=found.uid,
            real_uid=found.ruid,
            saved_uid=found.svuid,
        )

    def entry(self, pid: int) -> Entry | None:
        """The kernel's own entry; None when no process has the number. Raises OSError."""
        name = self._ffi.new("int[4]", (*layout.PROCESS_RECORD, pid))
        data = self._ffi.new(f"unsigned char[{layout.RECORD_BYTES}]")
        size = self._ffi.new("size_t *", layout.RECORD_BYTES)
        result, number = self.handle.call("sysctl", name, 4, data, size, self._ffi.NULL, 0)
        if result != 0:
            raise failed(number)
        if size[0] == 0:
            return None
        if size[0] != layout.RECORD_BYTES:
            raise LayoutChanged("KERN_PROC_PID", int(size[0]), layout.RECORD_BYTES)
        return _entry(bytes(self._ffi.buffer(data)))

    def session(self, pid: int) -> int:
        """The session of a living process, by the pid that began it. Raises OSError: ESRCH for ended ones."""
        found, number = self.handle.call("getsid", pid)
        if found < 0:
            raise failed(number)
        return found

    def coalition(self, pid: int) -> int:
        """The resource coalition that it is in, for its whole life. Raises OSError: ESRCH for ended ones."""
        return int(self._about(pid, layout.COALITION_INFO, "struct proc_pidcoalitioninfo").coalition_id[0])

    def tasks(self, coalition: int) -> int:
        """How many processes a coalition has that run; 0 for one that is no more. Raises OSError."""
        room = SPARE_COALITIONS
        for _ in range(MOST_LOOKS):
            buffer = self._ffi.new("struct procinfo_coalinfo[]", room)
            each = layout.SIZES["struct procinfo_coalinfo"]
            got, number = self.handle.call(
                "proc_listcoalitions", layout.ONE_TYPE, layout.RESOURCE, buffer, room * each
            )
            if got <= 0:
                raise failed(number or errno.ENODATA)  # we are in one ourselves, so there is one
            if got < room * each:
                found = buffer[0 : got // each]
                return sum(int(one.coalition_tasks) for one in found if one.coalition_id == coalition)
            room *= 2
        raise OSError(errno.EAGAIN, "the list of coalitions grows faster than it can be read")

    def peer(self, fd: int) -> tuple[int, int]:
        """(uid, pid) at the other end of a connected Unix socket. Raises OSError."""
        uid, gid = self._ffi.new("uint32_t *"), self._ffi.new("uint32_t *")
        result, number = self.handle.call("getpeereid", fd, uid, gid)
        if result != 0:
            raise failed(number)
        return int(uid[0]), self.peer_pid(fd)

    def with_open(self, path: str) -> Sequence[int]:
        """The pids that have a file open. Raises OSError."""
        room = self._room(layout.ALL_PIDS, 0)
        buffer = self._ffi.new("int[]", room)
        got, number = self.handle.call(
            "proc_listpidspath", layout.ALL_PIDS, 0, path.encode(), 0, buffer, room * PID_BYTES
        )
        if got <= 0 and number:
            raise failed(number)
        return [pid for pid in buffer[0 : max(got, 0) // PID_BYTES] if pid > 0]

    def file_system(self, fd: int) -> str:
        """The name of the file system under an open file. Raises OSError."""
        found = self._ffi.new("struct statfs *")
        intel = self.handle.has(layout.FSTATFS_OF_INTEL)
        result, number = self.handle.call(layout.FSTATFS_OF_INTEL if intel else layout.FSTATFS, fd, found)
        if result != 0:
            raise failed(number)
        return str(self._ffi.string(found.fstypename).decode("ascii", "replace"))

    def peer_pid(self, socket: int) -> int:
        """The pid of who used the other end of a connected AF_UNIX socket last. Raises OSError: it may have hung up."""
        pid, size = self._ffi.new("int *"), self._ffi.new("uint32_t *", PID_BYTES)
        result, number = self.handle.call(
            "getsockopt", socket, layout.SOL_LOCAL, layout.LOCAL_PEERPID, pid, size
        )
        if result != 0:
            raise failed(number)
        if size[0] != PID_BYTES or pid[0] <= 0:
            raise OSError(errno.ESRCH, "the other end of the socket is nobody's")
        return int(pid[0])


def _entry(data: bytes) -> Entry:
    def word(at: int, size: int = 4) -> int:
        return int.from_bytes(data[at : at + size], "little")

    return Entry(
        pid=word(layout.PID_AT),
        status=data[layout.STATUS_AT],
        uid=word(layout.UID_AT),
        start_us=word(layout.START_S_AT, 8) * 1_000_000 + word(layout.START_US_AT),
    )
