"""No silent weaker mode. Every reply names the tier in force, and what cannot be had is refused with the narrowest fix.

Refusals of the kernel are real ones: seccomp filters, capabilities that were dropped, limits, a chroot.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain import errors
from tests.session import CONTAIN, ROOT, Session, in_namespace, inspect, kill, new_id, run_job, wait_until

if TYPE_CHECKING:
    from tests.session import Reply

root = pytest.mark.skipif(os.getuid() != 0, reason="capability: root, to give up what root has")

NO_NAMESPACES = ("clone3=ENOSYS", "clone:namespaces=EPERM", "unshare=EPERM")


def under(*denials: str) -> tuple[str, ...]:
    """The product under a seccomp filter."""
    return (sys.executable, "-m", "tests.denied", *denials, "--", *CONTAIN)


def refused(session: Session, error: type[errors.ContainError]) -> Reply:
    """A refusal of this class, and nothing else."""
    reply = session.finish()
    assert session.events() == ["refused"], session.replies
    assert session.process.returncode == error.exit_code, session.errors()
    assert reply["reason"] == error.reason
    assert reply["advice"]
    return reply


def test_replies_and_receipt_name_the_tier(receipts: Path) -> None:
    """In every reply that speaks of the containment."""
    last, session = run_job(receipts, "true")
    assert {reply["event"]: reply["tier"] for reply in session.replies} == dict.fromkeys(
        ("prepared", "running", "exited", "released"), "namespace"
    )
    _, (found,) = inspect(receipts, last["id"])
    assert found["tier"] == "namespace"


@pytest.mark.parametrize("tier", ["namespace", "cgroup", "traced", "tree"])
def test_a_tier_that_is_met(receipts: Path, tier: str) -> None:
    """A job that requires this tier, or a weaker one, runs in this one."""
    last, _ = run_job(receipts, "true", requireTier=tier)
    assert last["tier"] == "namespace"


@pytest.mark.parametrize(
    "fields",
    [
        {"requireTier": "fortress"},
        {"requireTier": None},
        {"memory": 1},
        {"limits": {"memoryBytes": 1 << 30}},
        {"limits": {"pids": 10}},
        {"graceMS": 10},
        {"limits": {"openFiles": True}},
    ],
    ids=str,
)
def test_what_is_not_known_is_refused(receipts: Path, fields: dict[str, object]) -> None:
    """A field that would be ignored could have been a limit that somebody relies on."""
    with Session(receipts) as session:
        refused(session.request("true", **fields), errors.ProtocolViolation)


def test_fields_of_others_are_let_through(receipts: Path) -> None:
    """The control: x- fields are nobody's promise."""
    last, _ = run_job(receipts, "true", **{"x-trace": {"any": ["thing"]}})
    assert last["outcome"]["code"] == 0


@root
@pytest.mark.parametrize(
    ("program", "detail"),
    [
        (under(*NO_NAMESPACES), "seccomp"),
        (
            (
                "unshare",
                "-Ur",
                "sh",
                "-c",
                'echo 0 > /proc/sys/user/max_pid_namespaces; exec "$@"',
                "-",
                *CONTAIN,
            ),
            "limit",
        ),
        (
            (
                *("unshare", "-Ur", "sh", "-c"),
                'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set -sys_admin "$@"',
                *("-", *CONTAIN),
            ),
            "limit",
        ),
    ],
    ids=["seccomp", "pid-namespaces", "user-namespaces"],
)
def test_namespaces_denied(receipts: Path, program: tuple[str, ...], detail: str) -> None:
    """Refused by name, with what to do; no job, no receipt, no process."""
    with Session(receipts, program=program, cwd=ROOT) as session:
        reply = refused(session.request("true"), errors.NamespacesDenied)
    assert reply["detail"] == detail, reply
    assert [path.suffix for path in receipts.iterdir()] in ([], [".lock"])


@root
def test_no_clone3_is_no_loss(receipts: Path) -> None:
    """A profile that hides clone3 means nothing by it: clone makes the same containment."""
    with Session(receipts, program=under("clone3=ENOSYS"), cwd=ROOT) as session:
        session.start("true")
        last = session.finish()
    assert (last["tier"], last["empty"], last["outcome"]["code"]) == ("namespace", True, 0)


