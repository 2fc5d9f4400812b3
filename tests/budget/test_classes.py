"""From a command line to its class."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contain.budget.classes import BLIND, KINDS, Eyes, JobClass, Sight, classify
from contain.budget.classes.launchers import LAUNCHERS
from contain.budget.classes.tools import TOOLS
from tests.budget.command_lines import rows

if TYPE_CHECKING:
    from pathlib import Path

LAUNCHED = [
    "env A=1",
    "nice -n 5",
    "timeout 60",
    "nohup",
    "setsid",
    "stdbuf -oL",
    "time -p",
    "sudo -u nobody",
]
VOCABULARY = st.sampled_from(
    [
        *TOOLS,
        *LAUNCHERS,
        "npm",
        "pnpm",
        "yarn",
        "bash",
        "python3",
        "node",
        "run",
        "exec",
        "-c",
        "-m",
        "-j",
        "-j8",
        "--",
        "-n",
        "auto",
        "a.test.ts",
        "tests/test_a.py",
        "-C",
        "x",
        "--filter",
        "-k",
        "A=b",
        "",
        "-",
        "*",
    ]
)


def said(chosen: JobClass) -> str:
    """A class as the table spells it."""
    want = "*" if chosen.want_units is None else chosen.want_units
    return f"{chosen.name} {chosen.lane} {chosen.min_units}..{want}{'!' if chosen.resizable else ''}"


class Packages(Sight):
    """Sees one package.json."""

    def __init__(self, *, terminal: bool = False, **scripts: str) -> None:
        """``scripts`` are those of the directory itself."""
        self.terminal = terminal
        self._scripts = scripts

    def scripts(self, directory: str) -> dict[str, str]:
        """There is one directory."""
        return self._scripts if directory == "" else {}


@pytest.mark.parametrize(("expected", "command"), rows(), ids=[command for _, command in rows()])
def test_a_command_line_has_its_class(expected: str, command: str) -> None:
    """The table, line by line."""
    assert said(classify(shlex.split(command))) == expected


def test_the_table_is_large_and_says_nothing_twice() -> None:
    """At least 150 lines, each once: a table that shrinks is seen."""
    commands = [command for _, command in rows()]
    assert len(commands) >= 150
    assert len(set(commands)) == len(commands)


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_a_launcher_changes_no_class(launcher: str) -> None:
    """What only starts a command is transparent, for every line of the table."""
    for _, command in rows():
        words = shlex.split(command)
        if "=" in words[0] or words == ["env"]:
            continue
        assert classify([*launcher.split(), *words]) == classify(words), command


def test_a_tools_name_behind_another_command_is_text() -> None:
    """Negative control: no word decides by being somewhere in argv."""
    for tool in TOOLS:
        for command in ("cat", "grep -r", "git commit -m", "ls -l", "./unknown --flag", "echo"):
            assert said(classify([*command.split(), tool])) == "other full 1..1", (command, tool)


@pytest.mark.parametrize(
    ("expected", "command"),
    [
        ("test full 1..*", "npm test"),
        ("test light 0..0", "npm test -- src/a.test.ts"),
        ("test light 0..0", "pnpm test src/a.test.ts"),
        ("test full 1..*", "yarn run ci"),
        ("serve server 0..0", "pnpm dev"),
        ("typecheck light 0..0", "bun run types"),
        ("script full 1..*", "npm run both"),
        ("script full 1..*", "npm run hooked"),
        ("script full 1..*", "npm run loop"),
        ("script full 1..*", "npm run missing"),
        ("serve server 0..0", "npm run serve"),
        ("script full 1..*", "pnpm vitest"),
        ("script full 1..*", "npm test --workspaces"),
    ],
)
def test_a_package_script_is_what_it_runs(expected: str, command: str) -> None:
    """One plain command is its own class; hooks, shells and loops stay `script`."""
    seen = Packages(
        test="vitest run", ci="npm test", dev="next dev", types="tsc --noEmit", both="eslint . && vitest run",
        hooked="tsc --noEmit", prehooked="make all", loop="npm run loop", serve="concurrently 'vite' 'node x'",
        vitest="make a; vitest",
    )  # fmt: skip
    assert said(classify(command.split(), seen)) == expected


@pytest.mark.parametrize(
    ("command", "on_terminal", "elsewhere"),
    [
        ("bash", "none", "script"),
        ("bash -l", "none", "script"),
        ("python3", "none", "other"),
        ("vitest", "serve", "test"),
        ("vitest run", "test", "test"),
        ("bash x", "script", "script"),
        ("node", "none", "other"),
    ],
)
def test_a_person_in_front_makes_a_difference(command: str, on_terminal: str, elsewhere: str) -> None:
    """What waits for a person on a terminal reads a script, or runs once, without one."""
    assert classify(command.split(), Packages(terminal=True)).name == on_terminal
    assert classify(command.split(), BLIND).name == elsewhere


def test_eyes_see_files(tmp_path: Path) -> None:
    """A ``#!`` file is a script, a directory is no test file, a package.json is read where the manager is sent."""
    (tmp_path / "run").write_text("#!/bin/sh\nmake\n")
    (tmp_path / "binary").write_bytes(b"\x7fELF")
    (tmp_path / "odd.py").mkdir()
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "package.json").write_text(json.dumps({"scripts": {"test": "vitest run", "n": 1}}))
    (tmp_path / "package.json").write_text("{")
    eyes = Eyes(str(tmp_path), terminal=False)
    assert said(classify(["./run"], eyes)) == "script full 1..*"
    assert said(classify(["./binary"], eyes)) == "other full 1..1"
    assert said(classify(["./absent"], eyes)) == "other full 1..1"
    assert said(classify(["pytest", "odd.py"], eyes)) == "test full 1..*"
    assert said(classify(["npm", "--prefix", "web", "test"], eyes)) == "test full 1..*"
    assert said(classify(["npm", "test"], eyes)) == "script full 1..*"


