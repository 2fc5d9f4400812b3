"""What runs other things: shells, package scripts, files that begin with ``#!``. And the eyes to look into them."""

from __future__ import annotations

import os

from contain.budget.classes.words import listed
from receipts import Record
from receipts.jsontext import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SHELLS = listed("sh bash zsh dash ash ksh mksh fish tcsh csh nu pwsh busybox")
MOST_BYTES = 262_144
"""Of a package.json; a longer one is not read."""

SHELL_MEANING = frozenset("|&;<>()$`\\\"'*?[]{}~#!\n")
"""Text with one of these needs a shell to be understood, and is not taken apart here."""

SERVERS = listed("dev start serve watch preview storybook start:dev dev:server")
"""Package scripts that run until they are ended, by the convention of every starter kit."""

TYPECHECKS = frozenset(("typecheck", "type-check"))


class Sight:
    """What `classify` may look at. This one sees nothing: classes are then judged by words alone."""

    cwd = ""
    terminal = False
    """The command's stdin is a terminal: a bare shell waits for a person, a bare `vitest` watches."""

    def begins_as_script(self, path: str) -> bool:  # noqa: ARG002 - the blind one
        """The file begins with ``#!``."""
        return False

    def is_directory(self, path: str) -> bool:  # noqa: ARG002
        """The path leads to a directory."""
        return False

    def scripts(self, directory: str) -> Mapping[str, str]:  # noqa: ARG002
        """The ``scripts`` of the package.json in a directory below ``cwd``; {} where there is none."""
        return {}


BLIND = Sight()


class Eyes(Sight):
    """Looks at the files themselves. Small reads, and never an error: what cannot be read is not seen."""

    def __init__(self, cwd: str, *, terminal: bool) -> None:
        """``cwd`` is where the command will start."""
        self.cwd = cwd
        self.terminal = terminal

    def begins_as_script(self, path: str) -> bool:
        """See Sight."""
        return self._head(path, 2) == b"#!"

    def is_directory(self, path: str) -> bool:
        """See Sight."""
        return os.path.isdir(os.path.join(self.cwd, path)) if "\0" not in path else False

    def scripts(self, directory: str) -> Mapping[str, str]:
        """See Sight."""
        data = self._head(os.path.join(directory, "package.json"), MOST_BYTES)
        try:
            found = loads(data.decode()).get("scripts")
            return {name: text for name, text in found.items() if isinstance(text, str)}
        except (ValueError, AttributeError):
            return {}

    def _head(self, path: str, most: int) -> bytes:
        try:
            # A FIFO of that name must not keep us waiting for its writer.
            fd = os.open(os.path.join(self.cwd, path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):
            return b""
        try:
            return os.read(fd, most)
        except OSError:
            return b""
        finally:
            os.close(fd)


def simple(text: str) -> list[str] | None:
    """The words of a package script that is one plain command; None where only a shell would know."""
    words = text.split()
    return None if not words or SHELL_MEANING & set(text) else words


class Call(Record):
    """What a package manager was asked for. ``many``: in more than one package, so nothing is known about its width."""

    verb: str
    rest: tuple[str, ...]
    directory: str = ""
    many: bool = False
    selected: bool = False
    """Exactly one package is named, but not where it is."""


MANAGERS = frozenset(("npm", "pnpm", "yarn", "bun"))
DIRECTORIES = {
    "npm": ("--prefix", "-C"),
    "pnpm": ("-C", "--dir", "--prefix"),
    "yarn": ("--cwd",),
    "bun": ("--cwd",),
}
SELECTORS = {
    "npm": ("-w", "--workspace"),
    "pnpm": ("-F", "--filter", "--filter-prod"),
    "bun": ("-F", "--filter"),
}
ALL_PACKAGES = frozenset(("-r", "--recursive", "--workspaces", "-ws", "--parallel"))
PATTERN = frozenset("*?[]{}!^") | {"..."}
OTHER_VALUED = frozenset(
    ("--loglevel", "--reporter", "--registry", "--config", "-c", "--workspace-concurrency")
)


def call(manager: str, words: Sequence[str]) -> Call:
    """Reads the words after `npm`, `pnpm`, `yarn` or `bun` up to and including the verb."""
    directory, selectors, many, at = "", [], False, 0
    while at < len(words) and words[at].startswith("-"):
        name, equals, value = words[at].partition("=")
        takes = name in (*DIRECTORIES.get(manager, ()), *SELECTORS.get(manager, ())) or name in OTHER_VALUED
        if takes and not equals:
            at += 1
            value = words[at] if at < len(words) else ""
        if name in DIRECTORIES.get(manager, ()):
            directory = os.path.join(directory, value)
        elif name in SELECTORS.get(manager, ()):
            selectors.append(value)
        many = many or name in ALL_PACKAGES
        at += 1
    verb, rest = (words[at], words[at + 1 :]) if at < len(words) else ("", ())
    if manager == "yarn" and verb == "workspace" and len(rest) > 1:
        selectors, verb, rest = [rest[0]], rest[1], rest[2:]
    many = many or len(selectors) > 1 or any(mark in text for text in selectors for mark in PATTERN)
    return Call(
        verb=verb, rest=tuple(rest), directory=directory, many=many, selected=len(selectors) == 1 and not many
    )


def npm_options(asked: Call) -> Call:
    """`npm` alone reads its own options behind the verb too, up to ``--``."""
    if asked.verb in ("exec", "x"):
        return asked
    end = asked.rest.index("--") if "--" in asked.rest else len(asked.rest)
    own, rest = asked.rest[:end], asked.rest[end:]
    names = {word.partition("=")[0] for word in own if word.startswith("-")}
    return asked.replace(
        rest=(*(word for word in own if not word.startswith("-")), *rest),
        many=asked.many or bool(names & ALL_PACKAGES),
        selected=asked.selected or bool(names & set(SELECTORS["npm"])),
    )
