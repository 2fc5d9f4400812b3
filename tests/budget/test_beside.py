"""Files beside the registry: whole whoever is killed, and never more of them than there are names."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from contain.budget.beside import NEW, replace
from tests.session import ROOT, WAIT_S

if TYPE_CHECKING:
    from pathlib import Path

WRITER = """
import sys
from contain.budget.beside import replace
while True:
    replace(sys.argv[1], sys.argv[2] * 50_000)
"""


def test_it_is_whole_whoever_is_killed(tmp_path: Path) -> None:
    """Three write without an end and are killed one after another: every look shows one writer's whole text."""
    file = tmp_path / "file"
    replace(str(file), "0" * 50_000)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(file), digit], cwd=ROOT) for digit in "123"
    ]
    seen = set()
    try:
        while writers:
            for _ in range(300):
                text = file.read_text(encoding="ascii")
                assert len(text) == 50_000
                assert len(set(text)) == 1
                seen.add(text[0])
            if len(seen) > 1:  # somebody has begun
                writer = writers.pop()
                writer.kill()
                writer.wait(WAIT_S)
    finally:
        for writer in writers:
            writer.kill()
            writer.wait(WAIT_S)
    assert {path.name for path in tmp_path.iterdir()} <= {"file", f"file{NEW}"}
    replace(str(file), "it goes on")
    assert file.read_text(encoding="ascii") == "it goes on"


def test_what_a_killed_writer_has_left_is_written_over(tmp_path: Path) -> None:
    """However long it was."""
    file = tmp_path / "file"
    (tmp_path / f"file{NEW}").write_text("x" * 1000, encoding="ascii")
    replace(str(file), "short")
    assert (file.read_text(encoding="ascii"), [path.name for path in tmp_path.iterdir()]) == (
        "short",
        ["file"],
    )
