"""Which directory may hold receipts: owner, mode, links, parents and mounts, with real ones of each."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from receipts import Unsafe, default_root, open_place
from tests.receipts.tracing import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator

PROBE = Path("tests", "receipts", "probe.py")
PYTHON = os.path.realpath(sys.executable)
"""Without its .venv, which may be where only we may enter: the receipts need the standard library alone."""

NOBODY = 65534
AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
root_only = pytest.mark.skipif(
    os.geteuid() != 0, reason="capability: root, to make other owners and mounts for real"
)
HOME = pwd.getpwuid(0).pw_dir
needs_a_python_outside_home = pytest.mark.skipif(
    Path(PYTHON).is_relative_to(HOME),
    reason="capability: a Python outside the home of root, which is covered",
)


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Return a directory of ours, mode 0755, below one with the sticky bit: users other than us can enter."""
    path = Path(tempfile.mkdtemp(dir="/var/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def copied(folder: Path) -> Path:
    """Return `folder` with what the probe needs: a clone may be in a directory that only we may enter."""
    shutil.copytree(PROJECT / "receipts", folder / "receipts", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / PROBE).parent.mkdir(parents=True)
    shutil.copy(PROJECT / PROBE, folder / PROBE)
    for path in folder.rglob("*"):
        path.chmod(0o755)  # the clone may have been made under another umask
    return folder


def for_nobody(folder: Path) -> Path:
    """Return `copied(folder)`, where the user nobody can use it."""
    tried = subprocess.run([*AS_NOBODY, PYTHON, "-c", ""], capture_output=True, cwd="/", check=False)
    if tried.returncode != 0:
        pytest.skip(f"capability: a Python that nobody may execute ({tried.stderr.decode()[:200]})")
    return copied(folder)


def ask(
    command: list[str], path: Path | str, project: Path = PROJECT, **environment: str
) -> dict[str, str | None]:
    """Return what `open_place` said in a child that `command` starts."""
    done = subprocess.run(
        [*command, PYTHON, "-B", str(project / PROBE), str(path)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(project), **environment},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str | None] = json.loads(done.stdout)
    return found


def mounted(script: str) -> list[str]:
    """Return a command that mounts something in a mount namespace of its own and goes on there."""
    return ["unshare", "-m", "--propagation", "private", "sh", "-ec", script + '; exec "$@"', "sh"]


def reason(path: Path | str, *, create: bool = True) -> str:
    """Return the word of a refusal; its advice is never empty."""
    with pytest.raises(Unsafe) as caught:
        open_place(str(path), create=create)
    assert caught.value.advice
    assert "\n" not in str(caught.value)
    return caught.value.reason


def test_made_private_and_durable(tmp_path: Path) -> None:
    """A missing last component is made 0700; what comes back is its descriptor, not inheritable."""
    with open_place(str(tmp_path / "new") + "//") as place:
        assert place.path == str(tmp_path / "new")
        assert os.fstat(place.fd).st_ino == (tmp_path / "new").stat().st_ino
        assert not os.get_inheritable(place.fd)
        assert place.filesystem
        assert place.note is None
    assert (tmp_path / "new").stat().st_mode & 0o7777 == 0o700
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(place.fd)


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    """Neither a refusal nor a success leaks a descriptor."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o755)
    gc.collect()  # what other tests have dropped is closed now, and not while this one counts
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - counts only
    for path in ("open", "a", "b/c"):
        with contextlib.suppress(Unsafe):
            open_place(str(tmp_path / path)).close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_missing(tmp_path: Path) -> None:
    """Without `create` nothing is made; a missing parent is never made; an impossible path is missing too."""
    assert reason(tmp_path / "new", create=False) == "missing"
    assert reason(tmp_path / "a" / "b") == "missing"
    assert reason("") == "missing"
    assert reason("/tmp/a\0b") == "missing"
    assert list(tmp_path.iterdir()) == []


def test_links_and_files(tmp_path: Path, home: Path) -> None:
    """The last component is a directory and no link, with or without a slash; links above it are ways, not places."""
    (tmp_path / "link").symlink_to(home)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    assert reason(tmp_path / "link") == "symlink"
    assert reason(f"{tmp_path}/link/") == "symlink"
    assert reason(tmp_path / "dangling") == "symlink"
    assert not (tmp_path / "nothing").exists()
    assert reason(tmp_path / "file") == "not-a-directory"
    assert reason(tmp_path / "file" / "below") == "not-a-directory"
    open_place(str(tmp_path / "link" / "below")).close()
    assert (home / "below").is_dir()


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o750, 0o755, 0o777, 0o1777, 0o500])
def test_mode(home: Path, mode: int) -> None:
    """Any bit for others, or one missing for us, is refused with the command that helps."""
    home.chmod(mode)
    with pytest.raises(Unsafe) as caught:
        open_place(str(home))
    assert caught.value.reason == ("unwritable" if not mode & 0o400 else "mode")
    assert caught.value.advice == f"chmod 700 {home}"
    home.chmod(0o700)
    open_place(str(home)).close()


@pytest.mark.parametrize(
    ("mode", "safe"), [(0o777, False), (0o775, False), (0o1777, True), (0o755, True), (0o711, True)]
)
def test_parent(home: Path, mode: int, *, safe: bool) -> None:
    """Where others can replace the directory the next process would find another one; sticky forbids them that."""
    (home / "in").mkdir(mode=0o700)
    home.chmod(mode)
    if safe:
        open_place(str(home / "in")).close()
        open_place(str(home / "new")).close()
    else:
        assert reason(home / "in") == "parent"
        assert reason(home / "new") == "parent"
        assert not (home / "new").exists()
    home.chmod(0o700)


@root_only
def test_owner(tmp_path: Path, home: Path) -> None:
    """A directory of somebody else's is refused to root too, and so is one below somebody else's."""
    (home / "in").mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    assert reason(home) == "owner"
    assert reason(home / "in") == "parent"
    assert tmp_path.is_dir()


@root_only
def test_a_parent_of_hidden_uids(home: Path, tmp_path: Path) -> None:
    """In a user namespace of one uid, where /tmp is nobody's, the sticky bit has to do; in ours it does not."""
    (home / "in").mkdir(mode=0o700)
    os.chown(home, NOBODY, NOBODY)
    home.chmod(0o1777)
    assert reason(home / "in") == "parent"
    inside = ["unshare", "-U", "--map-root-user"]
    probed = subprocess.run([*inside, "true"], capture_output=True, check=False).returncode
    assert probed == 0, "no user namespaces here"
    tmp_path.chmod(0o755)
    assert ask(inside, home / "in").get("path") == str(home / "in")
    home.chmod(0o777)
    assert ask(inside, home / "in")["reason"] == "parent"


def test_unwritable_parent(open_to_all: Path) -> None:
    """Where the directory cannot be made, that is said with the kernel's words."""
    if os.geteuid():
        open_to_all.chmod(0o555)
        assert reason(open_to_all / "new") == "unwritable"
        open_to_all.chmod(0o755)
        return
    found = ask(AS_NOBODY, open_to_all / "new", for_nobody(open_to_all))
    assert found["reason"] == "unwritable"
    assert "Permission denied" in str(found["message"])


def test_what_is_held_is_what_was_judged(home: Path, tmp_path: Path) -> None:
    """After the path leads elsewhere, the place is still the directory that was found safe."""
    with open_place(str(home)) as place:
        before = os.fstat(place.fd).st_ino
        home.rename(tmp_path / "moved")
        home.symlink_to("/etc")
        assert os.fstat(place.fd).st_ino == before
        os.close(os.open("x", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=place.fd))
    assert (tmp_path / "moved" / "x").exists()


@root_only
@pytest.mark.parametrize(
    ("mount", "said"),
    [
        (r"mount -t tmpfs -o mode=0700 'C:\' {}", "Windows drive"),
        ("mount -t tmpfs -o mode=0700 drvfs {}", "Windows drive"),
        ("mount -t hugetlbfs -o mode=0700 none {}", "hugetlbfs"),
        ("mount -t proc proc {}", "proc"),
        ("mount -t devpts -o mode=600 none {}", "devpts"),
    ],
)
def test_real_mounts_are_refused(home: Path, mount: str, said: str) -> None:
    """A refused file system is refused by name, on the mount itself and before anything is made below it."""
    command = mounted(mount.format(home))
    for path in (home, home / "new"):
        found = ask(command, path)
        assert found.get("reason") == "file-system", found
        assert said in str(found["message"])


@root_only
@pytest.mark.parametrize(
    ("mount", "name"),
    [
        ("mount -t tmpfs -o mode=0700 'a b' {}", "tmpfs"),
        ("mount -t ramfs -o mode=0700 none {}", "ramfs"),
        ("mount --bind {} {}", None),
        (
            "mkdir -m 700 {0}/l {0}/u {0}/w; mount -t overlay -o lowerdir={0}/l,upperdir={0}/u,workdir={0}/w o {0}",
            "overlay",
        ),
    ],
)
def test_real_mounts_are_accepted(tmp_path: Path, mount: str, name: str | None) -> None:
    """Negative control: local file systems pass, by the same way."""
    # Overlay does not go onto overlay: a tmpfs below it, so that the test runs in containers as well.
    (tmp_path / "base").mkdir(mode=0o700)
    base = tmp_path / "base"
    found = ask(mounted(f"mount -t tmpfs -o mode=0700 none {base}; " + mount.format(base, base)), base)
    assert found.get("filesystem") == (name or "tmpfs"), found


@root_only
def test_read_only(home: Path) -> None:
    """A read-only file system is refused before a job is made."""
    found = ask(mounted(f"mount -t tmpfs -o mode=0700,ro none {home}"), home)
    assert found["reason"] == "unwritable"


@root_only
def test_without_proc(home: Path) -> None:
    """Without a mount table the answer is unknown, and unknown is no."""
    found = ask(mounted("mount -t tmpfs none /proc"), home)
    assert found["reason"] == "file-system-unknown"


def test_the_default_root_is_from_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """HOME is not asked: a changed environment chooses no other registry."""
    account = pwd.getpwuid(os.geteuid()).pw_dir
    before = default_root(os.geteuid())
    monkeypatch.setenv("HOME", "/somewhere/else")
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere/else")
    assert default_root(os.geteuid()) == before
    if before[1] is None:
        assert before[0] == f"{account.rstrip('/')}/.contain"


def test_an_account_that_does_not_exist() -> None:
    """Without an account, and so without a home, the root is below /var/tmp, and that is said."""
    path, note = default_root(4242424)
    assert path == "/var/tmp/contain-4242424"
    assert note == f"receipts are in {path}: the account has no home"


@root_only
def test_a_user_without_a_home(open_to_all: Path) -> None:
    """As nobody, whose home is missing, the root is private below /var/tmp, whatever HOME says."""
    path = Path(f"/var/tmp/contain-{NOBODY}")
    existed = path.exists()
    try:
        found = ask(AS_NOBODY, "-", for_nobody(open_to_all), HOME="/tmp")
        assert found.get("path") == str(path), found
        assert "cannot be opened" in str(found["note"])
        assert path.stat().st_mode & 0o777 == 0o700
        assert path.stat().st_uid == NOBODY
    finally:
        if not existed and path.exists():
            path.rmdir()


@root_only
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("mount -t tmpfs -o uid=65534 none {home}", "belongs to uid 65534"),
        (r"mount -t tmpfs 'C:\' {home}", "Windows drive"),
    ],
)
@needs_a_python_outside_home
def test_a_home_that_cannot_be_used(tmp_path: Path, script: str, said: str) -> None:
    """A home that is somebody else's or on a refused file system is left alone, with the reason in the note."""
    # A /var/tmp of its own: the test makes no directory in the machine's.
    command = mounted(f"mount -t tmpfs -o mode=1777 none /var/tmp; {script.format(home=HOME)}")
    found = ask(command, "-", copied(tmp_path))
    assert found.get("path") == "/var/tmp/contain-0", found
    assert said in str(found["note"])


@root_only
@needs_a_python_outside_home
def test_a_fallback_that_somebody_else_made(tmp_path: Path) -> None:
    """The fallback's name can be guessed: one that was made by another user, or a link, is refused."""
    project = copied(tmp_path)
    base = f"mount -t tmpfs -o mode=1777 none /var/tmp; mount -t tmpfs -o uid=65534 none {HOME}; "
    theirs = mounted(base + "mkdir -m 700 /var/tmp/contain-0; chown 65534 /var/tmp/contain-0")
    assert ask(theirs, "-", project)["reason"] == "owner"
    link = mounted(base + "mkdir -m 700 /var/tmp/x; ln -s x /var/tmp/contain-0")
    assert ask(link, "-", project)["reason"] == "symlink"
