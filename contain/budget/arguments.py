"""What a grant of some units changes in a command's own arguments: for tools that read no variable, and high numbers.

Only of a tool that is started directly: what stands behind `nice -n 10` or `sh -c` is left alone.
"""

from __future__ import annotations

from contain.budget.classes.words import number
from contain.budget.parallelism import lower
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Added(Record):
    """A tool without a variable: ``option`` is added with the number unless one of ``own`` is there."""

    option: str
    own: tuple[str, ...]
    joined: bool


ARGUMENTS: Mapping[str, Added] = {
    "jest": Added(
        option="--maxWorkers", own=("--maxWorkers", "-w", "-i", "--runInBand", "--run-in-band"), joined=True
    ),
    # Only where it takes no tokens (contain.budget.make).
    "ninja": Added(option="-j", own=("-j",), joined=False),
    "xcodebuild": Added(option="-jobs", own=("-jobs",), joined=False),
}


def added_arguments(tool: str, arguments: Sequence[str], width: int) -> tuple[str, ...]:
    """What to append to the command of a tool that reads no variable; () when it says itself how wide it is. Pure.

    Nothing is appended behind a ``--``: there it would be a test's name.
    """
    added = ARGUMENTS.get(tool)
    if added is None or "--" in arguments:
        return ()
    if any(word.partition("=")[0] in added.own or word[:2] == "-j" == added.option for word in arguments):
        return ()
    return (f"{added.option}={width}",) if added.joined else (added.option, str(width))


def lowered(arguments: Sequence[str], jobs: Sequence[str], width: int, *, tokens: bool) -> tuple[str, ...]:
    """A tool's own arguments, with a number of workers above ``width`` lowered to it. Pure.

    ``jobs``: its options for that number. ``tokens``: it takes them from a jobserver, as long as nothing on its command
    line says how many; then the options go, the bare ones too (``make -j`` is as many as it likes).
    """
    kept: list[str] = []
    rest = iter(range(len(arguments)))
    for at in rest:
        word = arguments[at]
        if word == "--":
            return (*kept, *arguments[at:])
        following = arguments[at + 1] if at + 1 < len(arguments) else ""
        name, equals, value = word.partition("=")
        attached = _attached(word, jobs)
        if name in jobs and equals:
            kept += [] if tokens else [f"{name}={lower(value, width)}" if number(value) else word]
        elif attached is not None:
            head, digits = attached
            bundle = head[:-1] if head[:-1] != "-" else ""
            kept += ([bundle] if bundle else []) if tokens else [f"{head}{lower(digits, width)}"]
        elif name in jobs:
            counted = number(following) is not None
            kept += [] if tokens else [word, *([str(lower(following, width))] if counted else [])]
            if counted:
                next(rest, None)
        else:
            kept.append(word)
    return tuple(kept)


def _attached(word: str, jobs: Sequence[str]) -> tuple[str, str] | None:
    """``-j8`` and ``-kj8`` as ("-kj", "8"); None for what is no short option with a number."""
    head = word.rstrip("0123456789")
    digits = word[len(head) :]
    if not digits or head.startswith("--") or not head.startswith("-"):
        return None
    return (head, digits) if any(len(one) == len("-j") and head.endswith(one[1]) for one in jobs) else None
