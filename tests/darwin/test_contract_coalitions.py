"""The tag that every descendant keeps, and the file that a descendant holds: evidence for who has left the group."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.darwin.abi import ALL_PIDS, COALITION, Struct, ffi
from tests.darwin.processes import DAEMON, until
from tests.darwin.world import ON_A_MAC

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.abi import Darwin
    from tests.darwin.processes import Actors


def coalition(darwin: Darwin, pid: int) -> int:
    """The id of its resource coalition."""
    answer = darwin.pidinfo(pid, COALITION)
    assert answer is not None, darwin.errno
    return int(answer.coalition_id[0])


def counted(darwin: Darwin, flavour: int = 2) -> dict[int, int]:
    """Tasks by id, of the resource coalitions."""
    room: Struct = ffi.new("struct procinfo_coalinfo[]", 4096)
    got = darwin.lib.proc_listcoalitions(flavour, 0, room, 4096 * 16)
    assert got > 0
    assert got % 16 == 0
    return {
        entry.coalition_id: entry.coalition_tasks for entry in room[0 : got // 16] if not entry.coalition_type
    }


def holders(darwin: Darwin, path: Path) -> list[int]:
    """Who has a descriptor on this file."""
    room = ffi.new("int[]", 4096)
    got = darwin.lib.proc_listpidspath(ALL_PIDS, 0, os.fsencode(path), 0, room, 4096 * 4)
    assert got >= 0, darwin.errno
    return list(room[0 : got // 4])


def test_a_child_is_in_its_parents_coalition(darwin: Darwin, actors: Actors) -> None:
    """By fork, spawn and exec."""
    assert coalition(darwin, actors.sleeper().pid) == coalition(darwin, os.getpid())


def test_neither_setsid_nor_a_double_fork_leaves_it(
    darwin: Darwin, actors: Actors, request: pytest.FixtureRequest
) -> None:
    """The one tag that a descendant cannot shed (probe P4)."""
    if not ON_A_MAC:
        request.getfixturevalue("lineage")
    daemon = actors.other(actors.says(actors.script(DAEMON)))
    assert coalition(darwin, daemon) == coalition(darwin, os.getpid())
    assert darwin.getsid(daemon) != os.getsid(0)


@pytest.mark.parametrize("flavour", [1, 2])
def test_coalitions_are_listed_with_their_tasks(flavour: int, darwin: Darwin, actors: Actors) -> None:
    """Without privilege; our own has at least us and our child."""
    actors.sleeper()
    assert counted(darwin, flavour)[coalition(darwin, os.getpid())] >= 2


def test_a_coalition_counts_who_started_and_who_exited(darwin: Darwin, actors: Actors) -> None:
    """The difference is who is in it; the struct may be read in part."""
    usage: Struct = ffi.new("struct coalition_resource_usage *")
    own = coalition(darwin, os.getpid())
    assert darwin.lib.coalition_info_resource_usage(own, usage, 16) == 0
    before = usage.tasks_started
    actors.sleeper()
    assert darwin.lib.coalition_info_resource_usage(own, usage, 16) == 0
    assert usage.tasks_started > before
    assert usage.tasks_exited < usage.tasks_started


def test_who_holds_a_file_is_listed(darwin: Darwin, actors: Actors, tmp_path: Path) -> None:
    """Only with a descriptor on it, and no longer than it is open."""
    sentinel = tmp_path / "sentinel"
    sentinel.write_text("")
    holder = actors.script(
        f"import os, sys; open({str(sentinel)!r}); f = open({str(sentinel)!r}); print(1, flush=True); sys.stdin.read()"
    )
    actors.says(holder)
    other = actors.sleeper()
    assert holder.pid in holders(darwin, sentinel)
    assert other.pid not in holders(darwin, sentinel)
    assert darwin.kill(holder.pid, signal.SIGKILL) == 0
    until(lambda: holder.pid not in holders(darwin, sentinel), "nobody holds it")
