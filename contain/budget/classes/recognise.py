"""`classify`: from a command line to its class."""

from __future__ import annotations

from contain.budget.classes import launchers, scripts
from contain.budget.classes.kinds import KINDS
from contain.budget.classes.tools import TOOLS, is_focused
from contain.budget.classes.words import base_name, listed, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from contain.budget.classes.kinds import JobClass
    from contain.budget.classes.scripts import Sight
    from contain.budget.classes.tools import Tool
    from contain.budget.classes.words import Words

MOST_DEPTH = 6
"""Package scripts that call package scripts."""

RUN_VERBS = frozenset(("run", "run-script", "rum", "urn"))
EXEC_VERBS = frozenset(("exec", "x", "dlx"))
SHORTHANDS = {"t": "test", "tst": "test"}
INSTALLS = listed("install i ci add update up upgrade install-test it dedupe rebuild import")
OWN_COMMANDS = listed(
    "ls list why view info outdated audit config cache pm link unlink remove rm uninstall publish pack login logout"
    " whoami version help init create store licenses patch deploy fetch prune root bin set policies plugin upgrade"
)
"""Of package managers, none of which runs anything heavy."""
PYTHON_VALUED = frozenset(("-W", "-X"))
SHELL_VALUED = frozenset(("--rcfile", "--init-file"))
RUNS_ONCE = (("run",), ("related",), ("bench",))
HEAVIEST_FIRST = ("serve", "build", "test", "compile", "other")
NODE_VALUED = frozenset(("-r", "--require", "--import", "--loader", "-C", "--conditions", "--env-file"))
ASKS = ("--version", "--help")


def classify(argv: Sequence[str], sight: Sight = scripts.BLIND) -> JobClass:
    """The class of a command line (the command's own name first). Pure but for what ``sight`` looks at; never raises.

    What is not known is ``other``: one unit. What runs things that cannot be seen is ``script``.
    """
    return _classify(list(argv), sight, 0)


def _kind(name: str, tool: str = "") -> JobClass:
    return KINDS[name].replace(tool=tool)


def _classify(argv: Sequence[str], sight: Sight, depth: int) -> JobClass:
    words = launchers.peel(argv)
    if not words:
        return _kind("other")
    if depth > MOST_DEPTH:
        return _kind("script")
    name = base_name(words[0])
    if name in scripts.SHELLS:
        return _shell(name, words[1:], sight)
    if _is_python(name):
        return _python(words[1:], sight, depth)
    if name in ("node", "nodejs", "tsx", "ts-node"):
        return _node(words[1:], sight, depth)
    if name in scripts.MANAGERS:
        return _manager(name, words[1:], sight, depth)
    return _tool(name, words[1:], sight) if name in TOOLS else _file(words[0], sight)


def _file(path: str, sight: Sight) -> JobClass:
    """A program that no table knows."""
    named = path.endswith((".sh", ".bash"))
    return _kind("script" if named or ("/" in path and sight.begins_as_script(path)) else "other")


def _tool(name: str, arguments: Sequence[str], sight: Sight) -> JobClass:
    tool = TOOLS[name]
    words = read(arguments, tool.valued, tool.jobs)
    if any(option in ASKS for option, _ in words.options):
        return _kind("other", name)
    names = [word for word in words.names if not word.startswith("+")]  # cargo +nightly
    found = next((option for option, _ in words.options if option in tool.verbs), None)
    if found is not None:
        kind = tool.verbs[found]
    else:
        kind, names = _by_verb(name, names)
    if words.has(*tool.watch) or (kind == tool.kind and _watches_when_bare(tool, words, sight)):
        kind = "serve"
    if kind == "serve" and words.has(*tool.detached):
        kind = "other"
    chosen = _kind(kind, name)
    reads_files = kind == tool.kind or kind in ("lint", "format")
    if reads_files and is_focused(tool, words, names) and not any(map(sight.is_directory, names)):
        return chosen.focused(chosen.memory_mib if tool.focus == "project" else 0)
    width = 1 if tool.lone or words.has(*tool.single) else words.number(tool.jobs)
    if width is not None and kind != "other":
        return chosen.exactly(width)
    if name == "tsgo" and kind == "typecheck":
        return chosen.replace(want_units=4)  # the compiler in Go checks in parallel
    return chosen.replace(resizable=tool.jobserver and kind in ("compile", "script", "test"))


