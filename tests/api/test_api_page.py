"""docs/API.md is true: its options are the code's, and every name that it tells of is there."""

from __future__ import annotations

import ast
import re

import pytest

import contain
from contain import errors
from contain.api.asking import Options
from tests.session import ROOT

PAGE = (ROOT / "docs" / "API.md").read_text(encoding="utf-8")


def rows(first: str) -> list[list[str]]:
    """The cells of the table whose first heading is ``first``."""
    found = []
    for line in PAGE[PAGE.index(f"| {first} |") :].splitlines()[2:]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def words(text: str) -> list[str]:
    """What stands between backquotes."""
    return re.findall(r"`([^`]+)`", text)


def test_the_table_of_options_is_the_codes() -> None:
    """Each option once."""
    told = [name for row in rows("option") for name in words(row[0])]
    assert sorted(told) == sorted(Options.__annotations__)


@pytest.mark.parametrize("name", sorted({*re.findall(r"contain\.(\w+)", PAGE)} - {"errors"}))
def test_every_name_is_there(name: str) -> None:
    """In ``contain``, for everybody to import."""
    assert name in contain.__all__


@pytest.mark.parametrize("name", re.findall(r"`(Contain\w+|Command\w+|TooManyJobs|ReceiptUnwritable)`", PAGE))
def test_every_error_is_there(name: str) -> None:
    """By the name that is told."""
    assert isinstance(getattr(errors, name), type)


@pytest.mark.parametrize("kind", ["Finished", "Handle"])
def test_every_attribute_is_there(kind: str) -> None:
    """What the page says that an object has."""
    paragraph = next(text for text in PAGE.split("\n\n") if text.startswith(f"**`{kind}`**"))
    code = (ROOT / "contain" / "api").glob("*.py")
    known = {
        node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else node.attr
        for path in code
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Attribute)
    } | {"stdout", "stderr"}
    names = {word.partition("(")[0] for word in words(paragraph)} - {
        "subprocess", "cause", "with", "await", "PIPE", "TimeoutError", "Handle", "Finished", "AsyncHandle", "None",
        "job.wait",
    }  # fmt: skip
    assert names <= known
