"""JSON by CPython's own C code, without the package around it.

`import json` compiles regular expressions for its Python fall-back and imports `re` and `enum` for that: as much time
as the interpreter itself takes to start, before every job. What is here is what `json.loads` and `json.dumps` call
in the end. Where the C code is missing (another Python), it is `json` itself.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SPACE = " \t\n\r"
NO_OPTIONS = (False, False, False)  # sort_keys, skipkeys, allow_nan
ENDLESS = (float("inf"), float("-inf"))


class _Context:
    """What the scanner asks its decoder for: the attributes of `json.JSONDecoder`."""

    strict = True
    object_hook = None
    parse_int = int

    def __init__(self, object_pairs_hook: Callable[[list[tuple[str, Any]]], Any]) -> None:
        self.object_pairs_hook = object_pairs_hook
        self.parse_float = _finite
        self.parse_constant = _no_constant
        self.memo: dict[str, str] = {}


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in ENDLESS:  # 1e999
        raise ValueError(f"{text[:20]} is too large")
    return number


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Two programs that read such a document differently would both be right.
        raise ValueError("a key stands twice in one object")
    return found


def loads(text: str) -> Any:
    """Return the value of one JSON document: strictly JSON, and no key twice in an object.

    Raises `ValueError` for anything else, also for one that is nested too deep.
    """
    start = len(text) - len(text.lstrip(SPACE))
    try:
        try:
            value, end = _scan(text, start)
        except SystemError:
            # Up to 3.12 the C code takes its exception's class from sys.modules and, where json.decoder is not
            # loaded, fails without one. Only an error needs it: it is loaded now, and says what is wrong.
            import json.decoder  # noqa: F401

            value, end = _scan(text, start)
    except StopIteration as error:
        raise ValueError(f"no JSON value at character {error.value}") from None
    except RecursionError:
        raise ValueError("nested too deep") from None
    if text[end:].strip(SPACE):
        raise ValueError(f"more than one JSON value, from character {end}")
    return value


def dumps(value: object) -> str:
    """Return `value` as compact ASCII. Surrogates survive as escapes; NaN and infinities are a `ValueError`."""
    return "".join(_encode(value, 0))


def _no_default(value: object) -> object:
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _encode_slowly(value: object, _level: int) -> tuple[str, ...]:
    import json

    return (json.dumps(value, default=_no_default, separators=(",", ":"), allow_nan=False),)


# Any: typeshed describes these as the private classes that they are, not as the functions that they are used as.
_scan: Callable[[str, int], tuple[Any, int]]
_encode: Callable[[object, int], tuple[str, ...]]
try:
    import _json
except ImportError:
    import json

    decoder: Any = json.JSONDecoder(
        object_pairs_hook=_no_duplicates, parse_float=_finite, parse_constant=_no_constant
    )
    _scan, _encode = decoder.scan_once, _encode_slowly
else:
    fast: Any = _json
    _scan = fast.make_scanner(_Context(_no_duplicates))
    # As json.encoder calls it: markers, default, encoder, indent, both separators, sort_keys, skipkeys, allow_nan.
    # No markers: a value that holds itself is a RecursionError then, and no state outlives a failed call.
    _encode = fast.make_encoder(None, _no_default, fast.encode_basestring_ascii, None, ":", ",", *NO_OPTIONS)