def _watches_when_bare(tool: Tool, words: Words, sight: Sight) -> bool:
    """`vitest` without `run` stays, where a person is in front of it."""
    switched = any(option in ("--watch", "--run") for option, _ in words.options)
    return tool.bare_watch and sight.terminal and not switched and words.names[:1] not in RUNS_ONCE


def _by_verb(name: str, names: Sequence[str]) -> tuple[str, list[str]]:
    """The kind that the first one or two names ask for, and the names without them."""
    tool = TOOLS[name]
    if tool.kind == "build":
        # Tools of goals and tasks (gradle, xcodebuild) take them in any order; the heaviest is what it costs.
        kinds = [tool.verbs.get(word.rpartition(":")[2], tool.verbs.get(word, tool.kind)) for word in names]
        return next((kind for kind in HEAVIEST_FIRST if kind in kinds), tool.kind), list(names)
    for count in (2, 1):
        verb = " ".join(names[:count])
        if len(names) >= count and verb in tool.verbs:
            return tool.verbs[verb], list(names[count:])
    once = tool.bare_watch and tuple(names[:1]) in RUNS_ONCE
    return tool.kind, list(names[1:] if once else names)


def _shell(name: str, arguments: Sequence[str], sight: Sight) -> JobClass:
    """``-c``, a file or a pipe is a script; ``-i``, or nothing on a terminal, is a person's."""
    at, short = 0, ""
    while at < len(arguments) and arguments[at].startswith(("-", "+")):
        word = arguments[at]
        if word == "--version":
            return _kind("other", name)
        if word == "--command":
            return _kind("script", name)
        if not word.startswith("--"):
            short += word[1:]
        at += 2 if word in SHELL_VALUED or (word[:2] != "--" and word.endswith(("o", "O"))) else 1
    if "c" in short or at < len(arguments):
        return _kind("script", name)
    return _kind("none" if sight.terminal or "i" in short else "script", name)


def _is_python(name: str) -> bool:
    for prefix in ("python", "pypy"):
        if name.startswith(prefix):
            version = name.removeprefix(prefix).replace(".", "")
            return not version or version.isdigit()
    return False


