"""Which file systems are believed: the parsers on samples of mount tables, and the two sources together."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from receipts import Unsafe, open_place
from receipts.filesystem import ALLOWED, Mount, judge, mount_id, mount_of

if TYPE_CHECKING:
    from pathlib import Path

# Real lines: WSL2 (9p), WSL1 (drvfs), WSL2 with virtiofs, bindfs with a subtype, and the usual suspects.
TABLE = r"""
20 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro
21 20 0:30 / /mnt/c rw,noatime - 9p C:\134 rw,dirsync,aname=drvfs;path=C:\;uid=1000;symlinkroot=/mnt/
22 20 0:31 / /mnt/d rw,noatime - drvfs D: rw,uid=1000
23 20 0:32 / /mnt/e rw - virtiofs drvfsaC rw
24 20 0:33 / /mnt/f rw - fuse.drvfs /srv rw,user_id=0
25 20 0:34 / /mnt/g rw - 9p share rw,trans=virtio
26 20 0:35 / /net/a\040b rw shared:9 master:3 - nfs4 server:/a\040b rw,vers=4.2
27 20 0:36 / /net/c rw - cifs //server/share rw
28 20 0:37 / /home/u/s rw - fuse.sshfs u@host:/ rw
29 20 0:38 / /mnt/x rw - tmpfs C:\134 rw,size=1024k
30 20 0:39 / /mnt/v rw - vfat /dev/sdb1 rw
31 20 0:40 / /mnt/o rw - overlay overlay rw,lowerdir=/a,upperdir=/b
32 20 0:41 / /mnt/odd\134040 rw - tmpfs odd\134040 rw
33 20 0:42 / /mnt/ceph rw - ceph :/ rw
34 20 0:43 / /p rw - proc proc rw
35 20 0:44 / /mnt/n rw - fuseblk /dev/sdc1 rw
36 20 0:45 / /mnt/h rw - 9p drvfs rw,trans=fd
broken line
"""
VERDICTS = {
    "20": ("ext4", None),
    "21": ("9p", "Windows drive"),
    "22": ("drvfs", "Windows drive"),
    "23": ("virtiofs", "shared from the host"),
    "24": ("fuse.drvfs", "Windows drive"),
    "25": ("9p", "shared from the host"),
    "26": ("nfs4", "network"),
    "27": ("cifs", "network"),
    "28": ("fuse.sshfs", "network"),
    "29": ("tmpfs", "Windows drive"),
    "30": ("vfat", "not known to keep locks"),
    "31": ("overlay", None),
    "32": ("tmpfs", None),
    "33": ("ceph", "network"),
    "34": ("proc", "not known to keep locks"),
    "35": ("fuseblk", "FUSE"),
    "36": ("9p", "Windows drive"),
}


@pytest.mark.parametrize("number", VERDICTS)
def test_verdicts_on_mounts(number: str) -> None:
    """Each kind of mount is accepted, or refused with its kind in the words."""
    mount = mount_of(TABLE, number)
    assert mount is not None
    name, words = VERDICTS[number]
    verdict = judge(mount)
    assert verdict.name == name
    assert (verdict.refusal is None) if words is None else words in str(verdict.refusal)


def test_every_allowed_file_system_passes() -> None:
    """The allow-list is what is allowed, and an unheard-of name is not on it."""
    for name in ALLOWED:
        assert judge(Mount(filesystem=name, source="none", options="")).refusal is None
    assert judge(Mount(filesystem="zfs2", source="none", options="")).refusal is not None


def test_escapes() -> None:
    r"""Blanks and backslashes of the table are undone once: `\134040` is a backslash and 040, not a blank."""
    assert mount_of(TABLE, "26").source == "server:/a b"  # type: ignore[union-attr]
    assert mount_of(TABLE, "29").source == "C:\\"  # type: ignore[union-attr]
    assert mount_of(TABLE, "32").source == r"odd\040"  # type: ignore[union-attr]


def test_an_id_that_is_not_there() -> None:
    """A mount outside of our root is not listed, and a number is no prefix of another."""
    assert mount_of(TABLE, "2") is None
    assert mount_of("", "20") is None
    assert mount_id("pos:\t0\nflags:\t02100000\nmnt_id:\t29\nino:\t5\n") == "29"
    assert mount_id("pos:\t0\n") is None


def fake_proc(tmp_path: Path, number: str, table: str = TABLE) -> str:
    """Return a /proc in which every descriptor is on mount `number`."""
    fdinfo = tmp_path / "proc" / "self" / "fdinfo"
    fdinfo.mkdir(parents=True)
    for fd in range(256):
        (fdinfo / str(fd)).write_text(f"pos:\t0\nmnt_id:\t{number}\n")
    (tmp_path / "proc" / "self" / "mountinfo").write_text(table)
    return str(tmp_path / "proc")


@pytest.mark.parametrize("number", VERDICTS)
def test_a_whole_place_on_each_mount(home: Path, tmp_path: Path, number: str) -> None:
    """`open_place` refuses by name, makes nothing in a refused place, and works on the accepted ones."""
    proc = fake_proc(tmp_path, number)
    name, words = VERDICTS[number]
    if words is None:
        with open_place(str(home), proc=proc) as place:
            assert place.filesystem == name
        return
    for path in (home, home / "new"):
        with pytest.raises(Unsafe) as caught:
            open_place(str(path), proc=proc)
        assert caught.value.reason == "file-system"
        assert name in caught.value.message
        assert words in caught.value.message
    assert not (home / "new").exists()


@pytest.mark.parametrize(
    ("magic", "reason"),
    [
        (0x01021997, "file-system"),
        (0x6969, "file-system"),
        (0xFF534D42, "file-system"),
        (-11317950, "file-system"),  # cifs again, where f_type came as a signed 32-bit number
        (0xFE534D42, "file-system"),
        (0x65735546, "file-system"),
        (0x00C36400, "file-system"),
        (0x4D44, "file-system"),
        (0x12345678, "file-system"),
        ("smbfs", "file-system"),
        (0xEF53, None),
        (0x01021994, None),
        ("apfs", None),
    ],
)
def test_the_magic_alone(home: Path, magic: int | str, reason: str | None) -> None:
    """Where the mount table cannot be read the magic (or Darwin's name) decides alone, by the same list."""
    if reason is None:
        open_place(str(home), proc="/nowhere", statfs_type=lambda _: magic).close()
        return
    with pytest.raises(Unsafe) as caught:
        open_place(str(home), proc="/nowhere", statfs_type=lambda _: magic)
    assert caught.value.reason == reason


def test_the_worse_of_both_counts(home: Path, tmp_path: Path) -> None:
    """9p passes on its server's magic, so an ext4 magic saves nothing; a bad magic is believed over a good table."""
    with pytest.raises(Unsafe, match="9p"):
        open_place(str(home), proc=fake_proc(tmp_path / "a", "25"), statfs_type=lambda _: 0xEF53)
    with pytest.raises(Unsafe, match="nfs"):
        open_place(str(home), proc=fake_proc(tmp_path / "b", "20"), statfs_type=lambda _: 0x6969)
    # A magic that nobody knows says nothing against a table that does.
    open_place(str(home), proc=fake_proc(tmp_path / "c", "20"), statfs_type=lambda _: 0x12345678).close()


def test_nothing_known_is_a_refusal(home: Path, tmp_path: Path) -> None:
    """Neither table nor magic, a mount that is not listed, a failing statfs: unknown, and refused."""

    def failing(_: int) -> int:
        raise OSError(38, os.strerror(38))

    for proc, call in (
        ("/nowhere", None),
        (fake_proc(tmp_path, "99"), None),
        ("/nowhere", failing),
        (str(tmp_path / "proc"), failing),
    ):
        with pytest.raises(Unsafe) as caught:
            open_place(str(home), proc=proc, statfs_type=call)
        assert caught.value.reason == "file-system-unknown"
