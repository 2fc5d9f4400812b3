"""The frozen record: what it promises, and what importing it must not cost."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from typing import ClassVar

import pytest

from receipts import NamespaceInit, Outcome, Record, fields
from tests.receipts.lives import PROOF
from tests.receipts.tracing import PROJECT


class Point(Record):
    """A record with every feature."""

    _secret: ClassVar[tuple[str, ...]] = ("token",)

    x: int
    y: int = 2
    token: str = "t"  # noqa: S105

    def __post_init__(self) -> None:
        """Refuse negative ones."""
        if self.x < 0:
            raise ValueError("negative")


class Deeper(Point):
    """A record of a record, one default changed."""

    y: int = 5
    z: int


def test_fields_and_defaults() -> None:
    """Fields come in order of declaration, those of the base first; defaults may be overridden."""
    assert fields(Deeper) == ("x", "y", "token", "z")
    assert fields(Point(x=1)) == ("x", "y", "token")
    deep = Deeper(x=1, z=3)
    assert (deep.x, deep.y, deep.z) == (1, 5, 3)


@pytest.mark.parametrize(
    ("values", "said"),
    [({}, "missing x"), ({"x": 1, "w": 2}, "unknown w"), ({"w": 1}, "missing x; unknown w")],
)
def test_wrong_fields(values: dict[str, object], said: str) -> None:
    """A missing or unknown field is a TypeError that names it; so is a position."""
    with pytest.raises(TypeError, match=f"Point: {said}"):
        Point(**values)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[call-arg]


def test_frozen() -> None:
    """Nothing can be set or deleted."""
    point = Point(x=1)
    with pytest.raises(AttributeError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x
    assert point.x == 1


def test_equality_is_by_class_and_value() -> None:
    """Equal values are equal and hash alike; another class, or anything else, is different."""
    assert Point(x=1) == Point(x=1, y=2)
    assert hash(Point(x=1)) == hash(Point(x=1, y=2))
    assert Point(x=1) != Point(x=2)
    assert Deeper(x=1, z=1) != Point(x=1, y=5)
    assert Point(x=1) != 1


def test_facts_with_unknown_keys_hash() -> None:
    """What a newer writer added takes part in equality and leaves a fact hashable."""
    odd = PROOF.replace(other={"new": [1]})
    assert odd != PROOF
    assert len({odd, PROOF}) == 2


def test_replace_copy_pickle() -> None:
    """A replaced copy is validated anew; copies and pickles are equal."""
    assert Point(x=1).replace(y=9) == Point(x=1, y=9)
    with pytest.raises(ValueError, match="negative"):
        Point(x=1).replace(x=-1)
    with pytest.raises(TypeError):
        Point(x=1).replace(w=1)
    assert copy.copy(PROOF) == copy.deepcopy(PROOF) == pickle.loads(pickle.dumps(PROOF)) == PROOF  # noqa: S301


def test_secrets_are_not_shown() -> None:
    """A secret field has no value in repr."""
    assert repr(Point(x=1, token="s3cr3t")) == "Point(x=1, y=2, token=...)"  # noqa: S106


def test_a_cause_is_text() -> None:
    """An unknown cause is accepted, one that is not text is not."""
    assert Outcome(cause="vaporised").cause == "vaporised"
    with pytest.raises(TypeError, match="cause is text"):
        Outcome(cause=3)  # type: ignore[arg-type]


def test_a_default_of_another_fact_is_not_shared() -> None:
    """The default of `other` is not filled by accident: the tests above have put nothing into it."""
    assert NamespaceInit._defaults["other"] == {}


def test_imports_are_a_budget() -> None:
    """`import receipts` brings in a short list and nothing else: the start of every job pays for it."""
    script = "import os, sys; before = set(sys.modules); import receipts; print(*(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-S", "-B", "-c", script],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
    )
    brought = {name for name in done.stdout.split() if not name.startswith("receipts")}
    assert brought <= {"fcntl", "errno", "pwd", "__future__", "stat", "_json"}
