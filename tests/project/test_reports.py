"""docs/DARWIN-REPORTS.md: its table is whole, each row names a test, and every test that it names exists."""

from __future__ import annotations

from tests.project.test_scenarios import NAMED, missing, rows
from tests.project.tree import text

PAGE = "docs/DARWIN-REPORTS.md"
TITLE = "# Reports from macOS"
ROWS = 21


def incomplete(page: str) -> list[str]:
    """Numbers of rows that lack a report with its reference, an answer or a test."""
    return [
        row[0]
        for row in rows(page, TITLE)
        if len(row) != 4 or not all(row) or "(" not in row[1] or not NAMED.findall(row[3])
    ]


def test_every_report_has_an_answer_and_a_test() -> None:
    """21 reports, in order: what was reported and where, what happens here, and the test that proves it."""
    assert [int(number) for number, *_ in rows(text(PAGE), TITLE)] == list(range(1, ROWS + 1))
    assert incomplete(text(PAGE)) == []


def test_every_test_that_is_named_exists() -> None:
    """A renamed test would leave a promise that nothing guards."""
    assert missing(text(PAGE)) == []


def test_a_row_without_a_test_is_noticed() -> None:
    """The control: of a row without a test, of one without an answer, and of one that is gone."""
    whole = "| 1 | a report (a/b#1) | an answer | `tests/project/test_reports.py::test_no_such` |"
    page = f"{TITLE}\n{whole}\n| 2 | a report (a/b#2) | an answer | by hand |\n| 3 | a report (a/b#3) | | `{PAGE}` |"
    assert incomplete(page) == ["2", "3"]
    assert missing(page) == ["tests/project/test_reports.py::test_no_such"]
    assert len(rows(page.replace("| 2 |", "|"), TITLE)) == 2
