"""The tier of launchd's jobs: nobody born in one can leave it, and where it is not to be had it is refused."""

from __future__ import annotations

import os
import re
import resource
import socket
import stat
import subprocess
from typing import TYPE_CHECKING

import pytest

from contain.cli import exec_options
from contain.darwin.backend import DarwinBackend
from contain.darwin.handle import opened
from contain.darwin.libproc import Libproc
from contain.darwin.meeting import Meeting
from contain.errors import ContainError, TierTooWeak, UsageError
from contain.job import Job, new_id
from receipts import Anchor
from tests.darwin import launchd
from tests.darwin.jobs import anchor_program, program, session
from tests.darwin.living import WAIT_S, end, runs, sleeper, until
from tests.session import wait_file

if TYPE_CHECKING:
    from pathlib import Path

    from contain.backend import Containment
    from tests.darwin.world import World

TIER = "launchd"
COME = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); sys.stdin.read()"


def backend_of(world: World) -> DarwinBackend:
    """By itself, without receipts."""
    return DarwinBackend(library=world.library, program=anchor_program(), launchctl=world.launchctl)


def launched(backend: DarwinBackend, text: str, **extra: object) -> Containment:
    """A shell's job behind its open gate."""
    job = Job(id=new_id(), permit_id=new_id(), command="sh", args=("-c", text), require_tier=TIER)
    found = backend.launch(job.replace(**extra)).ready()
    assert found.open_gate()
    return found


def drained(job: Containment) -> bool:
    """Waits until it is proven over."""
    until(lambda: any(type(event).__name__ == "Drained" for event in job.events()), "drained")
    job.remove_cgroups()
    job.close()
    return True


def test_a_daemon_that_leaves_no_trace_is_ended(lineage: World, receipts: Path, tmp_path: Path) -> None:
    """Session, parents and descriptors are gone; the coalition is not. Only then the word is ``excluded``."""
    with session(lineage, receipts) as job:
        text = f"{launchd.daemon(tmp_path)}; while ! [ -e {tmp_path}/daemon ]; do sleep 0.01; done; exit 3"
        prepared = job.start("sh", "-c", text, requireTier=TIER, graceMs=10, killMs=10)
        released = job.until("released")
        assert launchd.loaded(lineage) == []  # before it is said
        job.finish()
        assert launchd.folders(job.process.pid) == []
    assert not runs(int(wait_file(tmp_path / "daemon")))
    assert (prepared["tier"], released["tier"], released["empty"]) == (TIER, TIER, True)
    assert (released["outcome"]["code"], released["detached"]) == (3, "excluded")
    assert released["anchor"]["service"].endswith(f"/contain.{job.id}")
    assert launchd.loaded(lineage) == []


def test_the_command_has_the_callers_surroundings_and_launchd_no_secret(
    lineage: World, tmp_path: Path
) -> None:
    """What the command is and has goes over a socket in its owner's folder. No mark is inherited."""
    backend = backend_of(lineage)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    text = f'{{ pwd; echo "$A"; ulimit -n; ls /proc/self/fd | sort -n | tr "\\n" " "; }} > {tmp_path}/out # s3cret'
    try:
        job = launched(backend, text, cwd="/usr", env={"A": "s3cret too", "PATH": "/bin:/usr/bin"})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    (folder,) = launchd.folders(os.getpid())
    plist = (folder / "job.plist").read_bytes()
    assert f"{folder}/socket".encode() in plist  # the control: it is the right file
    assert not re.search(b"s3cret|/usr<|PATH", plist)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(os.fsencode(folder / "socket")) < 104
    assert drained(job)
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines == ["/usr", "s3cret too", str(soft - 1), "0 1 2 3 "]  # 3: ls's own


def test_a_member_that_comes_late_is_seen_by_the_second_look(lineage: World) -> None:
    """The first clean look is no proof: who joins right after it is found by the next one, and ended."""
    backend = backend_of(lineage)
    job = launched(backend, "exit 0")
    proof = job.proof
    assert isinstance(proof, Anchor)
    assert drained(job)
    until(lambda: backend.observe(proof).gone, "the supervisor has ended as well")
    late = sleeper()
    try:
        lineage.control(f"late-member pid={late.pid} id={proof.coalition}")
        assert backend.observe(proof).state == "live"
        assert backend.finish(proof, WAIT_S, kill=True).gone
        assert late.wait(WAIT_S) == -9
    finally:
        end(late)


