"""Where unruly jobs run: the same ground for root and for the user nobody."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import _cffi_backend
import pytest

from tests.jobs import shell
from tests.session import CONTAIN, ROOT, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.jobs import Unruly
    from tests.programs import Programs

UID = 65534
AS_NOBODY = ("setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups")
PYTHON = os.path.realpath(sys.executable)
USERS = ("root", "nobody")


class Ground(NamedTuple):
    """A user's way to call contain, and places that this user (and whoever its jobs become) may use."""

    user: str
    python: tuple[str, ...]
    contain: tuple[str, ...]
    receipts: Path
    work: Path
    library: Path
    unruly: Path

    def session(self, program: tuple[str, ...] | None = None) -> Session:
        """A wrapper of this user; what its job prints goes nowhere."""
        return Session(self.receipts, program=program or self.contain, stderr=subprocess.DEVNULL)

    def file(self) -> Path:
        """A name in ``work`` that nobody else uses."""
        return self.work / uuid.uuid4().hex

    def command(self, job: Unruly, file: Path) -> tuple[str, ...]:
        """The command line of an unruly job that writes to ``file``."""
        return shell(job.text, self.unruly, file)

    def usable(self, program: Path) -> Path:
        """A copy of a program where this user may execute it."""
        copy = self.library / program.name
        if not copy.exists():
            shutil.copy(program, copy)
        return copy


@contextlib.contextmanager
def ground_of(user: str, programs: Programs) -> Iterator[Ground]:
    """The ground of ``root`` (whoever runs the tests) or of ``nobody``; gone afterwards."""
    if user == "nobody" and os.getuid() != 0:
        pytest.skip("capability: root, to become the user nobody")
    with tempfile.TemporaryDirectory(prefix="contain-test-") as name:
        folder = Path(name)
        places = {place: folder / place for place in ("receipts", "work", "lib")}
        for place in places.values():
            place.mkdir()
        folder.chmod(0o755)  # a job of root may become another user, and enters all the same
        places["work"].chmod(0o777)  # and writes
        places["receipts"].chmod(0o700)
        python, contain = ((sys.executable,), CONTAIN) if user == "root" else _as_nobody(places)
        made = Ground(user, python, contain, places["receipts"], places["work"], places["lib"], Path())
        yield made._replace(unruly=made.usable(programs.unruly()))


def _as_nobody(places: dict[str, Path]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Copies what the product needs to run: a clone may be in a directory that only root may enter."""
    library = places["lib"]
    for package in ("contain", "receipts"):
        shutil.copytree(ROOT / package, library / package)
    shutil.copy(ROOT / "tests" / "other_program.py", library)
    shutil.copy(str(_cffi_backend.__file__), library)
    for path in library.rglob("*"):
        path.chmod(0o755)  # the clone may have been made under another umask
    os.chown(places["receipts"], UID, UID)
    place = ("env", "-C", str(places["work"]), f"PYTHONPATH={library}", "PYTHONDONTWRITEBYTECODE=1")
    python = (*AS_NOBODY, *place, PYTHON)
    contain = (*python, "-m", "contain")
    tried = subprocess.run([*contain, "--help"], capture_output=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"capability: a Python that nobody may execute ({tried.stderr.decode()[:200]})")
    return python, contain
