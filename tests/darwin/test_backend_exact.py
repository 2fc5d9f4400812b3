"""Signals to exact births, with the audit token and, before macOS 14.2, without."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from contain.darwin import birth, exact
from contain.darwin.handle import opened
from contain.darwin.libproc import Libproc
from tests.darwin.living import end, is_zombie, runs, sleeper, until

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from tests.darwin.world import World


@pytest.fixture(params=["new", "old"])
def libproc(request: pytest.FixtureRequest, xnu: World) -> Libproc:
    """With the audit token, and without."""
    return Libproc(opened(xnu.library if request.param == "new" else xnu.old_library))


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A living child."""
    process = sleeper()
    yield process
    end(process)


def test_the_way_is_named(xnu: World) -> None:
    """The weaker one is never silent."""
    assert exact.way(Libproc(opened(xnu.library))) == exact.EXACT
    assert exact.way(Libproc(opened(xnu.old_library))) == exact.CHECKED


def test_it_arrives(libproc: Libproc, child: subprocess.Popen[bytes]) -> None:
    """At the one that is meant."""
    born = birth.take(libproc, child.pid)
    assert exact.send(libproc, born, signal.SIGKILL) == exact.SENT
    assert child.wait() == -signal.SIGKILL
    assert exact.send(libproc, born, signal.SIGKILL) == birth.GONE


def test_a_zombie_takes_none(libproc: Libproc, child: subprocess.Popen[bytes]) -> None:
    """Its state is the answer, although kill(2) would say 0."""
    born = birth.take(libproc, child.pid)
    child.kill()
    until(lambda: is_zombie(child.pid), "a zombie")
    assert exact.send(libproc, born, signal.SIGTERM) == birth.ZOMBIE


def test_who_has_the_number_now_is_never_hit(
    xnu: World, libproc: Libproc, child: subprocess.Popen[bytes]
) -> None:
    """The number was given again."""
    born = birth.take(libproc, child.pid)
    xnu.control(f"reuse pid={child.pid}")
    assert exact.send(libproc, born, signal.SIGKILL) == birth.GONE
    assert runs(child.pid)


def test_an_exec_in_between_is_tried_again(xnu: World, child: subprocess.Popen[bytes]) -> None:
    """The version changed after it was read: the same process, under a new token."""
    libproc = Libproc(opened(xnu.library))
    born = birth.take(libproc, child.pid)
    xnu.control(f"bump pid={child.pid} times=3")
    assert exact.send(libproc, born, signal.SIGKILL) == exact.SENT
    assert child.wait() == -signal.SIGKILL


def test_one_that_always_changes_is_unknown(xnu: World, child: subprocess.Popen[bytes]) -> None:
    """The tries are counted."""
    libproc = Libproc(opened(xnu.library))
    born = birth.take(libproc, child.pid)
    xnu.control(f"bump pid={child.pid} times=1000000")
    assert exact.send(libproc, born, signal.SIGKILL) == birth.UNKNOWN
    assert runs(child.pid)


def test_another_users_process_is_denied(
    xnu: World, libproc: Libproc, child: subprocess.Popen[bytes]
) -> None:
    """And is alive."""
    born = birth.take(libproc, child.pid)
    xnu.control(f"foreign pid={child.pid} uid={os.getuid() + 12345}")
    assert exact.send(libproc, born, signal.SIGKILL) == exact.DENIED
    assert runs(child.pid)