def test_who_cannot_be_seen_or_counted_is_in_the_way(lineage: World) -> None:
    """Neither the members nor the kernel's own count may be missing: unknown, and never gone."""
    backend = backend_of(lineage)
    job = launched(backend, "sleep 600")
    proof = job.proof
    assert isinstance(proof, Anchor)
    job.kill()
    assert drained(job)
    until(lambda: backend.observe(proof).gone, "the supervisor has ended as well")
    for fault in ("deny flavour=20", "fail call=listcoalitions errno=1"):
        lineage.control(fault)
        assert backend.observe(proof).state == "unknown", fault
        lineage.control("clear")
    other = sleeper()
    try:
        lineage.control(f"coalition-join pid={other.pid} id={proof.coalition}")
        assert backend.observe(proof).state == "live"
        lineage.control(f"hold-exit pid={other.pid} ms=-1")
        other.kill()  # in the kernel for ever: no more to be seen in its coalition
        until(lambda: backend.observe(proof).state != "live", "it cannot be seen")
        found = backend.observe(proof)
        assert (found.state, "cannot be seen" in found.why) == ("unknown", True), found
    finally:
        lineage.control("clear")
        end(other)


def told(world: World, name: str, text: str) -> None:
    """Makes launchd another one (tests.darwin.launchctl)."""
    folder = world.folder / "launchd"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)


def refusal(world: World, **extra: object) -> TierTooWeak:
    """Why it is refused; nothing is left then."""
    backend = backend_of(world)
    with pytest.raises(TierTooWeak) as raised:
        launched(backend, "sleep 600", **extra)
    launchd.until_removed(world, os.getpid())
    return raised.value


def test_our_own_coalition_is_no_tier(lineage: World) -> None:
    """The probe: launchd that gives none of the job's own is found out before the command is told."""
    told(lineage, "join", "1")
    assert "no coalition of its own" in refusal(lineage).message


def test_a_coalition_with_others_in_it_is_no_tier(lineage: World) -> None:
    """Whoever is in there would be killed with the job."""
    other = sleeper()
    try:
        lineage.control(f"coalition pid={other.pid}")
        told(lineage, "join", "2")
        assert "2 processes already" in refusal(lineage).message
        assert runs(other.pid)
    finally:
        end(other)


def test_a_probe_that_fails_refuses(lineage: World) -> None:
    """What cannot be looked at is not claimed."""
    lineage.control("fail call=listcoalitions errno=1")
    assert "cannot be read" in refusal(lineage).message


def test_launchds_own_no_is_passed_on(lineage: World) -> None:
    """In its words, when every domain has said it."""
    told(lineage, "refuses", "gui user")
    assert "125: Bootstrap failed" in refusal(lineage).message


def test_without_a_screen_the_accounts_own_domain_is_asked(lineage: World) -> None:
    """Over ssh there may be no gui domain."""
    told(lineage, "refuses", "gui")
    job = launched(backend_of(lineage), "exit 0")
    assert isinstance(job.proof, Anchor)
    assert (job.proof.service or "").startswith("user/")
    assert drained(job)
    launchd.until_removed(lineage, os.getpid())


def test_a_terminal_is_refused(lineage: World) -> None:
    """There is none in a session of launchd's; a job that shares ours cannot be there."""
    assert "no terminal" in refusal(lineage, shared_session=True).message


def test_the_option_is_the_required_tier(lineage: World, receipts: Path) -> None:
    """``contain exec --launchd``: its status and output are the command's, and nothing is left."""
    words = ("exec", "--launchd", "--no-budget", "--json", "--receipts", str(receipts), "--", "sh", "-c")
    text = "echo out; cat; exit 7"
    done = subprocess.run(
        [*program(lineage.library), *words, text],
        input=b"in",
        capture_output=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (7, b"out\nin"), done.stderr
    assert b'"tier": "launchd"' in done.stderr.replace(b'":"', b'": "')
    assert launchd.loaded(lineage) == []


def test_the_option_is_not_silently_weaker() -> None:
    """Beside another tier it is a contradiction."""
    with pytest.raises(UsageError) as raised:
        exec_options.parse(["--launchd", "--require-tier", "session", "true"], new_id, dict)
    assert isinstance(raised.value, ContainError)
    assert exec_options.parse(["--launchd", "true"], new_id, dict).job.require_tier == TIER


def test_only_the_one_who_was_started_may_come(lineage: World) -> None:
    """An elder process of the same account is not let in: its birth is looked at, and not its word."""
    meeting = Meeting(Libproc(opened(lineage.library)))
    try:
        with socket.socket(socket.AF_UNIX) as ours:
            ours.connect(meeting.path)
            assert meeting.accept(WAIT_S) is None  # this very process: not younger than itself
        younger = subprocess.Popen(["python3", "-ISc", COME, meeting.path], stdin=subprocess.PIPE)
        found = meeting.accept(WAIT_S)
        assert found is not None
        assert found[1].pid == younger.pid  # the control
        found[0].close()
        younger.communicate(timeout=WAIT_S)
    finally:
        meeting.close()
