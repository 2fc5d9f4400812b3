"""Facts to JSON and back. Fails closed: what is not certainly a whole receipt is `Unreadable`.

The annotation of a field is its schema: `int`, `str | None`, `tuple[Blocker, ...]`. A strict reader of one
page is made from it, once per class, so that a field is declared in one place only.
"""

from __future__ import annotations

from receipts import facts, jsontext
from receipts.facts import STATES, VERSION, Fact, Receipt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from receipts.facts import Proof

    F = TypeVar("F", bound=Fact)
    Reader = Callable[[object, str], object]
    Column = tuple[str, str, Reader, bool]


class Unreadable(Exception):
    """A receipt that exists and cannot be understood. It counts as held, never as absent."""

    def __init__(self, reason: str, name: str | None = None) -> None:
        """Say why, and of which file where that is known."""
        super().__init__(reason, name)
        self.reason = reason
        self.name = name

    def __str__(self) -> str:
        """Return one line for people."""
        return f"{self.name}: {self.reason}" if self.name else self.reason


def encode(record: Fact) -> dict[str, object]:
    """Return the JSON object of a record. None is left out, but for `empty`, where null means unknown."""
    document: dict[str, object] = {}
    for name, key, _, _ in _columns(type(record)):
        value = getattr(record, name)
        if value is not None or name == "empty":
            document[key] = _plain(value)
    for key, value in record.other.items():
        document.setdefault(key, value)
    return document


def decode(cls: type[F], value: object, where: str = "") -> F:
    """Return the record of a JSON object, or raise `Unreadable`. Unknown keys are kept in `other`."""
    if not isinstance(value, dict):
        raise Unreadable(f"{where or 'the document'}: an object is due")
    rest = dict(value)
    found: dict[str, object] = {}
    for name, key, read, optional in _columns(cls):
        item = rest.pop(key, None)
        path = f"{where}.{key}" if where else key
        if item is not None:
            found[name] = read(item, path)
        elif optional:
            found[name] = None
        elif name not in cls._defaults or key in value:
            raise Unreadable(f"{path}: missing")
    return cls(**found, other=rest)


def decode_proof(value: object, where: str = "proof") -> Proof:
    """Return the proof in a JSON object, whichever platform wrote it, or raise `Unreadable`."""
    if isinstance(value, dict) and "uniqueId" in value:
        return decode(facts.Anchor, value, where)
    return decode(facts.NamespaceInit, value, where)


def dumps(receipt: Receipt) -> bytes:
    """Return one JSON document and a newline, in ASCII: file names that are not UTF-8 survive as surrogates.

    A value that JSON cannot hold is a `ValueError` or a `TypeError`.
    """
    return f"{jsontext.dumps(encode(receipt))}\n".encode("ascii")


def loads(data: bytes) -> Receipt:
    """Return the receipt in `data`, or raise `Unreadable` with the reason."""
    if not data:
        raise Unreadable("empty")
    if b"\0" in data:
        # Never legal in JSON; a hole where a block was allocated and its data had not reached the disk.
        raise Unreadable("zeroed" if not data.strip(b"\0") else "partly zeroed")
    try:
        document = jsontext.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise Unreadable("not UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not one whole JSON document: {error}") from None
    if not isinstance(document, dict):
        raise Unreadable("the document: an object is due")
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise Unreadable("version: a whole number from 1 is due")
    if version > VERSION:
        # The meaning of a known key may have changed: to read it as ours would be a guess.
        raise Unreadable(f"written by a newer version (format {version}, this one reads up to {VERSION})")
    receipt = decode(Receipt, document)
    if receipt.state not in STATES:
        raise Unreadable("state: unknown")
    return receipt


def _plain(value: object) -> object:
    if isinstance(value, Fact):
        return encode(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _columns(cls: type[Fact]) -> tuple[Column, ...]:
    """Return (field, JSON name, reader, may be absent) of each field of a class."""
    known = _COLUMNS.get(cls)
    if known is None:
        known = tuple(
            (name, _camel(name), _reader(kind.removesuffix(" | None")), kind.endswith(" | None"))
            for name, kind in cls._types.items()
            if name != "other"
        )
        _COLUMNS[cls] = known
    return known


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _reader(kind: str) -> Reader:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if kind == "Proof":
        return decode_proof
    if kind.startswith("tuple["):
        return _sequence(_reader(kind[len("tuple[") : -len(", ...]")]))
    cls: type[Fact] = getattr(facts, kind)
    return lambda value, where: decode(cls, value, where)


def _sequence(read: Reader) -> Reader:
    def sequence(value: object, where: str) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise Unreadable(f"{where}: a list is due")
        return tuple(read(item, f"{where}[{index}]") for index, item in enumerate(value))

    return sequence


def _exactly(kind: type, due: str) -> Reader:
    def exactly(value: object, where: str) -> object:
        if type(value) is not kind:  # not isinstance: True is an int to Python, and not to a receipt
            raise Unreadable(f"{where}: {due} is due")
        return value

    return exactly


def _float(value: object, where: str) -> float:
    if type(value) is float or type(value) is int:
        try:
            return float(value)
        except OverflowError:
            pass
    raise Unreadable(f"{where}: a number is due")


_SCALARS: dict[str, Reader] = {
    "int": _exactly(int, "a whole number"),
    "str": _exactly(str, "text"),
    "bool": _exactly(bool, "true or false"),
    "float": _float,
}
_COLUMNS: dict[type[Fact], tuple[Column, ...]] = {}
# At import, when a wrapper still waits for its request, and not in the middle of the first launch.
_columns(Receipt)
_columns(facts.NamespaceInit)
