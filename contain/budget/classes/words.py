"""A command's words, read as options and names."""

from __future__ import annotations

from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_DIGITS = 5
AS_MANY_AS = ("auto", "logical", "default", "max")
"""What stands for a number of workers and leaves it to the tool."""

GLOB = frozenset("*?[]{}!")


def listed(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


class Words(Record):
    """``options``: (name, value or None), in their order. ``names``: the other words, and all that follow ``--``."""

    options: tuple[tuple[str, str | None], ...]
    names: tuple[str, ...]

    def has(self, *wanted: str) -> bool:
        """One of these options is given, and is not switched off (``--watch=false``)."""
        return any(name in wanted and value not in ("false", "0") for name, value in self.options)

    def number(self, wanted: Sequence[str]) -> int | None:
        """The last positive number given to one of these options; None for ``auto``, ``50%`` and the like."""
        found: int | None = None
        for name, value in self.options:
            if name in wanted:
                found = number(value)
        return found


def number(text: str | None) -> int | None:
    """A number of workers, at least 1 (``-n 0`` of pytest-xdist is the one process itself); None if it is none."""
    if text is not None and text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS:
        return max(1, int(text))
    return None


def base_name(word: str) -> str:
    """``./node_modules/.bin/vitest`` and ``vitest@latest`` are ``vitest``; ``@scope/tool`` keeps its scope."""
    name = word if word.startswith("@") else word.rsplit("/", 1)[-1]
    at = name.find("@", 1)
    name = name[:at] if at > 0 else name
    for suffix in (".exe", ".cmd", ".mjs", ".cjs", ".js"):
        name = name.removesuffix(suffix)
    return name


def _says_how_many(word: str) -> bool:
    return word in AS_MANY_AS or word.rstrip("%C").isdigit()


def read(words: Sequence[str], valued: frozenset[str], jobs: Sequence[str] = ()) -> Words:
    """Reads the words after the command's own name.

    ``valued``: options whose value is the next word. ``jobs``: options that may take a number, attached or not.
    """
    options: list[tuple[str, str | None]] = []
    names: list[str] = []
    rest = iter(range(len(words)))
    for at in rest:
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else ""
        if word == "--":
            names += words[at + 1 :]
            break
        if not word.startswith("-") or word == "-":
            names.append(word)
            continue
        name, equals, value = word.partition("=")
        joined = None if equals else _joined(word, jobs)
        if equals:
            options.append((name, value))
        elif joined is not None:
            options.append(joined)
        elif (name in jobs and _says_how_many(following)) or (name in valued and at + 1 < len(words)):
            options.append((name, following))
            next(rest, None)
        else:
            options.append((name, None))
    return Words(options=tuple(options), names=tuple(names))


def _joined(word: str, jobs: Sequence[str]) -> tuple[str, str | None] | None:
    """``-j8`` and ``-kj8`` as ("-j", "8"); None for what is no short option with a number."""
    head = word.rstrip("0123456789C%")
    tail = word[len(head) :]
    if not tail or head.startswith("--"):
        return None
    for option in jobs:
        letter = option[1:]
        if option == head or (len(letter) == 1 and head[1:].isalpha() and head.endswith(letter)):
            return option, tail
    return None


def plain_files(names: Sequence[str], most: int) -> bool:
    """1 to ``most`` names, each of one file as far as its spelling goes: an extension, and no pattern."""
    return 0 < len(names) <= most and all(
        "." in name.rsplit("/", 1)[-1].lstrip(".") and not GLOB & set(name) and not name.endswith(("/", "."))
        for name in names
    )
