"""Refuse what cannot be kept. WSL, unsafe directories, locks on Windows mounts and on network file systems.

Each refusal has its own reason, exit code and advice, says so to the host and on standard error, and leaves nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain import errors
from tests.session import CONTAIN, TOKEN, Session, new_id, run_job

if TYPE_CHECKING:
    from tests.session import Reply

root = pytest.mark.skipif(
    os.getuid() != 0, reason="capability: root, for mounts of a namespace of the test's own"
)


def refused(session: Session, error: type[errors.ContainError]) -> Reply:
    """The session's one reply, checked to be a refusal of this class, in words on standard error as well."""
    reply = session.finish()
    assert session.events() == ["refused"], session.replies
    assert session.process.returncode == error.exit_code
    assert reply["reason"] == error.reason
    assert reply["advice"]
    assert reply["advice"].encode() in session.errors()
    assert session.errors().count(b"\n") == 1
    return reply


def among(mounts: str, receipts: Path | str) -> Session:
    """A wrapper in a mount namespace of its own, after these shell commands."""
    return Session(receipts, program=("unshare", "-m", "sh", "-c", f'{mounts}\nexec "$@"', "-", *CONTAIN))


KERNEL = 'F=$(mktemp) && echo "{}" > "$F" && mount --bind "$F" /proc/{} && rm "$F"'
INTEROP = "mount -t tmpfs none /proc/sys/fs/binfmt_misc && touch /proc/sys/fs/binfmt_misc/{}"
WSL = {
    "kernel": KERNEL.format("5.15.167.4-microsoft-standard-WSL2", "sys/kernel/osrelease"),
    "first WSL": KERNEL.format("4.4.0-19041-Microsoft", "sys/kernel/osrelease"),
    "version": KERNEL.format("Linux version 5.15 (Microsoft@x)", "version"),
    "interop": INTEROP.format("WSLInterop"),
    "late interop": INTEROP.format("WSLInterop-late"),
    "run": "mount -t tmpfs none /run && mkdir /run/WSL",
}


@root
@pytest.mark.parametrize("mark", WSL)
def test_wsl(receipts: Path, mark: str) -> None:
    """Every mark of WSL that is known is enough."""
    with among(WSL[mark], receipts) as session:
        refused(session.request("true"), errors.WslRefused)
    assert list(receipts.iterdir()) == []


@root
def test_no_mark_no_refusal(receipts: Path) -> None:
    """The control: in the same kind of namespace, without a mark, the job runs."""
    with among("true", receipts) as session:
        session.start("true")
        assert session.finish()["outcome"]["code"] == 0


def test_unsafe_directories(tmp_path: Path) -> None:
    """Each way in which a directory is unsafe has its word, and is mended by what the advice says."""
    open_to_all, file, target = tmp_path / "open", tmp_path / "file", tmp_path / "target"
    open_to_all.mkdir(mode=0o755)
    file.touch()
    target.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(target)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    (shared / "inner").mkdir(mode=0o700)
    cases = {
        open_to_all: "mode",
        tmp_path / "link": "symlink",
        file: "not-a-directory",
        tmp_path / "no" / "such": "missing",
        shared / "inner": "parent",
    }
    for path, detail in cases.items():
        with Session(path) as session:
            assert refused(session.request("true"), errors.UnsafePlace)["detail"] == detail, path
    open_to_all.chmod(0o700)
    run_job(open_to_all, "true")


@root
def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    """Also for root: whose directory it is can change what is in it."""
    theirs = tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)
    with Session(theirs) as session:
        assert refused(session.request("true"), errors.UnsafePlace)["detail"] == "owner"


@root
@pytest.mark.parametrize("mount", ["-t tmpfs C:\\\\", "-t proc proc", "-t ramfs D:\\\\"])
def test_file_systems(tmp_path: Path, mount: str) -> None:
    """A mount that looks like a drive of Windows, and one that is no disk at all, hold no locks for us."""
    place = tmp_path / "place"
    place.mkdir(mode=0o700)
    mounts = (
        f"mount {mount} {shlex.quote(str(place))} && chmod 700 {shlex.quote(str(place))} 2>/dev/null || true"
    )
    with among(mounts, place) as session:
        reply = refused(session.request("true"), errors.UnsafePlace)
    assert reply["detail"] == "file-system"


