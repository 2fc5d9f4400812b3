"""What a start of ``contain run`` and ``contain inspect`` imports is a budget: these modules, and no others.

A list and not a time, because a time depends on the machine and an import is somebody's decision. A job costs a few
milliseconds; ``re`` or ``json`` would cost as much again, before every one. Counted through bin/contain, less what a
bare interpreter brings.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.session import WAIT_S, Session, installed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

COUNT = {**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}


def listed(names: str) -> frozenset[str]:
    """The names of a text."""
    return frozenset(names.split())


FORBIDDEN = listed(
    "argparse ast asyncio collections contextlib copy dataclasses enum functools hashlib hmac"
    " importlib.metadata inspect json logging pathlib pickle platform prctl psutil pyroute2 random re"
    " selectors shutil socket sqlite3 ssl signal string struct subprocess tempfile textwrap threading"
    " traceback types typing uuid"
)
"""Named, so that nobody puts one of them on the lists below without reading this."""

C_MODULES = listed(
    "__future__ _cffi_backend _json _operator _signal _socket errno fcntl gc pwd resource select"
)
"""Modules of C, or nearly empty: each some tens of microseconds."""

RECEIPTS = listed(
    "receipts receipts.batch receipts.codec receipts.disk receipts.facts receipts.filesystem receipts.ground"
    " receipts.jsontext receipts.lock receipts.names receipts.place receipts.prune receipts.record receipts.store"
    " receipts.sync"
)
BOTH = RECEIPTS | listed(
    "contain contain.backend contain.cli contain.cli.main contain.cli.place contain.csignal contain.errors contain.job"
    " contain.lifecycle contain.lifecycle.custody"
    " contain.linux contain.linux._native contain.linux.backend contain.linux.birth contain.linux.census"
    " contain.linux.cgroup contain.linux.channel contain.linux.command contain.linux.containment contain.linux.host"
    " contain.linux.keeper contain.linux.launch"
    " contain.linux.native contain.linux.process contain.linux.procfs contain.platform contain.protocol"
)
RUN = BOTH | listed(
    "contain.cli.run contain.cli.single contain.lifecycle.host contain.lifecycle.life"
    " contain.lifecycle.loop contain.lifecycle.verdict"
)
EXEC = BOTH | listed(
    "contain.adapter contain.cli.exec contain.cli.exec_options contain.cli.single"
    " contain.lifecycle.front contain.lifecycle.host contain.lifecycle.life contain.lifecycle.terminal"
    " contain.lifecycle.verdict contain.linux.signals"
)
INSPECT = BOTH | frozenset(["contain.cli.inspect", "contain.recovery"])


class Imported(NamedTuple):
    """One line of ``-X importtime``: a module, and the chain of those that were being imported around it."""

    name: str
    within: tuple[str, ...]


def imported(report: str) -> list[Imported]:
    """The lines of a report. A module is printed after those that it imported, two columns further left."""
    found: list[Imported] = []
    chain: list[tuple[int, str]] = []
    for text in reversed(report.splitlines()):
        if not text.startswith("import time:") or "imported package" in text:
            continue
        column = text.rpartition("|")[2]
        depth = len(column) - len(column.lstrip())
        while chain and chain[-1][0] >= depth:
            chain.pop()
        found.append(Imported(column.strip(), tuple(name for _, name in chain)))
        chain.append((depth, column.strip()))
    return found[::-1]


def report_of(words: Sequence[str]) -> str:
    """What a command that ends by itself imported."""
    return subprocess.run(words, env=COUNT, capture_output=True, text=True, timeout=WAIT_S, check=True).stderr


def more_than_bare(report: str) -> list[Imported]:
    """Less what every Python imports, and this installation's .pth files."""
    bare = {module.name for module in imported(report_of([sys.executable, "-c", "pass"]))}
    return [module for module in imported(report) if module.name not in bare]


def over_budget(found: Sequence[Imported], ours: frozenset[str], others: frozenset[str]) -> set[str]:
    """The modules that nobody has decided on."""
    return {module.name for module in found} - ours - others


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Executed by the kernel under its own name, which then needs no prctl."""
    return str(installed(tmp_path_factory.mktemp("bin")))


@pytest.fixture(scope="module")
def run_report(command: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a whole ``contain run``, from its first line to its last reply."""
    with Session(receipts_of(tmp_path_factory), program=[command], env=COUNT) as session:
        session.start("true")
        assert session.finish()["event"] == "released"
        return session.errors().decode()


@pytest.fixture(scope="module")
def inspect_report(command: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a ``contain inspect`` that has something to observe: a job whose wrapper was killed."""
    receipts = receipts_of(tmp_path_factory)
    with Session(receipts) as session:
        session.start("sleep", "60")
        session.process.kill()
        session.process.wait(WAIT_S)
        return report_of([command, "inspect", str(receipts), session.id, "--finish"])


def receipts_of(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private directory."""
    place = tmp_path_factory.mktemp("imports") / "receipts"
    place.mkdir(mode=0o700)
    return place


def test_run_imports_what_is_listed(run_report: str) -> None:
    """A new import before or during a job is a change of this list."""
    found = more_than_bare(run_report)
    assert over_budget(found, RUN, C_MODULES) == set()
    assert RUN - {module.name for module in found} == set(), "the list names what is not imported any more"


def test_inspect_imports_what_is_listed(inspect_report: str) -> None:
    """The same for a look at a receipt, the observation and the release included."""
    found = more_than_bare(inspect_report)
    assert over_budget(found, INSPECT, C_MODULES) == set()
    assert INSPECT - {module.name for module in found} == set(), (
        "the list names what is not imported any more"
    )


def test_exec_imports_what_is_listed(command: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same for a command in front of a person."""
    receipts = receipts_of(tmp_path_factory)
    found = more_than_bare(
        report_of([command, "exec", "--no-budget", "--receipts", str(receipts), "--", "true"])
    )
    assert over_budget(found, EXEC, C_MODULES) == set()
    assert EXEC - {module.name for module in found} == set(), "the list names what is not imported any more"


def test_no_list_allows_a_forbidden_module() -> None:
    """The lists are for decisions, and these are decided."""
    assert not FORBIDDEN & (RUN | EXEC | INSPECT | C_MODULES)


@pytest.mark.parametrize("name", sorted(FORBIDDEN - {"pyroute2"}))
def test_a_forbidden_import_would_be_found(name: str) -> None:
    """The negative control: an import of any of them, with nothing else, is over the budget."""
    bare = {module.name for module in imported(report_of([sys.executable, "-c", "pass"]))}
    found = more_than_bare(report_of([sys.executable, "-c", f"import {name}"]))
    assert name in bare or name in over_budget(found, RUN, C_MODULES)
