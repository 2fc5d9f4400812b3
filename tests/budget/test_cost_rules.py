"""Learned costs: what a run teaches, what a ticket is then asked with, and which runs are of one kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from contain.budget.asking import expected, recognise, ticket
from contain.budget.classes import KINDS
from contain.budget.costs import LearnedCost, expected_memory_mib, expected_s, key_of
from contain.budget.costs.estimate import after, lesson
from contain.budget.policy import preset
from receipts import Outcome
from tests.budget.teacher import ended, usage

if TYPE_CHECKING:
    from pathlib import Path

    from contain.job import Usage

CANCELED = Outcome(cause="canceled", by="SIGTERM")
NO_MEMORY = Outcome(cause="out-of-memory", signal=9)


# -- what a run teaches: pure ----------------------------------------------------------------------------------------

Run = tuple[Outcome, "Usage | None"]

EXAMPLES: dict[str, tuple[str, int, list[Run], list[int]]] = {
    # class, its first guess (MiB), runs -> what the next is asked with after each
    "the first low run changes nothing, the second is believed": (
        "test",
        2048,
        [(ended(), usage(300, 9)), (ended(), usage(280, 9))],
        [2048, 297],
    ),
    "a high peak counts at once": ("test", 2048, [(ended(), usage(5000, 9))], [5000]),
    "and falls by an eighth of the difference": (
        "test",
        2048,
        [(ended(), usage(5000, 9)), (ended(), usage(1000, 9)), (ended(), usage(1000, 9))],
        [5000, 4500, 4062],
    ),
    "a key that unlike commands share falls by half": (
        "script",
        2048,
        [(ended(), usage(5000, 9)), (ended(), usage(1000, 9)), (ended(), usage(1000, 9))],
        [5000, 3000, 2000],
    ),
    "failing by itself is a whole run": (
        "test",
        2048,
        [(ended(1), usage(300, 9)), (ended(2), usage(300, 9))],
        [2048, 300],
    ),
    "the largest process alone never lowers": (
        "test",
        2048,
        [(ended(), usage(300, 9, "largest-process"))] * 3,
        [2048, 2048, 2048],
    ),
    "but raises": ("test", 2048, [(ended(), usage(3000, 9, "largest-process"))], [3000]),
    "a short run never lowers": ("test", 2048, [(ended(), usage(300, 0.9))] * 3, [2048, 2048, 2048]),
    "but raises, if short": ("test", 2048, [(ended(), usage(3000, 0.9))], [3000]),
    "nor does one that was ended": (
        "test",
        2048,
        [(CANCELED, usage(300, 9)), (Outcome(cause="timed-out"), usage(300, 9))] * 2,
        [2048] * 4,
    ),
    "nor one that a signal ended, told by a shell or not": (
        "test",
        2048,
        [(Outcome(cause="signaled", signal=9), usage(300, 9)), (ended(137), usage(300, 9))] * 2,
        [2048] * 4,
    ),
    "what did not run teaches nothing": (
        "test",
        2048,
        [(Outcome(cause="exec-failed", errno=2), usage(9000, 9)), (Outcome(cause="setup-failed"), None)],
        [2048, 2048],
    ),
    "a machine out of memory: half as much again as was charged": (
        "test",
        2048,
        [(NO_MEMORY, usage(1000, 9)), (NO_MEMORY, usage(1000, 9))],
        [3072, 4608],
    ),
    "or as the peak, if that was more": ("test", 2048, [(NO_MEMORY, usage(4000, 9))], [6000]),
    "or as was charged, if nobody saw a peak": ("test", 2048, [(NO_MEMORY, None)], [3072]),
    "in a limit of its own the peak says what was there": (
        "test",
        2048,
        [(NO_MEMORY, usage(1000, 9, "cgroup")), (NO_MEMORY, usage(2000, 9, "cgroup"))],
        [2048, 3000],
    ),
    "afterwards good runs lower it": (
        "test",
        2048,
        [(NO_MEMORY, usage(1000, 9)), (ended(), usage(1000, 9)), (ended(), usage(1000, 9))],
        [3072, 2813, 2586],
    ),
    "who draws no memory draws none for little": ("other", 0, [(ended(), usage(200, 9))] * 3, [0, 0, 0]),
    "but for much": ("other", 0, [(ended(), usage(256, 9))], [256]),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_rules_by_example(name: str) -> None:
    """Memory: at once upwards, slowly downwards, and never by a run that says only "at least"."""
    class_name, guess_mib, runs, asked = EXAMPLES[name]
    cost: LearnedCost | None = None
    found, charged_mib = [], guess_mib
    for outcome, took in runs:
        one = lesson(outcome, took, charged_mib)
        if one is not None:
            cost = after(cost, one, class_name, 1.0)
        charged_mib = guess_mib if cost is None else expected_memory_mib(cost, guess_mib)
        found.append(charged_mib)
    assert found == asked


def test_seconds_and_cores_move_by_a_quarter() -> None:
    """Both ways; what was ended says only "at least"; the first guess stands until there are two runs."""
    cost = LearnedCost()
    for outcome, wall_s, asked_s in (
        (ended(), 20.0, 60.0),
        (ended(), 40.0, 25.0),
        (CANCELED, 5.0, 25.0),
        (CANCELED, 65.0, 35.0),
        (ended(), 15.0, 30.0),
    ):
        one = lesson(outcome, usage(300, wall_s, busy=2.0), 300)
        assert one is not None
        cost = after(cost, one, "test", 1.0)
        assert expected_s(cost, 60.0) == asked_s
    assert (cost.runs, cost.busy) == (3, 2.0)


# -- what a ticket is asked with -------------------------------------------------------------------------------------

KNOWN = LearnedCost(memory_mib=1234, memory_source="sampled", memory_runs=7, wall_s=84.0, runs=7)


def test_what_is_asked_and_who_says_so() -> None:
    """The learned number, clamped to the budget; a number of the policy's own stands; units are never learned."""
    rules = preset("shared", 8, 24_576)  # a budget of 18,432 MiB
    test, serve = KINDS["test"], KINDS["serve"]
    plain, learned = ticket("a", test, rules, "s", ""), ticket("b", test, rules, "s", "", KNOWN)
    assert (plain.mem_mib, plain.expected_s) == (2048, 60.0)
    assert (learned.mem_mib, learned.expected_s) == (1234, 84.0)
    assert (learned.min_units, learned.want_units) == (plain.min_units, plain.want_units)
    told = expected(test, rules, KNOWN)
    assert told.memory_from == "learned from 7 runs; the class says 2,048"
    assert told.wall_from == "learned from 7 runs"
    much = expected(test, rules, KNOWN.replace(memory_mib=30_000))
    assert (much.memory_mib, much.memory_from.rpartition(": ")[2]) == (
        18_432,
        "30,000, and the whole budget is less",
    )
    assert expected(serve, rules, KNOWN).wall_s == 60.0, "a server ends when somebody ends it"
    assert expected(test, preset("governor", 8, 24_576), KNOWN).memory_mib == 0
    assert expected(test, preset("pacer", 8, 24_576), KNOWN).memory_mib == 2048
    assert expected(test.focused(), preset("pacer", 8, 24_576), KNOWN).memory_mib == 1234
    raised = KNOWN.replace(memory_mib=4000, memory_source="out-of-memory")
    assert expected(test, rules, raised).memory_from.startswith("raised after an end for lack of memory")


