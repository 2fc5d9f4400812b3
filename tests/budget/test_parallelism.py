"""The hints that a grant gives to its children."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contain.budget.arguments import added_arguments, lowered
from contain.budget.parallelism import LOWEST, WORKERS, gradle_options, hints, make_flags

NUMBERS = st.integers(1, 99_999).map(str)
GARBAGE = st.sampled_from(["", "100%", "auto", "0", "-1", "4,2", "1e3", " ", "٣", "9" * 40, "default"])
FLAG_WORDS = st.sampled_from(
    [
        "k",
        "-j",
        "-j3",
        "-kj7",
        "j2",
        "--jobs=5",
        "--jobs",
        "6",
        "-C",
        "-Csrc",
        "--no-print-directory",
        "-j1",
        "-j0",
        "--jobserver-auth=3,4",
        "--jobserver-fds=3,4",
        "--jobserver-auth=fifo:/x",
        "-l2.5",
        "-Ojobs",
        "A=-j9",
        "--",
        "B=c",
    ]
)


@pytest.mark.parametrize("name", WORKERS)
def test_a_worker_variable_is_set_lowered_or_left(name: str) -> None:
    """Absent, high and garbage become the limit; lower stays, and then nothing is changed."""
    assert hints(4, {})[name] == "4"
    assert hints(4, {name: "64"})[name] == "4"
    for garbage in ("", "100%", "auto", "0", "-1", "4,2"):
        assert hints(4, {name: garbage})[name] == "4"
    assert name not in hints(4, {name: "2"})
    assert name not in hints(4, {name: "4"})


@given(st.integers(1, 4096), st.dictionaries(st.sampled_from([*WORKERS, *LOWEST]), NUMBERS | GARBAGE))
def test_no_value_of_the_caller_is_raised(width: int, env: dict[str, str]) -> None:
    """Every hint is a number from 1 to the width, and no number of the caller's gets larger."""
    for name, value in ({**env, **hints(width, env)}).items():
        if name in WORKERS:
            assert value is not None
            assert 1 <= int(value) <= width
            if (
                env.get(name, "").isascii()
                and 0 < int(env[name] if env.get(name, "").isdigit() else 0) < width
            ):
                assert value == env[name]


@given(
    st.integers(1, 4096),
    st.dictionaries(st.sampled_from([*WORKERS, "GRADLE_OPTS", "MAKEFLAGS"]), NUMBERS | GARBAGE),
)
def test_hints_are_the_same_twice(width: int, env: dict[str, str]) -> None:
    """A nested grant of the same width changes nothing more."""
    first = {name: value for name, value in {**env, **hints(width, env)}.items() if value is not None}
    assert hints(width, first) == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "-j4"),
        ("-j", "-j4"),
        ("-j2", "-j2"),
        ("-j 2", "-j2"),
        ("-j64", "-j4"),
        ("kj64", "k -j4"),
        ("kj", "k -j4"),
        ("-kj3 -s", "-j3 -k -s"),
        ("--jobs=3", "-j3"),
        ("--jobs 3 -k", "-j3 -k"),
        ("--jobs", "-j4"),
        ("rR --no-print-directory", "rR -j4 --no-print-directory"),
        ("k -- CC=clang\\ -j9 A=b", "k -j4 -- CC=clang\\ -j9 A=b"),
        (" -j8 --jobserver-auth=3,4 -- A=b", "-j4 -- A=b"),
        ("w -j8 --jobserver-fds=3,4", "w -j4"),
        ("-Cjobs -Ij7", "-j4 -Cjobs -Ij7"),
        ("-Ojobs", "-j4 -Ojobs"),
        ("-j0", "-j4"),
        ("-j j2", "-j4 j2"),
    ],
)
def test_makeflags(before: str, after: str) -> None:
    """The job count is lowered where it stands in whatever spelling, and nothing else is touched."""
    assert make_flags(before, 4, None) == after


def test_makeflags_name_our_jobserver_alone() -> None:
    """An outer make's is replaced; its copies in other variables are unset, a harmless one stays."""
    env = {
        "MAKEFLAGS": "k -j8 --jobserver-auth=3,4",
        "MFLAGS": "-k -j8 --jobserver-auth=3,4",
        "CARGO_MAKEFLAGS": "-j",
    }
    changes = hints(4, env, "fifo:/x/y")
    assert changes["MAKEFLAGS"] == "k -j4 --jobserver-auth=fifo:/x/y"
    assert changes["MFLAGS"] is None
    assert "CARGO_MAKEFLAGS" not in changes


