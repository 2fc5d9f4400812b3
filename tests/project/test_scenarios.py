"""docs/SCENARIOS.md: its tables are whole, and every test that they name exists."""

from __future__ import annotations

import ast
import re

from tests.project.tree import parsed, text, tracked

PAGE = "docs/SCENARIOS.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FIRST = "## The peer's scenarios"
SECOND = "## What users report"
ROWS = {FIRST: 52, SECOND: 69}
ANSWERS = ("`tests/", "differs:", "tried by hand:", "not tried:")


def rows(page: str, title: str) -> list[list[str]]:
    """The cells of every numbered row of one section's table."""
    section = page[page.index(title) + len(title) :].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| \d+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def missing(page: str) -> list[str]:
    """Tests that a page names and that there are not: looked for as syntax, without importing anything."""
    functions = {
        f"{path}::{node.name}"
        for path in tracked()
        if path.startswith("tests/") and path.endswith(".py")
        for node in parsed(path).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }
    return [f"{path}::{name}" for path, name in NAMED.findall(page) if f"{path}::{name}" not in functions]


def test_every_row_is_there_and_has_an_answer() -> None:
    """52 scenarios and 69 reports, in order; each has its test, or says why not."""
    for title, count in ROWS.items():
        found = rows(text(PAGE), title)
        assert [int(number) for number, *_ in found] == list(range(1, count + 1)), title
        for number, situation, answer in found:
            assert situation, f"{title}, {number}"
            assert any(word in answer for word in ANSWERS), f"{title}, {number}: {answer}"


def test_every_test_that_is_named_exists() -> None:
    """A table that names a test which was renamed would say that nothing guards the row."""
    assert NAMED.findall(text(PAGE))
    assert missing(text(PAGE)) == []


def test_a_name_without_a_test_is_noticed() -> None:
    """The control: of a test that there is not, of a function that is none, and of a row that is gone."""
    here = "tests/project/test_scenarios.py"
    page = f"`{here}::test_no_such` `{here}::rows` `{here}::test_a_name_without_a_test_is_noticed`"
    assert missing(page) == [f"{here}::test_no_such", f"{here}::rows"]
    whole = text(PAGE)
    less = "\n".join(line for line in whole.splitlines() if not line.startswith("| 7 |"))
    assert len(rows(less, FIRST)) == ROWS[FIRST] - 1