@root
def test_a_read_only_directory(tmp_path: Path) -> None:
    """Found before there is a job, and not at its first receipt."""
    place = tmp_path / "place"
    place.mkdir(mode=0o700)
    with among(f"mount -t tmpfs -o ro,mode=700 none {shlex.quote(str(place))}", place) as session:
        assert refused(session.request("true"), errors.UnsafePlace)["detail"] == "unwritable"


@root
def test_a_plain_tmpfs_is_fine(tmp_path: Path) -> None:
    """The control: the same mount without the mark of Windows."""
    place = tmp_path / "place"
    place.mkdir(mode=0o700)
    with among(f"mount -t tmpfs -o mode=700 none {shlex.quote(str(place))}", place) as session:
        session.start("true")
        assert session.finish()["empty"] is True


def test_busy(receipts: Path) -> None:
    """A second wrapper does not touch the job of the first."""
    with Session(receipts) as first, Session(receipts) as second:
        first.start("sleep", "60")
        second.id = first.id
        refused(second.request("true"), errors.JobBusy)
        assert first.cancel(graceMs=0).finish()["empty"] is True


def test_duplicate(receipts: Path) -> None:
    """A used id is used up; an id that was refused is not."""
    last, _ = run_job(receipts, "true")
    with Session(receipts) as session:
        session.id = last["id"]
        refused(session.request("true"), errors.DuplicateJob)
    with Session(receipts) as session:
        refused(session.request("true", cwd="/no/such/directory"), errors.ImpossibleRequest)
        used = session.id
    with Session(receipts) as session:
        session.id = used
        session.start("true")
        assert session.finish()["empty"] is True


@pytest.mark.parametrize(
    "fields",
    [
        {"cwd": "/no/such/directory"},
        {"args": ["x" * 131_072]},
        {"args": ["x" * 131_000] * 24},
        {"args": ["nul\x00"]},
        {"args": ["lone \ud800"]},
        {"env": {"BIG": "x" * 131_072}},
        {"command": "nul\x00"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_no_kernel_would_run(receipts: Path, fields: dict[str, object]) -> None:
    """Refused before anything exists, and not after a launch."""
    with Session(receipts) as session:
        head = {"id": session.id, "permitId": new_id(), "token": TOKEN, "command": "true", "args": []}
        session.send({**head, **fields})
        refused(session, errors.ImpossibleRequest)
    assert [path.suffix for path in receipts.iterdir()] in ([], [".lock"])


def test_wrong_words() -> None:
    """A command line that makes no sense is a usage error, and starts nothing."""
    for words in (
        ["run", "a", "b"],
        ["run", "--fast"],
        ["inspect", "--finish"],
        ["nonsense"],
        ["inspect", "a", "b", "c"],
    ):
        done = subprocess.run([*CONTAIN, *words], capture_output=True, stdin=subprocess.DEVNULL, check=False)
        assert done.returncode == errors.UsageError.exit_code, words
        assert done.stderr.startswith(b"contain: ")
        assert b"Traceback" not in done.stderr


@root
def test_a_package_on_a_noexec_mount(tmp_path: Path, receipts: Path) -> None:
    """The program then runs from memory: the containment does not depend on where pip put the package."""
    copy = tmp_path / "lib"
    mounts = (
        f"mkdir {copy} && mount -t tmpfs -o noexec,mode=755 none {copy} && "
        f"cp -r {Path(errors.__file__).parent} {Path(errors.__file__).parent.parent / 'receipts'} {copy}"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(copy)!r}); from contain.cli.main import main; sys.exit(main())"
    )
    # The cffi module itself must come from where it can be mapped: only contain-init is tried from the noexec mount.
    program = (
        "import contain.linux._native; from contain.linux import native; import sys; "
        f"native.PROGRAM = '{copy}/contain/linux/contain-init'; "
        "from contain.cli.main import main; sys.exit(main())"
    )
    into = ("unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "-", sys.executable, "-c", program)
    with Session(receipts, program=into) as session:
        session.start("true")
        last = session.finish()
    assert json.dumps(last["outcome"]["code"]) == "0"
