"""docs/SAFETY.md and tests/promises/ are two forms of one list."""

from __future__ import annotations

import ast
import re

from tests.project.tree import parsed, text, tracked

SECTION = re.compile(r"^## (\d+)\. (.+)$", re.MULTILINE)
FILE = re.compile(r"`(tests/promises/test_\d\d_\w+\.py)`")
PROMISES = 14


def sections() -> list[tuple[int, str, str]]:
    """(number, title, text) of every promise on the page."""
    page = text("docs/SAFETY.md")
    found = list(SECTION.finditer(page))
    ends = [match.start() for match in found[1:]] + [len(page)]
    return [(int(m[1]), m[2], page[m.end() : end]) for m, end in zip(found, ends, strict=True)]


def named_file(body: str) -> str:
    """The one test file that a promise names."""
    found = FILE.findall(body)
    assert len(found) == 1, found
    return str(found[0])


def test_the_promises_are_numbered_without_a_gap() -> None:
    """There are fourteen, in order."""
    assert [number for number, _, _ in sections()] == list(range(1, PROMISES + 1))


def test_a_file_is_named_after_its_promise() -> None:
    """Number and name follow from the title, so that either leads to the other."""
    for number, title, body in sections():
        words = re.sub(r"[^a-z ]", "", title.lower().replace("'", "")).replace(" ", "_")
        assert named_file(body).startswith(f"tests/promises/test_{number:02d}_{words[:4]}"), title


def test_every_promise_is_either_held_or_marked_as_not_yet() -> None:
    """A held promise has its file; one that is marked has none, or the mark is out of date."""
    for _, title, body in sections():
        held = "\nHeld by `tests/promises/" in body
        assert held != ("\nNot yet" in body), title
        assert (named_file(body) in tracked()) == held, f"{title}: {named_file(body)}"


def test_a_promise_file_opens_with_its_promise() -> None:
    """The docstring of the file says the title's sentence, so that the test output reads as the page does."""
    for _, title, body in sections():
        if "\nHeld by" in body:
            docstring = ast.get_docstring(parsed(named_file(body))) or ""
            assert title in docstring, f"{named_file(body)} does not say {title!r}"


def test_no_promise_file_is_without_its_promise() -> None:
    """A further file of a promise bears its number; one of a promise that is not held would be a secret."""
    held = {number for number, _, body in sections() if "\nHeld by" in body}
    numbers = {int(name[20:22]) for name in tracked() if name.startswith("tests/promises/test_")}
    assert numbers == held


def test_every_promise_says_what_is_not_claimed() -> None:
    """A promise without a border is an advertisement."""
    for _, title, body in sections():
        if "\nHeld by" in body:
            assert "- Claimed:" in body, title
            assert "- Not claimed:" in body, title
