"""A frozen record, as light as a class can be.

`dataclasses` brings `inspect`, `ast` and `re` along: 10 ms of every start. What is used of it here fits on
one page, and type checkers see the same thing through `dataclass_transform`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import ClassVar, NoReturn, Self, dataclass_transform
else:

    def dataclass_transform(**_: object):  # noqa: ANN201, D103 - the type checker's is the documented one
        return lambda cls: cls


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Record:
    """Base of immutable values: keyword-only fields, defaults from class attributes, equality by value.

    A missing or unknown field is a `TypeError`, an assignment an `AttributeError`. A subclass may define
    `__post_init__` to validate, and names in `_secret` the fields that `repr` must not show.
    """

    _types: ClassVar[dict[str, str]] = {}
    _names: ClassVar[frozenset[str]] = frozenset()
    _defaults: ClassVar[dict[str, object]] = {}
    _secret: ClassVar[tuple[str, ...]] = ()
    _unhashed: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        # Under postponed evaluation every annotation is its source text: the codec reads its schema from the
        # same text.
        own = {n: t for n, t in cls.__annotations__.items() if not str(t).startswith("ClassVar")}
        cls._types = {**cls._types, **own}
        cls._names = frozenset(cls._types)
        cls._defaults = {
            **cls._defaults,
            **{name: cls.__dict__[name] for name in own if name in cls.__dict__},
        }

    def __init__(self, **values: object) -> None:
        mine = self.__dict__
        mine.update(self._defaults)
        mine.update(values)
        if mine.keys() != self._names:
            raise self._wrong_fields(mine)
        self.__post_init__()

    def _wrong_fields(self, given: Mapping[str, object]) -> TypeError:
        wrong = {"missing": self._names - given.keys(), "unknown": given.keys() - self._names}
        said = "; ".join(f"{word} {', '.join(sorted(names))}" for word, names in wrong.items() if names)
        return TypeError(f"{type(self).__name__}: {said}")

    def __post_init__(self) -> None:
        """Validate: called when all fields are set."""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name}")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is frozen: {name}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(
            (type(self), *(self.__dict__[name] for name in self._types if name not in self._unhashed))
        )

    def __repr__(self) -> str:
        shown = (f"{n}={'...' if n in self._secret else repr(self.__dict__[n])}" for n in self._types)
        return f"{type(self).__name__}({', '.join(shown)})"

    def replace(self, **changes: object) -> Self:
        """Return a copy with these fields changed; an unknown field is a `TypeError`."""
        copy = object.__new__(type(self))
        mine = copy.__dict__
        mine.update(self.__dict__)
        mine.update(changes)
        if len(mine) != len(self._names):  # none can be missing, so one of the changes is unknown
            raise self._wrong_fields(mine)
        copy.__post_init__()
        return copy


def fields(record: Record | type[Record]) -> tuple[str, ...]:
    """Return the names of the fields, in the order of their declaration."""
    return tuple(record._types)  # noqa: SLF001 - of this module