@given(st.lists(FLAG_WORDS, max_size=7), st.integers(1, 64))
def test_makeflags_hold_one_count_that_is_not_above_the_width(words: list[str], width: int) -> None:
    """Whatever was there; and doing it again changes nothing."""
    made = make_flags(" ".join(words), width, None)
    flags = f" {made} ".partition(" -- ")[0].split()
    counts = [word for word in flags if word.startswith("-j")]
    assert len(counts) == 1
    assert 1 <= int(counts[0][2:]) <= width
    assert make_flags(made, width, None) == made


def test_make_itself_reads_what_was_written(tmp_path: object) -> None:
    """The real make takes the flags as written: -k and a variable survive, and the count arrives."""
    flags = make_flags("k -j64 -- A=b\\ c", 3, None)
    recipe = "all:\n\t@echo '$(A)' '$(MAKEFLAGS)'\n"
    done = subprocess.run(
        ["make", "-f", "-"], input=recipe, env={"PATH": "/usr/bin:/bin", "MAKEFLAGS": flags}, cwd=str(tmp_path),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("b c k")
    assert " -j3 " in done.stdout
    assert done.stderr == ""


def test_gradle_options_keep_the_rest() -> None:
    """One limit, at the end, and never higher than the caller's lowest."""
    assert gradle_options("", 4) == "-Dorg.gradle.workers.max=4"
    assert gradle_options("-Xmx2g -Dorg.gradle.workers.max=16", 4) == "-Xmx2g -Dorg.gradle.workers.max=4"
    assert gradle_options("-Dorg.gradle.workers.max=2 -Xmx2g", 4) == "-Xmx2g -Dorg.gradle.workers.max=2"


@pytest.mark.parametrize(
    ("tool", "arguments", "added"),
    [
        ("jest", [], ("--maxWorkers=4",)),
        ("jest", ["--ci"], ("--maxWorkers=4",)),
        ("jest", ["--maxWorkers=50%"], ()),
        ("jest", ["-w", "2"], ()),
        ("jest", ["--runInBand"], ()),
        ("jest", ["--", "a"], ()),
        ("xcodebuild", ["-scheme", "A"], ("-jobs", "4")),
        ("xcodebuild", ["-jobs", "8"], ()),
        ("make", [], ()),
    ],
)
def test_tools_without_a_variable_get_an_argument(
    tool: str, arguments: list[str], added: tuple[str, ...]
) -> None:
    """Jest and xcodebuild read no variable; a caller's own number stays."""
    assert added_arguments(tool, arguments, 4) == added


LOWERED: dict[str, tuple[str, str, bool, str]] = {
    "attached": ("-j", "-j8 all", False, "-j2 all"),
    "apart": ("-j --jobs", "-j 8 --jobs 9 all", False, "-j 2 --jobs 2 all"),
    "with =": ("-j --jobs", "--jobs=8", False, "--jobs=2"),
    "in a bundle": ("-j", "-kj8 all", False, "-kj2 all"),
    "lower already": ("-j", "-j1 all", False, "-j1 all"),
    "no number": ("-n", "-n auto -k x", False, "-n auto -k x"),
    "another option": ("-j", "-l8 -C 9 all", False, "-l8 -C 9 all"),
    "behind --": ("-j", "-j8 -- -j8", False, "-j2 -- -j8"),
    "tokens, attached": ("-j", "-j8 all", True, "all"),
    "tokens, apart": ("-j", "-j 8 all", True, "all"),
    "tokens, bare": ("-j", "-j all", True, "all"),
    "tokens, in a bundle": ("-j", "-kj8 all", True, "-k all"),
    "tokens, with =": ("--jobs", "--jobs=8 all", True, "all"),
    "a launcher's": ("", "-n 10 pytest -n 8", False, "-n 10 pytest -n 8"),
}


@pytest.mark.parametrize(("jobs", "given", "tokens", "kept"), LOWERED.values(), ids=LOWERED)
def test_what_a_command_line_says_is_lowered(jobs: str, given: str, tokens: bool, kept: str) -> None:  # noqa: FBT001
    """Eight workers in two units are six too many, whoever has typed them."""
    assert lowered(given.split(), jobs.split(), 2, tokens=tokens) == tuple(kept.split())
