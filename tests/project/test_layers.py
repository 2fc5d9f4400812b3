"""What import-linter cannot say: who tests the platform, who imports a native part, what a backend takes."""

from __future__ import annotations

import ast

import pytest

from tests.project.tree import SHIPPED, module_name, parsed, python

pytestmark = pytest.mark.xdist_group("source")  # one worker parses every file, and not each of them

ONE_IMPORTER = {
    "contain.linux._native": "contain.linux.native",
    "prctl": "contain.linux.process",
}
"""Each has at most one importer: what can break at import, breaks in one place."""

FACTS = ("receipts.facts", "receipts.record", "receipts.codec", "receipts.jsontext")
"""What a receipt says and how it is spelled. The rest of `receipts` changes files."""

PURE = (
    "__future__",
    "collections.abc",
    "contain.budget.arbiter",
    "contain.budget.policy",
    "contain.machine",  # the records of a sample
    "heapq",
    "receipts.record",
)
"""All that the arbiter may import: it knows no machine, no clock and no dice."""

BELOW_LIFECYCLE = (
    "contain/linux/",
    "contain/darwin/",
    "contain/backend.py",
    "contain/adapter.py",
    "contain/protocol.py",
    "contain/job.py",
)


def imports(path: str) -> list[tuple[str, str]]:
    """(module, name) of everything that a file imports, at the top or where it is used; name "" for a whole module."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative imports hide the layer"
            found += [(node.module or "", alias.name) for alias in node.names]
    return found


@pytest.mark.parametrize("native", ONE_IMPORTER)
def test_a_native_part_has_one_importer(native: str) -> None:
    """Nobody else knows that it exists, however the import is spelled."""
    importers = {
        module_name(path)
        for path in python(*SHIPPED)
        for module, name in imports(path)
        if native in (module, f"{module}.{name}")
    }
    assert importers <= {ONE_IMPORTER[native]}


def test_the_platform_is_tested_in_one_module() -> None:
    """`sys.platform` decides in contain.platform; a backend's file may assert it, so that mypy skips it."""
    for path in python(*SHIPPED):
        if path == "contain/platform.py":
            continue
        tree = parsed(path)
        allowed = [
            node for node in tree.body if isinstance(node, ast.Assert) and path.startswith("contain/linux/")
        ]
        asserted = {inner for node in allowed for inner in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.platform":
                assert node in asserted, f"{path}:{node.lineno}"


def test_a_backend_takes_only_facts_from_receipts() -> None:
    """It reports and never writes: nothing below the lifecycle holds a store, a lock or a place."""
    homes = {
        name: module for module, name in imports("receipts/__init__.py") if module.startswith("receipts.")
    }
    for path in python(*BELOW_LIFECYCLE):
        for module, name in imports(path):
            if module.split(".")[0] != "receipts":
                continue
            home = homes.get(name, f"receipts.{name}") if module == "receipts" else module
            assert home in FACTS, f"{path} imports {name or module} from {home}"


def test_the_arbiter_is_pure() -> None:
    """A list of what it imports, not of what it must not: time, os and random have many names."""
    for path in python("contain/budget/arbiter/"):
        for module, _ in imports(path):
            assert module in PURE or module.startswith("contain.budget.arbiter."), f"{path} imports {module}"
