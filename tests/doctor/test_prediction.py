"""What doctor predicts is what the next job meets: in each environment both are asked."""

from __future__ import annotations

import importlib.resources
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from tests.budget.account import HOME
from tests.ground import ground_of
from tests.programs import shared_programs
from tests.session import CONTAIN, ROOT, WAIT_S, Session
from tests.survivors import adopting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.ground import Ground

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="capability: root, to give up what root has")

SCHEMA = Draft202012Validator(
    json.loads((importlib.resources.files("contain") / "schemas" / "doctor.json").read_text(encoding="ascii"))
)
NO_ADMIN = ("setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-all")
NO_NAMESPACES = ("clone3=ENOSYS", "clone:namespaces=EPERM", "unshare=EPERM")
FULL = 'echo 0 > /proc/sys/user/max_pid_namespaces; exec "$@"'
MASK = "mount -t tmpfs none /proc/acpi 2>/dev/null || mount -t tmpfs none /proc/tty || mount -t tmpfs none /proc/fs"


def apart(folder: Path) -> tuple[str, ...]:
    """Words in front, for root: an account's root and a fall-back of one's own, for the registry that doctor opens."""
    root = folder / "root"
    root.mkdir(mode=0o700)
    Path(HOME, ".contain").mkdir(mode=0o700, exist_ok=True)
    mounts = f'mount --bind {root} {HOME}/.contain && mount -t tmpfs -o mode=1777 none /var/tmp && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", mounts, "-")


def filtered(*denials: str) -> tuple[str, ...]:
    """Words in front of contain: a seccomp filter."""
    return (sys.executable, "-m", "tests.denied", *denials, "--")


ENVIRONMENTS = {
    "as it is": (),
    "no capability": NO_ADMIN,
    "no clone3": filtered("clone3=ENOSYS"),
    "a container's profile": filtered(*NO_NAMESPACES),
    "that and no capability": (*NO_ADMIN, *filtered(*NO_NAMESPACES)),
    "nothing can be spawned": filtered("clone3=EPERM"),
    "no pidfds": filtered("pidfd_open=ENOSYS"),
    "no room for a namespace": ("unshare", "-Ur", "sh", "-c", FULL, "-"),
    "a masked /proc": ("unshare", "-m", "sh", "-c", f'{MASK}; exec {" ".join(NO_ADMIN)} "$@"', "-"),
}


def examined(program: Sequence[str], receipts: Path, **popen: Any) -> tuple[int, dict[str, Any]]:  # noqa: ANN401 - passed on
    """(exit status, report) of doctor; the report is valid."""
    done = subprocess.run(
        [*program, "doctor", "--json", str(receipts)],
        capture_output=True,
        timeout=WAIT_S,
        check=False,
        **popen,
    )
    assert done.stderr == b""
    report: dict[str, Any] = json.loads(done.stdout)
    SCHEMA.validate(report)
    return done.returncode, report


def met(program: Sequence[str], receipts: Path, **popen: Any) -> dict[str, Any]:  # noqa: ANN401 - passed on
    """What a job meets, in the words of a prediction."""
    with adopting(), Session(receipts, program=tuple(program), **popen) as session:
        session.request("true")
        first = session.read()
        if first is not None and first["event"] == "prepared":
            session.go()
        last = session.finish()
        code = session.process.returncode
    if last["event"] == "refused":
        return {
            "works": False,
            "tier": None,
            "reason": last["reason"],
            "detail": last.get("detail"),
            "exitCode": code,
        }
    return {"works": True, "tier": last["tier"], "reason": None, "detail": None, "exitCode": 0}


@needs_root
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_it_says_what_a_job_meets(receipts: Path, tmp_path: Path, name: str) -> None:
    """The same tier, or the same refusal with the same exit status; and a refusal is never without a fix."""
    program = (*apart(tmp_path), *ENVIRONMENTS[name], *CONTAIN)
    code, report = examined(program, receipts, cwd=ROOT)
    found = report["prediction"]
    assert found == met(program, receipts, cwd=ROOT)
    assert found["exitCode"] in (0, code)
    failed = [one for one in report["checks"] if one["name"] == "containment" and one["state"] == "failed"]
    assert bool(failed) != found["works"]
    assert all(one["fix"] for one in failed)
    assert report["tiers"]["namespace"] == ("works" if found["works"] else "refused")


def test_a_refusal_is_among_the_environments() -> None:
    """The control: some of them are refused, and some are not; else the test above could not fail."""
    assert {"as it is", "a container's profile"} <= set(ENVIRONMENTS)


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """The user nobody, with a copy of the product that everybody may read."""
    with ground_of("nobody", shared_programs(tmp_path_factory)) as made:
        yield made


def test_a_plain_user(nobody: Ground, tmp_path: Path) -> None:
    """The same tier as root's; that no cgroup can be divided is a warning with its fix."""
    program = (*apart(tmp_path), *nobody.contain)
    code, report = examined(program, nobody.receipts)
    assert report["prediction"] == met(program, nobody.receipts)
    assert report["prediction"]["works"]
    (limits,) = [one for one in report["checks"] if one["name"] == "tree limits"]
    assert (limits["state"], "Delegate=yes" in limits["fix"]) == ("warning", True)
    assert (code, [one["name"] for one in report["checks"] if one["state"] == "failed"]) == (0, [])


@needs_root
def test_a_masked_proc_is_told(receipts: Path, tmp_path: Path) -> None:
    """Contained all the same, and what a job sees is another matter: the flag that opens it is named."""
    _, report = examined((*apart(tmp_path), *ENVIRONMENTS["a masked /proc"], *CONTAIN), receipts)
    (view,) = [one for one in report["checks"] if one["name"] == "proc"]
    assert (view["state"], "systempaths=unconfined" in view["fix"]) == ("warning", True)


@needs_root
def test_a_directory_that_is_refused(tmp_path: Path) -> None:
    """The reason and the exit status are the job's."""
    program = (*apart(tmp_path), *CONTAIN)
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    code, report = examined(program, open_to_all)
    assert report["prediction"] == met(program, open_to_all)
    assert (report["prediction"]["reason"], code) == ("unsafe-place", report["prediction"]["exitCode"])


@needs_root
def test_a_receipt_in_doubt_is_told(receipts: Path, tmp_path: Path) -> None:
    """With the line to type: here a file that cannot be read, which may be of a living tree."""
    (receipts / "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9.json").write_text("{", encoding="ascii")
    _, report = examined((*apart(tmp_path), *CONTAIN), receipts)
    (doubt,) = [one for one in report["checks"] if one["name"] == "receipts in doubt"]
    assert doubt["state"] == "warning"
    assert "contain inspect" in doubt["fix"]