def _python(arguments: Sequence[str], sight: Sight, depth: int) -> JobClass:
    """``-m`` leads to the module's own class; a file is one process of nobody knows what."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and arguments[at] != "-":
        option = arguments[at]
        if option == "-m" and at + 1 < len(arguments):
            return _classify(arguments[at + 1 :], sight, depth + 1)
        if option.startswith("-m") and len(option) > len("-m"):
            return _classify([option[2:], *arguments[at + 1 :]], sight, depth + 1)
        if option in ("-c", "--version", "-V", "--help"):
            return _kind("other", "python")
        if option == "-i":
            return _kind("none", "python")
        at += 2 if option in PYTHON_VALUED else 1
    if at == len(arguments):
        return _kind("none" if sight.terminal else "other", "python")
    if base_name(arguments[at]) == "manage.py" and arguments[at + 1 : at + 2] in (["runserver"], ["test"]):
        return _kind("serve" if arguments[at + 1] == "runserver" else "test", "django")
    return _kind("other", "python")


def _node(arguments: Sequence[str], sight: Sight, depth: int) -> JobClass:
    """A file of an installed package is that package; any other file is one process of nobody knows what."""
    words = read(arguments, NODE_VALUED)
    own = [name for name, _ in words.options]
    if "--test" in own:
        return _kind("test", "node")
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        if arguments[at] == "--watch":
            return _kind("serve", "node")
        at += 2 if arguments[at] in NODE_VALUED else 1
    if at == len(arguments):
        return _kind("none" if sight.terminal and not arguments else "other", "node")
    if arguments[at] == "watch":
        return _kind("serve", "node")
    package = _package(arguments[at])
    return (
        _classify([package, *arguments[at + 1 :]], sight, depth + 1)
        if package in TOOLS
        else _kind("other", "node")
    )


def _package(path: str) -> str:
    """``node_modules/.bin/jest`` and ``./node_modules/jest/bin/jest.js`` are ``jest``; "" for what is not installed."""
    _, mark, below = path.rpartition("node_modules/")
    parts = below.split("/")
    if not mark or not parts[0]:
        return ""
    if parts[0] == ".bin":
        return base_name(below)
    file = base_name(below)
    return file if file in TOOLS else parts[0]


def _manager(name: str, arguments: Sequence[str], sight: Sight, depth: int) -> JobClass:
    """npm, pnpm, yarn, bun: a tool, an installation, or a script of package.json."""
    if name == "deno":
        verb = next(iter(arguments), "")
        return _kind(
            {"test": "test", "task": "script", "lint": "lint", "check": "typecheck"}.get(verb, "other"), name
        )
    asked = scripts.call(name, arguments)
    if name == "npm":
        asked = scripts.npm_options(asked)
    verb, rest = SHORTHANDS.get(asked.verb, asked.verb), list(asked.rest)
    if verb in EXEC_VERBS:
        return _behind_exec(name, rest, asked, sight, depth)
    own = "install" if verb in INSTALLS or (name == "yarn" and not arguments) else ""
    if name == "bun" and (verb in ("test", "build") or "." in verb):
        own = {"test": "test", "build": "bundle"}.get(verb, "other")
    if own:
        return _kind(own, name)
    if verb in RUN_VERBS:
        inner = scripts.call(name, rest)
        merged = asked.replace(many=asked.many or inner.many, selected=asked.selected or inner.selected)
        return _package_script(inner.verb, list(inner.rest), merged, sight, depth)
    known = sight.scripts(asked.directory)
    if verb in ("test", "start") or verb in known or (verb and name != "npm" and verb in scripts.SERVERS):
        return _package_script(verb, rest, asked, sight, depth)
    if name == "npm" or not verb:
        return _kind("other", name)
    if verb in TOOLS:
        return _behind_exec(name, [verb, *rest], asked, sight, depth)
    # A script that we cannot see, or a command of the manager's own: the wider answer.
    return (
        _package_script(verb, rest, asked, sight, depth) if verb not in OWN_COMMANDS else _kind("other", name)
    )


def _behind_exec(name: str, rest: Sequence[str], asked: scripts.Call, sight: Sight, depth: int) -> JobClass:
    """`pnpm exec tsc`: the tool's own class; in many packages at once it is as wide as a script."""
    words = list(rest)
    if name == "npm" and words[:1] in (["-c"], ["--call"]):
        return _kind("script", name)
    while words and words[0].startswith("-"):
        words = words[2 if words[0] in ("-p", "--package", "-w", "--workspace") else 1 :]
    return _kind("script", name) if asked.many else _classify(words, sight, depth + 1)


def _package_script(
    script: str, rest: Sequence[str], asked: scripts.Call, sight: Sight, depth: int
) -> JobClass:
    """The class of the one command that a script is, with the caller's further words; else `script`."""
    extra = list(rest[1:] if rest[:1] == ["--"] else rest)
    known = {} if asked.many or asked.selected else sight.scripts(asked.directory)
    words = scripts.simple(known.get(script, ""))
    if words is not None and not {f"pre{script}", f"post{script}"} & known.keys():
        return _classify([*words, *extra], sight, depth + 1)
    if script in scripts.SERVERS and not asked.many:
        return _kind("serve")
    if script in scripts.TYPECHECKS and asked.selected:
        chosen = _kind("typecheck")
        return chosen.focused(chosen.memory_mib)
    return _kind("script")
