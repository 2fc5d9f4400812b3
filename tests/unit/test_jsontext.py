"""``receipts.jsontext`` is ``json``, but strict and without its price: the same values, the same text.

Every rule holds for the C path and for the fall-back without ``_json``, which is made in a child that cannot import it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from receipts import jsontext
from tests.session import ROOT, WAIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TEXT = st.text(st.characters(), max_size=20) | st.text(
    st.characters(categories=["Cs", "Cc", "So"]), max_size=5
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=15,
)

REFUSED = [
    "",
    " ",
    "{",
    "[1,]",
    '{"a":1,}',
    "{'a':1}",
    '{"a":1 "b":2}',
    "{1:2}",
    "nul",
    "True",
    "NaN",
    "Infinity",
    "-Infinity",
    "[1e999]",
    "-1e999",
    "01",
    "+1",
    "1.",
    ".5",
    "0x10",
    "\u0661",
    '"\n"',
    '"\t"',
    '"\x00"',
    '"\\x41"',
    '"\\u12"',
    '"a',
    "1 2",
    "{} {}",
    "[] x",
    "\ufeff{}",
    "\u00a0{}",
    "{}\x0b",
    '{"a":1,"a":1}',
    '{"a":1,"\\u0061":2}',
    '[{"b":{"c":1,"c":1}}]',
    "[" * 200_000,
    '{"a":' * 200_000,
    "9" * 5000,
    "// note\n1",
]
UNSPEAKABLE: list[Callable[[], object]] = [
    lambda: float("nan"),
    lambda: [float("inf")],
    lambda: {"a": -float("inf")},
    lambda: {1, 2},
    lambda: b"bytes",
    lambda: {(1, 2): 3},
    object,
]


@settings(max_examples=300, deadline=None)
@given(VALUES, st.sampled_from([{}, {"indent": 1}, {"ensure_ascii": False}]))
@example(-0.0, {})
@example(2**300, {})
@example("\ud83d\ude00\ud83d", {"ensure_ascii": False})
def test_it_reads_what_json_reads(value: object, spelling: dict[str, Any]) -> None:
    """Any spelling of a value that json writes: compact or indented, escaped or raw, with white space around."""
    text = json.dumps(value, **spelling)
    expected = json.loads(text)
    found = jsontext.loads(f"\r\n\t {text} \n")
    assert found == expected
    assert repr(found) == repr(expected)  # 1 is not 1.0, 0.0 is not -0.0


@settings(max_examples=300, deadline=None)
@given(VALUES)
def test_it_writes_what_json_writes(value: object) -> None:
    """To the character: compact, and ASCII."""
    text = jsontext.dumps(value)
    assert text == json.dumps(value, separators=(",", ":"))
    assert text.isascii()
    assert jsontext.loads(text) == json.loads(text)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from('{}[]",:\\u0019.eE+-truefalsn \n\t\ud800'), max_size=25))
def test_what_it_reads_json_reads_too(text: str) -> None:
    """Strict means less than json, never other than json."""
    try:
        found = jsontext.loads(text)
    except ValueError:
        return
    assert found == json.loads(text)


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:20]))
def test_what_is_not_strictly_json_is_a_value_error(text: str) -> None:
    """One exception for all of it, so that no caller needs to know how it failed."""
    with pytest.raises(ValueError, match=r"\w"):
        jsontext.loads(text)


@pytest.mark.parametrize("make", UNSPEAKABLE)
def test_what_json_cannot_hold_is_an_error(make: Callable[[], object]) -> None:
    """And never a text that is no JSON."""
    with pytest.raises((ValueError, TypeError)):
        jsontext.dumps(make())


def test_a_value_that_holds_itself_ends() -> None:
    """By the recursion limit; and the next call is none the worse."""
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises((RecursionError, ValueError)):
        jsontext.dumps(endless)
    assert jsontext.dumps([1]) == "[1]"


def test_a_failed_read_leaves_no_trace() -> None:
    """The scanner is made once: keys that it remembered for a document that failed do not reach the next."""
    for _ in range(3):
        with pytest.raises(ValueError, match="twice"):
            jsontext.loads('{"a":{"b":1,"b":2}}')
        assert jsontext.loads('{"a":{"b":1}}') == {"a": {"b": 1}}


# -- without _json ---------------------------------------------------------------------------------------------------

CHILD = """
import sys
sys.modules["_json"] = None
from receipts import jsontext
for line in sys.stdin:
    order, argument = eval(line)
    try:
        print(ascii(("ok", getattr(jsontext, order)(argument))))
    except (ValueError, TypeError, RecursionError) as error:
        print(ascii(("error", type(error).__name__)))
assert sys.modules["_json"] is None and "json" in sys.modules
"""


@pytest.fixture(scope="module")
def slow() -> Iterator[Callable[[str, object], tuple[str, Any]]]:
    """``jsontext`` in a child that has no ``_json``: (order, argument) to ("ok", value) or ("error", its class)."""
    child = subprocess.Popen(
        [sys.executable, "-u", "-c", CHILD],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def ask(order: str, argument: object) -> tuple[str, Any]:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(ascii((order, argument)) + "\n")
        child.stdin.flush()
        found: tuple[str, Any] = eval(child.stdout.readline())  # noqa: S307 - what ascii() wrote
        return found

    yield ask
    child.stdin.close()
    assert child.wait(WAIT_S) == 0  # its last line: it really had no _json
    child.stdout.close()


def test_the_fall_back_reads_and_writes_the_same(slow: Callable[[str, object], tuple[str, Any]]) -> None:
    """Value for value and character for character."""

    @settings(max_examples=150, deadline=None)
    @given(VALUES)
    def same(value: object) -> None:
        text = jsontext.dumps(value)
        assert slow("dumps", value) == ("ok", text)
        assert repr(slow("loads", f" {text}\n")) == repr(("ok", jsontext.loads(text)))

    same()


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:20]))
def test_the_fall_back_refuses_the_same(text: str, slow: Callable[[str, object], tuple[str, Any]]) -> None:
    """With the same exception."""
    assert slow("loads", text)[0] == "error"
    assert slow("loads", text)[1] in ("ValueError", "JSONDecodeError")
