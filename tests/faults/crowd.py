"""Wrappers of the product, forked from a process that has imported it: the code of `contain exec` for less.

And whoever belongs to one: keeper, init, job. Each is killed by a pidfd, and only while it is below this process.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import pkgutil
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import contain.budget
import contain.cli
import contain.lifecycle
import contain.linux
import receipts
from contain.cli.main import main
from tests.session import descendants, new_id, stat_fields
from tests.survivors import is_below

if TYPE_CHECKING:
    import random

KINDS = ("plain", "plain", "plain", "daemon", "deaf", "relay", "stopped")
SESSIONS = 4
CRASHED = 99
FROM_THE_LIBRARY = ("json", "sqlite3", "tomllib", "subprocess", "tempfile", "threading", "contextlib")


class Place(NamedTuple):
    """Where a campaign works. ``limit``: units of the machine, one a job."""

    folder: Path
    marker: Path
    limit: int

    def command(self, job_id: str, life_ms: int, kind: str) -> list[str]:
        """A job's command line."""
        return [str(self.marker), str(self.folder), str(self.limit), job_id, str(life_ms), kind]


class Victim(NamedTuple):
    """Somebody to be killed. ``role``: wrapper, keeper, init or job."""

    role: str
    pid: int


def import_all() -> None:
    """Everything that a wrapper may import: forked, it has it already."""
    for package in (contain.cli, contain.budget, contain.linux, contain.lifecycle, receipts):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for name in FROM_THE_LIBRARY:
        importlib.import_module(name)
    gc.freeze()


def launch(place: Place, session: str, life_ms: int, kind: str) -> int:
    """Forks a wrapper of one job; its pid. What it says goes to the file ``said``."""
    pid, start = prepare(place, session, life_ms, kind)
    begin(start)
    return pid


def begin(start: int) -> None:
    """A byte, and not the end of the pipe: others were forked meanwhile, and have it open too."""
    os.write(start, b"!")
    os.close(start)


def prepare(place: Place, session: str, life_ms: int, kind: str) -> tuple[int, int]:
    """The same, for a wrapper that waits for `begin` of the descriptor that is returned too."""
    job_id = new_id()
    command = place.command(job_id, life_ms, kind)
    options = ["--session", session, "--id", job_id, "--leftovers", "0.01", "--kill-after", "0.05"]
    gate, start = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = CRASHED
        try:
            os.close(start)
            os.read(gate, 1)
            _redirect(place.folder / "said")
            code = main(["exec", "--budget", *options, "--", *command])
        except BaseException:  # noqa: BLE001 - whatever it is, it is told, and this process ends here
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    os.close(gate)
    return pid, start


def _redirect(said: Path) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    out = os.open(said, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for number, fd in ((0, null), (1, out), (2, out)):
        os.dup2(fd, number)
    os.closerange(3, 4096)


def reap() -> dict[int, int]:
    """Waits for whoever has ended, of our own and of adopted children; their wait statuses."""
    ended = {}
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            ended[pid] = status
    return ended


def below(root: int) -> list[int]:
    """Descendants, by the kernel's lists of children; wrappers and jobs here have one thread each."""
    found: list[int] = []
    todo = [root]
    while todo:
        pid = todo.pop()
        with contextlib.suppress(OSError):
            children = [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
            found += children
            todo += children
    return found


def members(wrapper: int) -> list[Victim]:
    """The wrapper and what is below it now."""
    found = [Victim("wrapper", wrapper)]
    for pid in below(wrapper):
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            role = {"contain-keeper": "keeper", "contain-init": "init"}.get(name, "job")
            found.append(Victim(role, pid))
    if any(one.role == "init" for one in found):
        found[0] = Victim("holder", wrapper)
    return found


def send(victim: Victim, number: int) -> bool:
    """A signal to somebody below us; False when it has ended before."""
    try:
        pidfd = os.pidfd_open(victim.pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL):
            return False
        raise
    try:
        found = stat_fields(victim.pid)
        if found is None or found[0] in "ZX" or not is_below(victim.pid, os.getpid()):
            return False
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(pidfd)
    return True


class Crowd:
    """As many wrappers as were asked for, each with a job of a few milliseconds."""

    def __init__(self, place: Place, chance: random.Random) -> None:
        """Nobody is there yet."""
        self._place = place
        self._chance = chance
        self.wrappers: list[int] = []
        self.launched = 0

    def fill(self, count: int) -> None:
        """More come, until ``count`` are there."""
        while len(self.wrappers) < count:
            session = f"s{self._chance.randrange(SESSIONS)}"
            kind = self._chance.choice(KINDS)
            self.wrappers.append(launch(self._place, session, self._chance.randrange(1, 40), kind))
            self.launched += 1

    def leave(self) -> None:
        """Forgets who has ended."""
        ended = reap()
        self.wrappers = [pid for pid in self.wrappers if pid not in ended]

    def strays(self) -> list[int]:
        """What is below us, and below no wrapper of ours: trees that outlived their wrapper."""
        mine = set(self.wrappers)
        for wrapper in self.wrappers:
            mine.update(below(wrapper))
        return [pid for pid in descendants(os.getpid()) if pid not in mine]
