"""The environment widens nothing. No variable chooses another registry, raises a limit or opens a gate."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ground import AS_NOBODY, UID, ground_of
from tests.programs import shared_programs
from tests.session import CONTAIN, Session, inspect, run_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ground import Ground

LURE = {
    "HOME": "{lure}",
    "XDG_STATE_HOME": "{lure}",
    "XDG_RUNTIME_DIR": "{lure}",
    "XDG_DATA_HOME": "{lure}",
    "CONTAIN_DIR": "{lure}",
    "CONTAIN_ROOT": "{lure}",
    "CONTAIN_HOME": "{lure}",
    "CONTAIN_INIT": "/bin/false",
    "CONTAIN_TOKEN": "0" * 64,
    "CONTAIN_TIER": "none",
    "TMPDIR": "{lure}",
}


@pytest.fixture(scope="module")
def nobody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """The user nobody, whose home does not exist."""
    with ground_of("nobody", shared_programs(tmp_path_factory)) as made:
        yield made


@pytest.fixture
def fallback() -> Iterator[Path]:
    """Where nobody's receipts go by default; gone afterwards."""
    place = Path(f"/var/tmp/contain-{UID}")
    if place.exists():
        pytest.skip(f"capability: {place} is in use on this machine")
    yield place
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.xdist_group("fallback-root")
def test_the_root_comes_from_the_account(nobody: Ground, fallback: Path) -> None:
    """Whatever the environment says, the receipts are in the account's own place; a fall-back is said once."""
    lure = nobody.work / "lure"
    lure.mkdir()
    lure.chmod(0o777)
    variables = [f"{name}={value.format(lure=lure)}" for name, value in LURE.items()]
    program = (*nobody.contain[: len(AS_NOBODY)], "env", *variables, *nobody.contain[len(AS_NOBODY) :])
    with Session(None, program=program) as session:
        session.start("true")
        last = session.finish()
    assert (last["empty"], last["outcome"]["code"]) == (True, 0)
    assert list(lure.iterdir()) == []
    home = Path(pwd.getpwuid(UID).pw_dir)
    assert not home.exists()
    assert (fallback / f"{session.id}.json").exists()
    assert session.errors().count(str(fallback).encode()) == 1


@pytest.mark.skipif(
    os.getuid() != 0, reason="capability: root, to lay another account database over the machine's"
)
def test_the_home_is_the_account_databases(tmp_path: Path) -> None:
    """The home that passwd names holds the receipts, whatever HOME says; that is no fall-back, and nothing is said."""
    home, lure, passwd = tmp_path / "home", tmp_path / "lure", tmp_path / "passwd"
    for folder in (home, lure):
        folder.mkdir(mode=0o700)
    passwd.write_text(f"root:x:0:0::{home}:/bin/sh\n")
    variables = [f"{name}={value.format(lure=lure)}" for name, value in LURE.items()]
    into = ("unshare", "-m", "sh", "-c", f'mount --bind {passwd} /etc/passwd; exec "$@"', "-")
    with Session(None, program=(*into, "env", *variables, *CONTAIN)) as session:
        session.start("true")
        assert session.finish()["empty"] is True
    assert (home / ".contain" / f"{session.id}.json").exists()
    assert list(lure.iterdir()) == []
    assert session.errors() == b""


def test_path_chooses_no_program_of_ours(receipts: Path, tmp_path: Path) -> None:
    """Only the command is looked for along PATH; nothing that works for us is, whatever its name."""
    lure, started = tmp_path / "lure", tmp_path / "started"
    lure.mkdir()
    for name in ("contain-init", "contain", "python", "sh", "kill", "mount", "unshare", "true"):
        program = lure / name
        program.write_text(f"#!/bin/sh\necho {name} >> {started}\nexit 9\n")
        program.chmod(0o755)
    env = {**os.environ, "PATH": str(lure)}
    for command, code in (("/bin/true", 0), ("true", 9)):  # the second is the control: the lure does lure
        with Session(receipts, env=env) as session:
            session.start(command)
            assert session.finish()["outcome"]["code"] == code
        assert started.exists() == (code == 9)
    assert started.read_text() == "true\n"


def test_the_gate_and_the_program_are_not_chosen(receipts: Path) -> None:
    """A token in the environment opens nothing; another program named there is not started."""
    env = {**os.environ, **{name: value.format(lure="/nowhere") for name, value in LURE.items()}}
    with Session(receipts, env=env) as session:
        session.request("true").until("prepared")
        last = session.go(token="0" * 64).finish()
    assert last["outcome"]["cause"] == "refused"
    with Session(receipts, env=env) as session:
        session.start("true")
        assert session.finish()["outcome"]["code"] == 0


def test_limits_are_the_requests(receipts: Path) -> None:
    """A limit of the request holds, whatever the command's environment claims."""
    env = {"PATH": "/usr/bin:/bin", "CONTAIN_LIMITS": "none", "CONTAIN_OPEN_FILES": "1000000"}
    _, session = run_job(receipts, "sh", "-c", "ulimit -n >&2", env=env, limits={"openFiles": 64})
    assert session.errors().strip() == b"64"


READERS = {
    "contain/linux/command.py": "PATH, and copied for the job",
    "contain/darwin/command.py": "the same",
    "contain/cli/permit.py": "session labels, which confer nothing; whose job this may run in, which is then asked",
    "contain/cli/permits.py": "whose job this may run in, which is then asked",
    "contain/cli/desk.py": "whose job this may run in, which is then asked",
    "contain/cli/why.py": "session labels",
    "contain/budget/hosted.py": "session labels; hints to a host's children, which only lower",
}
"""Who reads the environment, and what for. None of it chooses a registry, raises a limit or opens a gate."""


def test_nobody_else_reads_the_environment() -> None:
    """The control in the source: a new reader is a decision of this list."""
    asked = subprocess.run(
        ["grep", "-rlE", r"os\.environb?\b|getenv", "contain", "receipts", "--include=*.py"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    ).stdout.split()
    assert set(asked) == set(READERS)


def test_inspect_is_not_led_astray(receipts: Path) -> None:
    """The same for inspect: an explicit directory is the directory."""
    last, _ = run_job(receipts, "true")
    program = (
        "env",
        *(f"{name}={value.format(lure='/nowhere')}" for name, value in LURE.items()),
        sys.executable,
        "-m",
        "contain",
    )
    code, found = inspect(receipts, program=program)
    assert (code, [reply["id"] for reply in found]) == (0, [last["id"]])