@root
def test_a_profile_under_which_nothing_can_be_spawned(receipts: Path) -> None:
    """clone3 answered with EPERM breaks posix_spawn itself: a refusal that names the profile."""
    with Session(receipts, program=under("clone3=EPERM"), cwd=ROOT) as session:
        assert "seccomp" in refused(session.request("true"), errors.UnsupportedPlatform)["advice"]


@root
@pytest.mark.parametrize("denial", ["pidfd_open=ENOSYS", "pidfd_open=EPERM"])
def test_no_pidfds_no_job(receipts: Path, denial: str) -> None:
    """Without pidfds nothing can be proven, so nothing is started; and the refusal says what is missing."""
    with Session(receipts, program=under(denial), cwd=ROOT) as session:
        refused(session.request("true"), errors.UnsupportedPlatform)


@root
def test_root_without_its_capability_uses_a_user_namespace(receipts: Path) -> None:
    """The same tier by another way: no CAP_SYS_ADMIN, but user namespaces."""
    program = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all", *CONTAIN)
    with Session(receipts, program=program) as session:
        prepared = session.start("sh", "-c", "id -u >&2; setsid sleep 60 & exit 4", graceMs=100)
        outside = Path("/proc/self/ns/user").stat().st_ino
        inside = Path(f"/proc/{session.process.pid}/ns/user").stat().st_ino
        last = session.finish()
    assert (inside, last["tier"], last["empty"], last["outcome"]["code"]) == (outside, "namespace", True, 4)
    assert prepared["namespaceInit"]["proc"] == "fresh"
    assert session.errors().startswith(b"0\n")


@pytest.fixture
def masked() -> tuple[str, ...]:
    """A user's contain where /proc is partly masked, as in most containers."""
    mask = "mount -t tmpfs none /proc/acpi 2>/dev/null || mount -t tmpfs none /proc/tty || mount -t tmpfs none /proc/fs"
    drop = 'exec setpriv --bounding-set -sys_admin --inh-caps -all "$@"'
    return ("unshare", "-m", "sh", "-c", f"{mask}; {drop}", "-", *CONTAIN)


@root
def test_without_a_proc_of_its_own(receipts: Path, masked: tuple[str, ...]) -> None:
    """The kernel refuses a fresh /proc: the containment is whole without it, and the proof says `host`."""
    with Session(receipts, program=masked) as session:
        proof = session.start("sh", "-c", "setsid sleep 60 & setsid sleep 60 & sleep 60")["namespaceInit"]
        assert proof["proc"] == "host"
        wait_until(lambda: len(in_namespace(proof["namespace"])) >= 4)
        kill(session.process.pid)
        session.process.wait()
        wait_until(lambda: not in_namespace(proof["namespace"]), 2)


@root
def test_a_job_inside_such_a_job(receipts: Path, tmp_path: Path, masked: tuple[str, ...]) -> None:
    """There /proc numbers processes as the outer namespace does; births are right all the same."""
    inner = tmp_path / "inner"
    inner.mkdir(mode=0o700)
    host = ROOT / "tests" / "e2e" / "contained.py"
    with Session(receipts, program=masked) as session:
        command = (
            "env",
            f"RECEIPTS={inner}",
            f"REPORT={tmp_path / 'report'}",
            f"PYTHONPATH={ROOT}",
            sys.executable,
            str(host),
        )
        session.start(*command, "sh", "-c", "setsid sleep 60 & exit 5", graceMs=20_000)
        last = session.finish()
    assert last["outcome"]["code"] == 5, session.errors()
    assert '"empty": true' in (tmp_path / "report").read_text()


def test_two_ids_do_not_make_a_tier(receipts: Path) -> None:
    """What a receipt says of its tier is what was in force, also for a job that never ran."""
    with Session(receipts) as session:
        session.id = new_id()
        session.request("true").until("prepared")
        session.hang_up().finish()
        _, (found,) = inspect(receipts, session.id)
    assert (found["tier"], found["ran"]) == ("namespace", False)