@given(st.lists(VOCABULARY | st.text(max_size=12), max_size=9))
def test_classify_never_raises(argv: list[str]) -> None:
    """Whatever the words are, the answer is a class that the arbiter can use."""
    chosen = classify(argv, Packages(test="npm test", a="vitest run"))
    assert chosen.name in KINDS
    least, want = chosen.units(base=4, share=2)
    assert 0 <= least <= want <= 4
    assert chosen.width(want) >= 1
    assert classify(argv) == classify(argv)


@given(st.binary(max_size=400))
def test_no_package_file_is_too_odd(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """What stands in a package.json is somebody else's."""
    place = tmp_path_factory.mktemp("odd")
    (place / "package.json").write_bytes(content)
    assert classify(["npm", "test"], Eyes(str(place), terminal=False)).name in KINDS


def test_units_are_clamped_to_the_machine() -> None:
    """``-j64`` on a machine of two is two, exactly; a share is never more than the base."""
    assert classify(["make", "-j64"]).units(base=2, share=1) == (2, 2)
    assert classify(["make"]).units(base=16, share=8) == (1, 8)
    assert classify(["make"]).units(base=1, share=2) == (1, 1)
    assert classify(["true"]).units(base=16, share=8) == (1, 1)


def test_a_lane_is_a_pool() -> None:
    """Long draws its units from its lane as well, light and server one token, full and none nothing."""
    assert classify(["next", "build"]).draws(3) == {"lane:long": 3}
    assert classify(["next", "dev"]).draws(0) == {"lane:server": 1}
    assert classify(["tsc"]).draws(0) == {"lane:light": 1}
    assert classify(["make"]).draws(3) == {}
    assert not classify(["vim"]).takes_part


def test_a_class_repeats_no_word_of_the_user() -> None:
    """What is shown and stored of a command is the table's own names, never an argument."""
    names = {
        *TOOLS,
        "",
        "python",
        "django",
        "node",
        "deno",
        "npm",
        "pnpm",
        "yarn",
        "bun",
        "bash",
        "sh",
        "zsh",
    }
    assert {classify(shlex.split(command)).tool for _, command in rows()} <= names
