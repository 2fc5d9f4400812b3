"""Stagings: what keeps a killed tree from ending. Each is held by a process of its own, and lifted by its end.

    python -m tests.blocked disk IMAGE MOUNTPOINT   a file system that can be frozen: writers wait in state D
    python -m tests.blocked tracer PID              a tracer outside that never waits: its tracee stays a zombie
    python -m tests.blocked parent INIT             a stranger that forks a child into a namespace and never reaps it
    python -m tests.blocked freezer NAME PID...     the v1 freezer: SIGKILL waits for the thaw

A line on its standard input makes the block, the end of that input lifts it and takes everything down: also when the
test is killed, so that no frozen file system and no cgroup is ever left behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.session import ROOT, descendants, kill, stat_fields, wait_file, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.session import Reply

PTRACE_SEIZE = 0x4206
CLONE_NEWPID = 0x20000000
FREEZER = Path("/sys/fs/cgroup/freezer")
LET_GO_S = 5.0
"""What a holder that was told to let go may take before it is killed; only of one that never became ready."""

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="capability: root, for mounts, ptrace and cgroups of others"
)
needs_freezer = pytest.mark.skipif(
    not os.access(FREEZER / "cgroup.procs", os.W_OK), reason="capability: the freezer of cgroup v1"
)


# -- the holders -----------------------------------------------------------------------------------------------------


def _say(word: object) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def _asked() -> bool:
    """A line came; False at the end of input, which is the order to let go."""
    return sys.stdin.readline() != ""


def _run(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def hold_disk(image: str, mountpoint: str) -> None:
    """A small ext4 on a loop device, frozen on demand."""
    with open(image, "wb") as file:  # noqa: PTH123
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mountpoint], check=True)
    try:
        _say("ready")
        if _asked():
            subprocess.run(["fsfreeze", "-f", mountpoint], check=True)
            try:
                _say("blocked")
                _asked()
            finally:
                subprocess.run(["fsfreeze", "-u", mountpoint], check=True)
    finally:
        # A process that has just been thawed may be about to end: busy for a moment.
        wait_until(lambda: _run("umount", mountpoint), what="the disk is unmounted")


def hold_traced(pid: int) -> None:
    """Seizes a process, and never waits for it."""
    _say("ready")
    if _asked():
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.ptrace(PTRACE_SEIZE, pid, None, None) == 0, os.strerror(ctypes.get_errno())
        _say("blocked")
        _asked()


def hold_unreaped(init: int) -> None:
    """Forks a child into the namespace of ``init``; reaps it only at the end."""
    _say("ready")
    if _asked():
        libc = ctypes.CDLL(None, use_errno=True)
        namespace = os.open(f"/proc/{init}/ns/pid", os.O_RDONLY)
        assert libc.setns(namespace, CLONE_NEWPID) == 0, os.strerror(ctypes.get_errno())
        child = os.fork()
        if child == 0:
            os.execvp("sleep", ["sleep", "1000"])  # noqa: S606 - no shell is wanted
        _say(f"blocked {child}")
        _asked()
        kill(child)
        os.waitpid(child, 0)


def hold_frozen(name: str, frozen: Sequence[int]) -> None:
    """Moves processes to a v1 freezer group and freezes it."""
    group = FREEZER / name
    group.mkdir()
    try:
        _say("ready")
        if _asked():
            for pid in frozen:
                (group / "cgroup.procs").write_text(str(pid))
            (group / "freezer.state").write_text("FROZEN")
            wait_until(lambda: (group / "freezer.state").read_text().strip() == "FROZEN")
            _say("blocked")
            _asked()
    finally:
        (group / "freezer.state").write_text("THAWED")
        wait_until(lambda: _emptied(group), what=f"{group} is removed")


def _emptied(group: Path) -> bool:
    for pid in (group / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):  # it has just ended
            (FREEZER / "cgroup.procs").write_text(pid)
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


class Holder:
    """The test's hand on one holder."""

    def __init__(self, *words: object) -> None:
        """Starts it and waits until it is ready to block."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.blocked", *map(str, words)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        try:
            self._expect("ready")
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Ends what did not become ready: by the end of its input, so that it takes down what it has built."""
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(LET_GO_S)
            except subprocess.TimeoutExpired:
                self.process.kill()

    def _expect(self, word: str) -> list[str]:
        assert self.process.stdout is not None
        said = self.process.stdout.readline().decode().split()
        assert said[:1] == [word], f"the holder did not say {word!r} but {said}"
        return said[1:]

    def block(self) -> list[str]:
        """Makes the block; returns what the holder says of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self._expect("blocked")

    def lift(self) -> None:
        """Lifts the block and waits until nothing of it is left. May be called again."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait()
        self.process.stdout.close()
        assert code == 0, f"the holder ended with {code}"


# -- the stagings ----------------------------------------------------------------------------------------------------


