"""Which file system a descriptor is on, and whether locks and fsync can be believed there.

By the mount table, because statfs(2) is not enough: on 9p it passes on the *server's* magic (ext4, on a
Windows drive's bridge), and `st_dev` misleads on btrfs and overlay. The descriptor's mount id finds the one
line that counts.
"""

from __future__ import annotations

import os

from receipts.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final

    StatfsType = Callable[[int], int | str]
    """Returns the `f_type` of a descriptor (Linux) or its `f_fstypename` (Darwin)."""

ALLOWED: Final = frozenset(
    "ext2 ext3 ext4 xfs btrfs zfs f2fs tmpfs ramfs overlay apfs bcachefs".split()  # noqa: SIM905 - a list to read
)
_NETWORK: Final = frozenset(
    "nfs nfs4 cifs smb3 smbfs ceph glusterfs afs coda lustre gfs2 ocfs2 orangefs beegfs gpfs".split()  # noqa: SIM905
)
_NETWORK_FUSE: Final = frozenset("sshfs glusterfs ceph s3fs rclone gcsfuse davfs cephfs".split())  # noqa: SIM905
_SHARED: Final = frozenset("9p virtiofs vboxsf vmhgfs prl_fs fakeowner".split())  # noqa: SIM905

_MAGICS: Final = {
    0xEF53: "ext4",
    0x58465342: "xfs",
    0x9123683E: "btrfs",
    0x2FC12FC1: "zfs",
    0xF2F52010: "f2fs",
    0x01021994: "tmpfs",
    0x858458F6: "ramfs",
    0x794C7630: "overlay",
    0xCA451A4E: "bcachefs",
    0x01021997: "9p",
    0x6969: "nfs",
    0xFF534D42: "cifs",
    0xFE534D42: "smb3",
    0x517B: "smbfs",
    0x65735546: "fuse",
    0x00C36400: "ceph",
    0x5346414F: "afs",
    0x4D44: "vfat",
    0x2011BAB0: "exfat",
    0x5346544E: "ntfs",
    0x7366746E: "ntfs3",
    0x6A656A63: "fakeowner",
    0x786F4256: "vboxsf",
}


class Mount(Record):
    """One line of proc_pid_mountinfo(5), unescaped."""

    filesystem: str
    source: str
    options: str
    """The options of the super block (for 9p: `aname=drvfs;path=C:\\`, and so on)."""


class FileSystem(Record):
    """The verdict: `name` as the kernel has it, and `refusal`, None where locks and syncs hold."""

    name: str
    refusal: str | None


def look(fd: int, proc: str, statfs_type: StatfsType | None) -> FileSystem | None:
    """Return the verdict on a descriptor's file system; None where nothing is known: a refusal too."""
    mount = _mount(fd, proc)
    by_call: FileSystem | None = None
    if statfs_type is not None:
        try:
            found = statfs_type(fd)
        except OSError:
            return None
        name = found if isinstance(found, str) else _MAGICS.get(found & 0xFFFFFFFF)
        if name is not None:
            by_call = judge(Mount(filesystem=name, source="", options=""))
        elif mount is None:
            by_call = FileSystem(
                name=f"type {found:#x}", refusal="a file system that is not known to keep locks"
            )
    if mount is None:
        return by_call
    by_table = judge(mount)
    # The two may differ (an ext4 magic seen through 9p): the worse one counts.
    return by_call if by_call and by_call.refusal and not by_table.refusal else by_table


def judge(mount: Mount) -> FileSystem:
    """Return the verdict on one mount. An allow-list: a file system that nobody has checked is refused."""
    kind = mount.filesystem
    sub = kind.partition(".")[2]
    drive = mount.source[1:3] == ":\\" and mount.source[:1].isalpha()
    refusal: str | None
    if "drvfs" in (kind, sub, mount.source) or drive or "aname=drvfs" in mount.options:
        refusal = "a Windows drive: locks do not reach Windows programs"
    elif kind in ALLOWED:
        refusal = None
    elif kind in _NETWORK or sub in _NETWORK_FUSE:
        refusal = "a network file system: two machines can hold one lock"
    elif kind in _SHARED:
        refusal = "shared from the host machine: both sides can hold one lock"
    elif kind.startswith("fuse"):
        refusal = "a FUSE file system: its server decides what a lock or a sync means"
    else:
        refusal = "a file system that is not known to keep locks and modes"
    return FileSystem(name=kind, refusal=refusal)


def mount_id(fdinfo: str) -> str | None:
    """Return the mount id in the text of /proc/PID/fdinfo/FD."""
    for line in fdinfo.splitlines():
        key, _, value = line.partition(":")
        if key == "mnt_id":
            return value.strip()
    return None


def mount_of(mountinfo: str, wanted: str) -> Mount | None:
    """Return the mount with that id from the text of /proc/PID/mountinfo."""
    for line in mountinfo.split("\n"):
        head, dash, tail = line.partition(" - ")
        words = tail.split(" ")
        if dash and head.split(" ", 1)[0] == wanted and len(words) > 1:
            kind, source, *options = (_unescape(word) for word in words)
            return Mount(filesystem=kind, source=source, options=" ".join(options))
    return None


def _unescape(word: str) -> str:
    r"""Undo \040 \011 \012 \134, the backslash last: `\134040` is a backslash and 040."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, character)
    return word


def _mount(fd: int, proc: str) -> Mount | None:
    try:
        wanted = mount_id(_read(f"{proc}/self/fdinfo/{fd}"))
        # In a plain chroot the mount under our feet is not listed: None, and the magic decides alone.
        return None if wanted is None else mount_of(_read(f"{proc}/self/mountinfo"), wanted)
    except OSError:
        return None


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with open(fd, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
        return file.read()
