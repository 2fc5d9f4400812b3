"""Sizes, names and docstrings: what a reader of the source may count on."""

from __future__ import annotations

import ast
import re
from pathlib import PurePath
from typing import TYPE_CHECKING

import pytest

from tests.project.tree import SHIPPED, parsed, python, text, tracked

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.xdist_group("source")  # one worker parses every file, and not each of them

MOST_LINES = 400
MOST_TEST_LINES = 500
MOST_FUNCTION_LINES = 60
MOST_ADR_LINES = 40
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "manager", "managers"}
ADR_PARTS = ("## Context", "## Decision", "## Consequence", "## What we gave up")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: str) -> Iterator[Function]:
    """Every function of a file, methods and inner ones too."""
    return (node for node in ast.walk(parsed(path)) if isinstance(node, Function))


def public(body: list[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    """What others may use, and in classes theirs. Methods with a name of Python's are described by Python."""
    for node in body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body)


def test_files_fit_a_head() -> None:
    """No Python file has more than 400 lines; a file of tests, which is a list and not a thought, 500."""
    sizes = {path: len(text(path).splitlines()) for path in python("")}
    most = {path: MOST_TEST_LINES if path.startswith("tests/") else MOST_LINES for path in sizes}
    assert {path: lines for path, lines in sizes.items() if lines > most[path]} == {}


def test_functions_fit_a_screen() -> None:
    """None has more than 60 lines, docstring and comments included."""
    long = {
        f"{path}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for path in python("")
        for node in functions(path)
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 > MOST_FUNCTION_LINES
    }
    assert long == {}


def test_a_file_is_named_after_what_it_holds() -> None:
    """`utils` and its like name nothing, and so hold anything."""
    assert [name for name in tracked() if PurePath(name).stem.lower() in EMPTY_NAMES] == []


def test_every_module_says_what_it_is() -> None:
    """Modules of the product, of ci/ and of the tests open with a docstring."""
    assert [path for path in python("") if not ast.get_docstring(parsed(path))] == []


def test_everything_public_has_a_docstring() -> None:
    """Classes, functions and methods of the product."""
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path in python(*SHIPPED)
        for node in public(parsed(path).body)
        if not ast.get_docstring(node)
    ]
    assert silent == []


def test_a_test_says_its_rule() -> None:
    """Every test function has a docstring: a red test is then a sentence that is not true."""
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path in python("tests/")
        for node in functions(path)
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []


def test_decisions_are_short_and_whole() -> None:
    """An ADR has at most 40 lines and its four parts; numbers have no gap."""
    decisions = sorted(name for name in tracked() if name.startswith("docs/adr/"))
    for number, name in enumerate(decisions, start=1):
        assert re.fullmatch(rf"docs/adr/{number:04d}-[a-z0-9-]+\.md", name), name
        assert len(text(name).splitlines()) <= MOST_ADR_LINES, name
        assert [part for part in ADR_PARTS if part not in text(name)] == [], name
