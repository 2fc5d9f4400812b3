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
from tests.denied import chrooted, with_room_for
from tests.ground import AS_NOBODY, PYTHON, ground_of
from tests.programs import shared_programs
from tests.session import CONTAIN, ROOT, Session, in_namespace, inspect, kill, new_id, run_job, wait_until
from tests.survivors import adopting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ground import Ground
    from tests.session import Reply

root = pytest.mark.skipif(os.getuid() != 0, reason="capability: root, to give up what root has")

NO_ADMIN = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all")
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
    assert reply["advice"].encode() in session.errors()
    assert session.errors().count(b"\n") == 1
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
        {"limits": {"memory": 1 << 30}},
        {"limits": {"pids": 1.5}},
        {"limits": {"cpus": 0}},
        {"noNewPrivs": 1},
        {"network": "some"},
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
        ((*NO_ADMIN, *under(*NO_NAMESPACES)), "seccomp"),
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
    ids=["seccomp", "seccomp-and-capability", "pid-namespaces", "user-namespaces"],
)
def test_namespaces_denied(receipts: Path, program: tuple[str, ...], detail: str) -> None:
    """Refused by name, with what to do; no job, no receipt, no process."""
    with adopting(), Session(receipts, program=program, cwd=ROOT) as session:
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


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """The user nobody, with a copy of the product that everybody may read."""
    with ground_of("nobody", shared_programs(tmp_path_factory)) as made:
        yield made


def test_a_limit_that_nothing_enforces(nobody: Ground) -> None:
    """A plain user may divide no cgroup: memory is ``not-applied``, and said so in every reply; pids hold otherwise."""
    with Session(nobody.receipts, program=nobody.contain) as session:
        session.start("true", limits={"memoryBytes": 2**30, "pids": 9})
        session.finish()
    told = [reply["limits"] for reply in session.replies if "permitId" in reply]
    assert len(told) == 3
    for limits in told:
        assert limits["memoryBytes"].startswith("not-applied: ")
        assert limits["pids"] == "rlimit"


def test_a_limit_that_nothing_enforces_and_is_required(nobody: Ground) -> None:
    """Refused before anything ran, with the field and the narrowest fix."""
    with Session(nobody.receipts, program=nobody.contain) as session:
        session.request("true", limits={"memoryBytes": 2**30, "pids": 9}, requireLimits=True)
        reply = refused(session, errors.LimitsDenied)
    assert (reply["detail"], "Delegate=yes" in reply["advice"]) == ("memoryBytes", True)


ROOTS = [Path(name) for name in ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/dev", "/proc")]


def changed_root(folder: Path, *more: Path) -> tuple[str, ...]:
    """A chroot in which Python, the product and these places are."""
    folder.mkdir()
    wanted = [*ROOTS, Path(PYTHON).parents[1], Path(sys.prefix), ROOT, *more]
    outer = [place for place in wanted if not any(other in place.parents for other in wanted)]
    return chrooted(folder, *dict.fromkeys(place for place in outer if place.exists()))


@root
def test_a_user_in_a_chroot(nobody: Ground, tmp_path: Path) -> None:
    """The kernel makes no user namespace for a process whose root was changed; the refusal says that it is this."""
    into = changed_root(tmp_path / "tree", nobody.library.parent)
    with adopting(), Session(nobody.receipts, program=(*into, *nobody.contain)) as session:
        assert refused(session.request("true"), errors.NamespacesDenied)["detail"] == "chroot"
    with Session(
        nobody.receipts, program=nobody.contain
    ) as session:  # the control: nobody without the chroot
        session.start("true")
        assert session.finish()["empty"] is True


@root
def test_root_in_a_chroot(receipts: Path, tmp_path: Path) -> None:
    """Root needs no user namespace. No /proc can be laid over the one that is there, and the proof says so."""
    into = changed_root(tmp_path / "tree", receipts)
    with adopting(), Session(receipts, program=(*into, *CONTAIN)) as session:
        proof = session.start("sh", "-c", "setsid sleep 60 & exit 4", graceMs=100, cwd="/")["namespaceInit"]
        last = session.finish()
    assert (proof["proc"], last["tier"], last["empty"]) == ("host", "namespace", True)
    assert last["outcome"]["code"] == 4


@root
@pytest.mark.parametrize(
    ("processes", "error", "detail", "step"),
    [
        (1, errors.SetupFailed, "EAGAIN", None),
        (2, errors.NamespacesDenied, "limit", "clone"),
        (3, errors.SetupFailed, "EAGAIN", "command"),
    ],
    ids=["keeper", "init", "command"],
)
def test_no_room_for_a_process(
    nobody: Ground,
    processes: int,
    error: type[errors.ContainError],
    detail: str,
    step: str | None,
) -> None:
    """Whichever of ours cannot be started, the limit is named as what to change; with room for all it runs."""
    user = 100_000 + os.getpid()  # whose processes are counted, so nobody else may have any
    for most in (processes, 4):
        own = nobody.library.parent / new_id()
        own.mkdir(mode=0o700)
        os.chown(own, user, user)
        program = (*with_room_for(most, user), *nobody.contain[len(AS_NOBODY) :])
        with adopting(), Session(own, program=program) as session:
            if most == 4:
                session.start("true")
                assert session.finish()["outcome"]["code"] == 0
                continue
            reply = refused(session.request("true"), error)
        assert (reply["detail"], reply.get("step")) == (detail, step)
        assert "ulimit -u" in reply["advice"]
        assert [path.suffix for path in own.iterdir()] in ([], [".lock"])


@root
@pytest.mark.parametrize("number", ["EPERM", "ENOSYS"])
def test_a_kill_that_is_refused(receipts: Path, number: str) -> None:
    """Without pidfd_send_signal the wrapper hangs up on the init, which ends the job: the same promise, kept."""
    with Session(receipts, program=under(f"pidfd_send_signal={number}"), cwd=ROOT) as session:
        text = "trap '' TERM; setsid sleep 60 & sleep 60"
        proof = session.start("sh", "-c", text)["namespaceInit"]
        last = session.cancel(graceMs=0).finish()
    assert (last["event"], last["empty"], last["outcome"]["cause"]) == ("released", True, "canceled")
    assert in_namespace(proof["namespace"]) == []


@root
@pytest.mark.parametrize("denial", ["pidfd_open=ENOSYS", "pidfd_open=EPERM"])
def test_no_pidfds_no_job(receipts: Path, denial: str) -> None:
    """Without pidfds nothing can be proven, so nothing is started; and the refusal says what is missing."""
    with Session(receipts, program=under(denial), cwd=ROOT) as session:
        refused(session.request("true"), errors.UnsupportedPlatform)


@root
def test_root_without_its_capability_uses_a_user_namespace(receipts: Path) -> None:
    """The same tier by another way: no CAP_SYS_ADMIN, but user namespaces."""
    program = (*NO_ADMIN, *CONTAIN)
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
