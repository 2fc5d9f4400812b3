"""The harness that proves contain-init where there is no Python holds here too, and does notice a broken one.

``ci/aarch64`` runs the same harness in a machine of the other processor.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contain.linux import init_build
from tests.linux.driver import public_folder
from tests.session import WAIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
CROSS = "aarch64-linux-gnu-gcc"
CHECKS = 50
"""Of one user; root's are done twice, the second time as nobody."""

BROKEN = {
    "any byte opens the gate": ("command.c", "byte != GATE_OPEN", "0", "a wrong byte refuses"),
    "stays dumpable": (
        "init.c",
        "failure = become_undumpable()",
        "failure = failure",
        "every attack of the job",
    ),
    "keeps its capabilities": ("setup.c", "failure = drop_capabilities()", "failure = none", "every attack"),
    "no kill by the life pipe": (
        "keeper.c",
        "F_SETSIG, SIGKILL",
        "F_SETSIG, SIGCHLD",
        "the same with a stopped keeper",
    ),
    "counts no descriptors": (
        "keeper.c",
        "count == (int)(LAUNCH_FDS + request.cgroups + request.kept)",
        "count >= LAUNCH_FDS",
        "one too many is refused",
    ),
    "trusts the seals": ("command.c", "(seals & needed) != needed", "0", "and fails at its step"),
    "deaf to its control": (
        "init.c",
        "leave(EXIT_ABANDONED);\n    if (order",
        "return;\n    if (order",
        "the control socket",
    ),
    "ignores its orphans": ("init.c", "init->reaped++", "init->reaped = 1", "two thousand orphans"),
}
"""What is wrong -> the file, the text and its replacement, and the rule of the harness that must then fail."""


def compile_harness(output: Path, cc: str = "cc") -> None:
    """The harness, static, so that it runs where nothing else is."""
    flags = (
        "-std=gnu11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wshadow",
        "-static",
        f"-I{init_build.SOURCES}",
    )
    subprocess.run([cc, *flags, "-o", output, HERE / "init_harness.c", HERE / "init_jobs.c"], check=True)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that nobody may enter too, with the harness in it."""
    with public_folder() as folder:
        compile_harness(folder / "init_harness")
        yield folder


def run(place: Path, program: Path, wait_s: float) -> subprocess.CompletedProcess[str]:
    """The harness on a program."""
    environment = {"HARNESS_WAIT_MS": str(int(wait_s * 1000))}
    return subprocess.run(
        [place / "init_harness", program],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=55,
    )


def test_every_check_holds(place: Path) -> None:
    """Root's checks, and the same as nobody in a user namespace, hold; none was left out."""
    program = place / "contain-init"
    init_build.compile_program(str(program))
    done = run(place, program, WAIT_S)
    lines = done.stdout.splitlines()
    assert [text for text in lines if not text.startswith("ok  ")][-1:] == ["verdict: all checks held"], (
        done.stdout
    )
    assert done.returncode == 0
    users = 2 if os.getuid() == 0 else 1
    assert len([text for text in lines if text.startswith("ok  ")]) == CHECKS * users


@pytest.mark.parametrize(
    "fault",
    [name if n % 4 == 0 else pytest.param(name, marks=pytest.mark.slow) for n, name in enumerate(BROKEN)],
)
def test_a_broken_program_is_noticed(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """A contain-init with one fault fails the rule that the fault breaks."""
    if fault == "stays dumpable" and os.getuid() != 0:
        pytest.skip("capability: root, whose jobs may have the capabilities to reach a dumpable init")
    file, text, instead, rule = BROKEN[fault]
    sources = tmp_path / "init"
    shutil.copytree(init_build.SOURCES, sources)
    whole = (sources / file).read_text()
    assert whole.count(text) == 1, f"{file} has changed: say anew how to break it"
    (sources / file).write_text(whole.replace(text, instead))
    program = place / f"broken-{list(BROKEN).index(fault)}"
    with monkeypatch.context() as patch:
        patch.setattr(init_build, "SOURCES", sources)
        init_build.compile_program(str(program), extra=("-Wno-unused-function", "-Wno-unused-variable"))
    done = run(place, program, 2.0)
    failed = [text for text in done.stdout.splitlines() if text.startswith("FAIL")]
    assert done.returncode != 0
    assert [text for text in failed if rule in text], done.stdout


def test_the_aarch64_program_needs_nothing() -> None:
    """Cross-compiled: a static program for AArch64, without interpreter, dynamic section or executable stack."""
    if shutil.which(CROSS) is None:
        pytest.skip(f"capability: {CROSS}")
    with public_folder() as folder:
        program, harness = folder / "contain-init", folder / "init_harness"
        init_build.compile_program(str(program), cc=CROSS)
        compile_harness(harness, cc=CROSS)
        for path in (program, harness):
            assert "AArch64" in elf("-h", path)
            assert not {"INTERP", "DYNAMIC"}.intersection(elf("-l", path).split())
            assert "RWE" not in elf("-l", path).replace("R W E", "RWE")
        assert program.stat().st_size < 65536


def test_a_dynamic_program_would_be_seen() -> None:
    """The check before can fail: Python itself has an interpreter in its ELF header, in the other sense."""
    assert "INTERP" in elf("-l", Path("/bin/sh"))


def elf(what: str, path: Path) -> str:
    """What readelf says."""
    return subprocess.run(["readelf", "-W", what, path], capture_output=True, text=True, check=True).stdout