# -- keys ------------------------------------------------------------------------------------------------------------


def test_a_project_has_one_key(tmp_path: Path) -> None:
    """From any directory of it, through a link, in a worktree of it; another project, tool or lane has another."""
    repository, other, tree, near = (tmp_path / name for name in ("shop", "other", "tree", "near"))
    for folder in (
        repository / ".git" / "worktrees" / "tree",
        repository / "src",
        other / ".git",
        tree / "deep",
        near,
        repository / "part",
    ):
        folder.mkdir(parents=True)
    (tree / ".git").write_text(f"gitdir: {repository}/.git/worktrees/tree\n")
    (near / ".git").write_text("gitdir: ../shop/.git/worktrees/near\n")
    (repository / "part" / ".git").write_text("gitdir: ../.git/modules/part\n")
    (tmp_path / "link").symlink_to(repository / "src")

    def key(where: Path, *words: str) -> str:
        return key_of(recognise(words, str(where), terminal=False), words[0], str(where))

    mine = key(repository, "tsc")
    for where in (repository / "src", tmp_path / "link", tree, tree / "deep", near):
        assert key(where, "tsc") == mine
    assert key(repository, "tsc", "--noEmit", "--secret=hunter2") == mine, "arguments are not in it"
    assert mine.startswith("typecheck/tsc/")
    assert "shop" not in mine
    others = [key(other, "tsc"), key(repository, "pytest"), key(repository, "pytest", "tests/test_a.py::b")]
    others += [
        key(repository / "part", "tsc"),
        key(repository, "./train"),
        key(repository, "./serve-it"),
        key(tmp_path, "tsc"),
    ]
    assert len({mine, *others}) == 1 + len(others)
    assert "train" not in "".join(others)
