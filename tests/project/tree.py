"""The tracked files of the project, and their Python as syntax trees: what the tests beside this look at."""

from __future__ import annotations

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHIPPED = ("contain/", "receipts/")


@functools.cache
def tracked() -> tuple[str, ...]:
    """Every tracked file that exists, as a path from the root."""
    # Root in a clone of somebody else's: git would refuse to look, and this only lists.
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
    names = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split("\0")
    return tuple(name for name in names if name and (ROOT / name).is_file())


def python(*prefixes: str) -> list[str]:
    """The tracked Python files below these prefixes."""
    return [name for name in tracked() if name.endswith(".py") and name.startswith(prefixes)]


def text(name: str) -> str:
    """A tracked file's text."""
    return (ROOT / name).read_text(encoding="utf-8")


@functools.cache
def parsed(name: str) -> ast.Module:
    """A tracked Python file's syntax tree."""
    return ast.parse(text(name), filename=name)


def module_name(path: str) -> str:
    """`contain/linux/birth.py` is `contain.linux.birth`, a package's `__init__.py` the package."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