class Staging:
    """A job, and what will keep its tree from ending. ``release`` always undoes everything."""

    name = ""
    needs: tuple[pytest.MarkDecorator, ...] = (needs_root,)
    """Without these it cannot be made."""

    def __init__(self, folder: Path) -> None:
        """``folder`` is the test's own."""
        self.folder = folder
        self.holder: Holder | None = None
        self.member = 0

    def command(self) -> list[str]:
        """What the job executes."""
        return ["sleep", "1000"]

    def block(self, init: int) -> None:
        """Stages it against the running tree of ``init``."""
        wait_until(lambda: descendants(init), what="the command was cloned")
        self.member = descendants(init)[0]
        self.stage(init)

    def stage(self, init: int) -> None:
        """The block itself, with ``member`` known."""
        raise NotImplementedError

    def blame(self, blockers: Sequence[Reply]) -> Reply:
        """The one that is really in the way, of those that contain named; checks what it says of it."""
        found = [blocker for blocker in blockers if blocker["pid"] == self.member]
        assert len(found) == 1, f"{self.name}: {self.member} is not named in {blockers}"
        self.check(found[0])
        return found[0]

    def check(self, blocker: Reply) -> None:
        """The true reason."""
        raise NotImplementedError

    def lift(self) -> None:
        """Takes the block away; safe at any time."""
        if self.holder is not None:
            self.holder.lift()


class FrozenDisk(Staging):
    """A member writes to a disk that does not answer."""

    name = "disk"

    def command(self) -> list[str]:
        """Writes when it is told to: the disk answers until then."""
        self.mount = self.folder / "disk"
        self.mount.mkdir()
        self.holder = Holder("disk", self.folder / "disk.img", self.mount)
        script = f"echo up > {self.folder}/up; until [ -e {self.folder}/go ]; do sleep 0.05; done; "
        return ["sh", "-c", script + f"echo late > {self.mount}/late"]

    def stage(self, init: int) -> None:
        """Freezes, lets the job write, and waits until it hangs."""
        assert self.holder is not None
        wait_file(self.folder / "up")
        self.holder.block()
        (self.folder / "go").touch()
        wait_until(
            lambda: (stat_fields(self.member) or "?")[0] == "D", what=f"a member of {init} is in state D"
        )

    def check(self, blocker: Reply) -> None:
        """State D, and where in the kernel."""
        assert blocker["state"] == "D", blocker
        assert blocker["wchan"], blocker
        assert "uninterruptible" in blocker["why"], blocker
        assert blocker["wchan"] in blocker["why"], blocker


class OutsideTracer(Staging):
    """Somebody outside traces a member, and does not wait for it."""

    name = "tracer"

    def stage(self, init: int) -> None:
        """Seizes the command."""
        assert init != self.member
        self.holder = Holder("tracer", self.member)
        self.holder.block()

    def check(self, blocker: Reply) -> None:
        """The tracer by its number and name."""
        assert self.holder is not None
        assert blocker["tracer"] == self.holder.process.pid, blocker
        assert blocker["state"] == "Z", blocker
        assert f"traced from outside by pid {self.holder.process.pid}" in blocker["why"], blocker


class OutsideParent(Staging):
    """A child that entered from outside, whose parent outside does not reap it."""

    name = "parent"

    def stage(self, init: int) -> None:
        """As ``nsenter --pid`` does; from now on the stranger is the member to look at."""
        self.holder = Holder("parent", init)
        self.member = int(self.holder.block()[0])

    def check(self, blocker: Reply) -> None:
        """The parent by its number."""
        assert self.holder is not None
        assert blocker["state"] == "Z", blocker
        assert f"its parent outside, pid {self.holder.process.pid}" in blocker["why"], blocker


class FrozenMember(Staging):
    """A member is in a frozen v1 group."""

    name = "freezer"
    needs = (needs_root, needs_freezer)

    def stage(self, init: int) -> None:
        """Freezes the members of ``frozen``."""
        self.group = f"contain-test-{os.getpid()}-{init}"
        self.holder = Holder("freezer", self.group, *self.frozen(init))
        self.holder.block()

    def frozen(self, init: int) -> list[int]:
        """Whom to freeze."""
        assert init != self.member
        return [self.member]

    def check(self, blocker: Reply) -> None:
        """The group by its name."""
        assert blocker["freezer"] == f"freezer:/{self.group}", blocker
        assert f"frozen by freezer:/{self.group}" in blocker["why"], blocker


class FrozenTree(FrozenMember):
    """The whole tree is in a frozen v1 group, its init too."""

    name = "freezer-with-init"

    def frozen(self, init: int) -> list[int]:
        """Both of them."""
        return [init, self.member]


STAGINGS = tuple(
    pytest.param(staging, marks=staging.needs, id=staging.name)
    for staging in (FrozenDisk, OutsideTracer, OutsideParent, FrozenMember, FrozenTree)
)
"""As parameters: one that this machine cannot make is skipped before anything has been started."""


def main(face: str, *words: str) -> None:
    """One holder."""
    if face == "disk":
        hold_disk(*words)
    elif face == "tracer":
        hold_traced(int(words[0]))
    elif face == "parent":
        hold_unreaped(int(words[0]))
    elif face == "freezer":
        hold_frozen(words[0], [int(word) for word in words[1:]])


if __name__ == "__main__":
    main(*sys.argv[1:])
