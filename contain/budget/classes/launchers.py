"""What stands before a command and only starts it: `env`, `timeout`, `nice`, `uv run` and their like.

A launcher is peeled by its own grammar, word by word. Nothing is looked for in the middle of a command line: there,
`vitest` may be the text that somebody greps for.
"""

from __future__ import annotations

from contain.budget.classes.words import base_name, listed
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_LAYERS = 16
ENV_SPLIT = ("-S", "--split-string")


class Launcher(Record):
    """``valued``: options that take the next word. ``skip``: own arguments before the command. ``assigns``: ``A=b``."""

    valued: frozenset[str] = frozenset()
    skip: int = 0
    assigns: bool = False


def _launcher(valued: str = "", skip: int = 0, *, assigns: bool = False) -> Launcher:
    return Launcher(valued=listed(valued), skip=skip, assigns=assigns)


PLAIN = _launcher()

LAUNCHERS: Mapping[str, Launcher] = {
    "env": _launcher("-u --unset -C --chdir", assigns=True),
    "cross-env": _launcher(assigns=True),
    "cross-env-shell": _launcher(assigns=True),
    "dotenv": _launcher("-e -p -v -c"),
    "nice": _launcher("-n --adjustment"),
    "ionice": _launcher("-c --class -n --classdata"),
    "chrt": _launcher("-T -P -D", skip=1),
    "taskset": _launcher(skip=1),
    "time": _launcher("-f --format -o --output"),
    "gtime": _launcher("-f --format -o --output"),
    "timeout": _launcher("-s --signal -k --kill-after", skip=1),
    "gtimeout": _launcher("-s --signal -k --kill-after", skip=1),
    "nohup": PLAIN,
    "setsid": PLAIN,
    "stdbuf": _launcher("-i --input -o --output -e --error"),
    "unbuffer": PLAIN,
    "chronic": PLAIN,
    "caffeinate": _launcher("-t -w"),
    "systemd-inhibit": _launcher("--what --who --why --mode"),
    "prlimit": PLAIN,
    "flock": _launcher("-w --timeout --wait -E --conflict-exit-code", skip=1),
    "sudo": _launcher("-u --user -g --group -h --host -p --prompt -C -D --chdir -r -t", assigns=True),
    "doas": _launcher("-u -C"),
    "xvfb-run": _launcher("-n --server-num -e --error-file -f --auth-file -s --server-args -w --wait"),
    "dbus-run-session": _launcher("--config-file"),
    "direnv exec": _launcher(skip=1),
    "mise exec": PLAIN,
    "mise x": PLAIN,
    "asdf exec": PLAIN,
    "volta run": _launcher("--node --npm --yarn --pnpm"),
    "corepack": PLAIN,
    "rustup run": _launcher(skip=1),
    "bundle exec": PLAIN,
    "npx": _launcher("-p --package -w --workspace --prefix -c --call"),
    "bunx": _launcher("-p --package"),
    "pnpx": _launcher("--package"),
    "uvx": _launcher("--from --with --python -p --index-url --with-requirements"),
    "pipx run": _launcher("--spec --python"),
    "uv run": _launcher(
        "--with --with-editable --with-requirements --python -p --extra --group --only-group --no-group --env-file"
        " --directory --project --package --index-url --cache-dir --config-file"
    ),
    "uv tool run": _launcher("--from --with --python -p"),
    "poetry run": PLAIN,
    "pipenv run": PLAIN,
    "pdm run": _launcher("-p --project -s --site-packages"),
    "rye run": PLAIN,
    "conda run": _launcher("-n --name -p --prefix --cwd"),
    "micromamba run": _launcher("-n --name -p --prefix --cwd"),
    "coverage run": _launcher("--source --rcfile --include --omit --context --data-file --concurrency"),
}
"""By the name, or by name and verb. ``skip=1``: a duration, a mask, a file or a directory of the launcher's own."""

WITH_MODULES = ("coverage run", "uv run")
"""They take ``-m MODULE`` as Python does."""

GLOBAL_VALUED = listed("--directory --project --color --cache-dir -C --config-file -P --log-level")
"""Options that the launchers with a verb take before it."""


def peel(words: Sequence[str]) -> list[str]:
    """The command that is behind all launchers; empty where they start none, or none that can be seen."""
    left = list(words)
    for _ in range(MOST_LAYERS):
        while left and _assigns(left[0]):
            left = left[1:]
        shorter = _peel_one(left)
        if shorter is None:
            return left
        left = shorter
    return []


def _assigns(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier() and name.isascii()


def _peel_one(words: Sequence[str]) -> list[str] | None:
    """Without the first launcher; None if there is none."""
    if not words:
        return None
    name = base_name(words[0])
    if name in LAUNCHERS:
        return _command(words[1:], LAUNCHERS[name], calls=name == "npx")
    verb_at = _verb(words)
    if verb_at is None:
        return None
    named = f"{name} {words[verb_at]}"
    if named in LAUNCHERS:
        return _command(words[verb_at + 1 :], LAUNCHERS[named], calls=False, modules=named in WITH_MODULES)
    # `uv tool run`: the only one with two verbs.
    after = " ".join(words[verb_at : verb_at + 2])
    if f"{name} {after}" in LAUNCHERS:
        return _command(words[verb_at + 2 :], LAUNCHERS[f"{name} {after}"], calls=False)
    return None


def _verb(words: Sequence[str]) -> int | None:
    """Where the first word is that is neither an option nor the value of one."""
    at = 1
    while at < len(words):
        word = words[at]
        if not word.startswith("-"):
            return at
        at += 2 if word in GLOBAL_VALUED else 1
    return None


def _command(words: Sequence[str], launcher: Launcher, *, calls: bool, modules: bool = False) -> list[str]:
    """What follows a launcher's own options and arguments."""
    at, skip, ended = 0, launcher.skip, False
    while at < len(words):
        word = words[at]
        if word == "--" and not ended:
            ended = True
        elif word.startswith("-") and not ended:
            if word in ENV_SPLIT and launcher.assigns:
                return [*(words[at + 1].split() if at + 1 < len(words) else ()), *words[at + 2 :]]
            if calls and word in ("-c", "--call"):
                return ["sh", "-c", *words[at + 1 :]]
            if modules and word == "-m":
                return ["python", "-m", *words[at + 1 :]]
            at += word in launcher.valued
        elif launcher.assigns and _assigns(word):
            pass
        elif skip:
            skip -= 1
        else:
            return list(words[at:])
        at += 1
    return []
