"""Process groups and sessions: who may move where, what a number is pinned by, and what a census must not miss."""

from __future__ import annotations

import errno
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.darwin.abi import CHILDREN, GROUP, SHORT, STOPPED
from tests.darwin.processes import until

if TYPE_CHECKING:
    from tests.darwin.abi import Darwin
    from tests.darwin.processes import Actors

SPAWNS = """
import os, sys
for kind in ("group", "session"):
    options = {"setpgroup": 0} if kind == "group" else {"setsid": True}
    try:
        pid = os.posix_spawnp("sleep", ["sleep", "600"], os.environ, **options)
    except NotImplementedError:
        pid = 0
    print(pid, flush=True)
sys.stdin.read()
"""

FORKS_IN_ITS_GROUP = """
import os, signal, sys
for depth in range(6):
    os.fork()
os.write(1, b"%d\\n" % os.getpid())
signal.pause()
"""
"""Sixty-four processes, each of which says its pid."""

LEAVES = "import os, sys; os.setsid(); print(os.getpid(), flush=True); sys.stdin.read()"


def test_a_spawned_child_is_in_its_group_from_the_first_moment(darwin: Darwin, actors: Actors) -> None:
    """SETPGROUP and SETSID are done by the kernel before the child runs: there is no moment between."""
    spawner = actors.script(SPAWNS)
    leader = actors.other(actors.says(spawner))
    assert darwin.pidinfo(leader, SHORT).pbsi_pgid == leader
    assert darwin.listpids(GROUP, leader) == [leader]
    session = actors.says(spawner)
    if session:
        actors.other(session)
        assert darwin.getsid(session) == session


def test_a_parent_moves_a_child_only_before_its_exec(actors: Actors, darwin: Darwin) -> None:
    """EACCES afterwards: so a group is given at the spawn."""
    child = actors.sleeper(None)
    until(lambda: darwin.pidinfo(child.pid, SHORT).pbsi_comm[0] == b"s", "it executes sleep")
    with pytest.raises(PermissionError) as refused:
        os.setpgid(child.pid, child.pid)
    assert refused.value.errno == errno.EACCES


def test_nobody_joins_a_group_of_another_session(darwin: Darwin, actors: Actors) -> None:
    """EPERM: setpgid works inside a session only, so a session census finds job-control shells."""
    leader = actors.script(LEAVES, None)
    actors.says(leader)
    assert darwin.getsid(leader.pid) == leader.pid
    with pytest.raises(PermissionError) as refused:
        actors.sleeper(leader.pid)
    assert refused.value.errno == errno.EPERM


def test_setsid_needs_no_privilege_and_leaves_the_group(darwin: Darwin, actors: Actors) -> None:
    """Nothing can forbid it: a group is evidence, not a containment."""
    member = actors.script(LEAVES, None)
    actors.says(member)
    assert member.pid not in darwin.listpids(GROUP, os.getpgid(0))
    assert darwin.listpids(GROUP, member.pid) == [member.pid]


def test_an_unreaped_leader_pins_pid_and_group(darwin: Darwin, actors: Actors) -> None:
    """While it is a zombie the number is nobody else's: killpg can hit this group only."""
    leader = actors.zombie()
    birth = darwin.unique(leader.pid, 1).p_uniqueid
    for _ in range(50):
        assert actors.reap(actors.zombie(None)) == -signal.SIGKILL
    assert darwin.unique(leader.pid, 1).p_uniqueid == birth
    assert darwin.listpids(GROUP, leader.pid) == [leader.pid]


def test_a_census_misses_nobody_who_has_spoken(darwin: Darwin, actors: Actors) -> None:
    """One snapshot under one lock: whoever ran before it is in it, forks or not."""
    leader = actors.script(FORKS_IN_ITS_GROUP)
    heard: set[int] = set()
    while len(heard) < 64:
        heard.add(actors.says(leader))
        assert heard <= set(darwin.listpids(GROUP, leader.pid))
    assert set(darwin.listpids(GROUP, leader.pid)) == heard
    assert darwin.killpg(leader.pid, signal.SIGKILL) == 0
    until(lambda: set(darwin.listpids(GROUP, leader.pid)) <= {leader.pid}, "only the leader's zombie is left")


def test_a_stopped_process_says_so(darwin: Darwin, actors: Actors) -> None:
    """Status 4, and it is alive all the same."""
    process = actors.sleeper()
    assert darwin.kill(process.pid, signal.SIGSTOP) == 0
    until(lambda: darwin.pidinfo(process.pid, SHORT).pbsi_status == STOPPED, "it is stopped")
    assert darwin.killpg(process.pid, 0) == 0
    assert darwin.kill(process.pid, signal.SIGCONT) == 0
    until(lambda: darwin.pidinfo(process.pid, SHORT).pbsi_status != STOPPED, "it goes on")


STOPS_AND_LEAVES = """
import os, signal, sys
os.setsid()  # whoever adopts the child is then in another session, and no tie of its group
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.setpgid(0, 0)
    signal.signal(signal.SIGHUP, lambda *_: os.write(1, b"1\\n"))
    os.write(writer, b"x")
    while True:
        signal.pause()
os.read(reader, 1)
print(child, flush=True)
sys.stdin.readline()
"""


def test_a_stopped_group_that_is_orphaned_is_hung_up(darwin: Darwin, actors: Actors) -> None:
    """HUP and CONT from the kernel when its last tie to the session ends: so nobody is stopped to be counted."""
    parent = actors.script(STOPS_AND_LEAVES, group=None)
    child = actors.other(actors.says(parent))
    assert darwin.listpids(CHILDREN, parent.pid) == darwin.listpids(GROUP, child) == [child]
    assert darwin.kill(child, signal.SIGSTOP) == 0
    until(lambda: darwin.pidinfo(child, SHORT).pbsi_status == STOPPED, "it is stopped")
    assert actors.says(parent, "end") == 1
