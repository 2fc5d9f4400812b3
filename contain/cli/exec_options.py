"""The command line of ``contain exec``, taken apart by hand: argparse would cost more than the whole launch."""

from __future__ import annotations

import os

from contain.errors import UsageError
from contain.job import LAUNCHD, NETWORKS, TIERS, Job, Limits
from receipts import Record, check_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

USAGE = """\
usage: contain exec [OPTION...] [--] COMMAND [ARG...]

Runs COMMAND in a containment, ends what it leaves behind, and exits as it does (128+n for signal n). Everything else is
the command's own: input, output, terminal, signals, environment, directory, limits, umask.

  --timeout TIME        end it after TIME (30, 1.5s, 10m, 2h): TERM, then KILL; exits with 124
  --kill-after TIME     from TERM to KILL, whatever the TERM was for (5s)
  --leftovers TIME      what the command leaves behind may live this long before TERM (0.5s)
  --memory SIZE         of the whole tree (512M, 2G)
  --cpus N              busy cores of the whole tree (1.5)
  --pids N              processes and threads of the whole tree
  --require-limits      refuse to start where one of these cannot be enforced; else that is said on standard error
  --nice N              from -20 to 19
  --cap-drop NAMES      capabilities that it shall not have (net_raw,sys_admin; all); Linux alone has them
  --no-new-privs        set-uid programs give it nothing; on Linux
  --net none            a network of its own, with nothing but the loopback; on Linux
  --keep-fd N           hand descriptor N on, besides 0, 1 and 2; may be repeated
  --cwd DIR             run it there
  --env NAME=VALUE      one more variable; may be repeated
  --require-tier TIER   refuse to start in a weaker containment (Linux: namespace; macOS: session, group)
  --launchd             macOS: run it as a job of launchd's, so that no daemon slips out; refuse where that cannot be
                        had, and where standard input is a terminal. To the privacy settings it is another program
  --receipts DIR        where the receipt goes; else .contain in the account's home
  --id UUID             the job's id; else a new one
  --summary             say on standard error what it took
  --json                the same as one line of JSON
  --budget              wait for a permit of this machine's budget (the default)
  --no-budget           take no permit and wait for none
  --max-wait TIME       give up when no permit was granted in TIME; then COMMAND does not run
  --session NAME        whose turn it takes; else the agent's, the terminal's or the oldest ancestor's
  --holder NAME         a label for contain status
  --draw POOL=N         hold N of a pool as well (gpu=1, port:6298=1); may be repeated. contain pool lists them

Exit codes of our own: 125 when contain itself failed (standard error says why), 124 after --timeout, 126 when COMMAND
cannot be executed, 127 when there is no such command.
"""

SIZES = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
TIMES_MS = {"": 1000.0, "MS": 1.0, "S": 1000.0, "M": 60_000.0, "H": 3_600_000.0}
LONGEST_MS = 2**31 - 1
LONGEST_LABEL = 200
LEFTOVERS_MS = 500
KILL_AFTER_MS = 5_000


class Options(Record):
    """What was asked for. ``kill_after_ms``: from TERM to KILL."""

    job: Job
    receipts: str | None = None
    summary: bool = False
    json: bool = False
    budget: bool = True
    max_wait_ms: int | None = None
    session: str | None = None
    holder: str | None = None
    launchd: bool = False
    """The same as a required tier of that name."""
    resumed: int | None = None
    """Of no user: a descriptor, see contain.cli.resume."""
    draws: tuple[tuple[str, int], ...] = ()
    """(pool, tokens) besides what the command's class draws."""


def _wrong(name: str, what: str) -> UsageError:
    return UsageError(f"{name} takes {what}.", advice="contain exec --help shows it.")


def _scaled(text: str, units: Mapping[str, float], name: str, what: str) -> float:
    digits = text.rstrip("".join({*"".join(units), *"".join(units).lower()}))
    unit = text[len(digits) :].upper()
    unit = unit if unit in units else unit.removesuffix("IB").removesuffix("B")
    try:
        value = float(digits) * units[unit]
    except (ValueError, KeyError):
        raise _wrong(name, what) from None
    if not 0 <= value < float("inf"):
        raise _wrong(name, what)
    return value


def _size(text: str, name: str) -> int:
    value = int(_scaled(text, {**SIZES, "B": 1}, name, "a size, such as 512M or 2G"))
    if value < 1:
        raise _wrong(name, "a size, such as 512M or 2G")
    return value


def time_ms(text: str, name: str) -> int:
    """``1.5s``, ``10m``, ``2h``, or seconds. Raises UsageError, which names the option."""
    value = int(_scaled(text, TIMES_MS, name, "a time, such as 30, 1.5s, 10m or 2h"))
    if value > LONGEST_MS:
        raise _wrong(name, "a time of less than 25 days")
    return value


def _whole(least: int, most: int) -> Callable[[str, str], int]:
    def parse(text: str, name: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise _wrong(name, f"a whole number from {least} to {most}")
        return value

    return parse


def _cpus(text: str, name: str) -> float:
    value = _scaled(text, {"": 1.0}, name, "a number of cores, such as 1.5")
    if not 0.01 <= value <= 100_000:  # noqa: PLR2004 - as protocol.py has it
        raise _wrong(name, "a number of cores, such as 1.5")
    return value


def _one_of(words: tuple[str, ...]) -> Callable[[str, str], str]:
    def parse(text: str, name: str) -> str:
        if text not in words:
            raise _wrong(name, f"one of {', '.join(words)}")
        return text

    return parse


def _id(text: str, name: str) -> str:
    try:
        return check_id(text.lower())
    except ValueError:
        raise _wrong(name, "a UUID (8-4-4-4-12 hex digits)") from None


def _text(text: str, name: str) -> str:
    if not text:
        raise _wrong(name, "a value that is not empty")
    return text


def _label(text: str, name: str) -> str:
    """For terminals of others: no control character, and not a page of it."""
    if not text or not text.isprintable() or len(text) > LONGEST_LABEL:
        raise _wrong(name, f"a label of 1 to {LONGEST_LABEL} printable characters")
    return text


def _fd(text: str, name: str) -> int:
    fd = _whole(3, 2**31 - 1)(text, name)
    try:
        os.fstat(fd)
    except OSError:
        raise UsageError(f"Descriptor {fd} is not open.", advice="Open it in the caller: N<FILE.") from None
    return fd


def _draw(text: str, name: str) -> tuple[str, int]:
    pool, equals, count = text.partition("=")
    if not pool or not equals:
        raise _wrong(name, "POOL=N, such as gpu=1")
    return pool, _whole(1, 2**31 - 1)(count, name)


VALUES: Mapping[str, tuple[str, str, Callable[[str, str], object]]] = {
    "--timeout": ("job", "timeout_ms", time_ms),
    "--kill-after": ("job", "kill_ms", time_ms),
    "--leftovers": ("job", "grace_ms", time_ms),
    "--memory": ("limits", "memory_bytes", _size),
    "--cpus": ("limits", "cpus", _cpus),
    "--pids": ("limits", "pids", _whole(1, 2**22)),
    "--nice": ("limits", "nice", _whole(-20, 19)),
    "--net": ("job", "network", _one_of(NETWORKS)),
    "--cwd": ("job", "cwd", _text),
    "--require-tier": ("job", "require_tier", _one_of(TIERS)),
    "--id": ("job", "id", _id),
    "--max-wait": ("options", "max_wait_ms", time_ms),
    "--session": ("options", "session", _label),
    "--holder": ("options", "holder", _label),
    "--resumed": ("options", "resumed", _fd),
    "--receipts": ("options", "receipts", _text),
    "--cap-drop": ("lists", "drop_capabilities", _text),
    "--keep-fd": ("lists", "keep_fds", _fd),
    "--env": ("lists", "env", _text),
    "--draw": ("lists", "draws", _draw),
}
FLAGS = {
    "--require-limits": ("job", "require_limits", True),
    "--no-new-privs": ("job", "no_new_privs", True),
    "--launchd": ("options", "launchd", True),
    "--summary": ("options", "summary", True),
    "--json": ("options", "json", True),
    "--budget": ("options", "budget", True),
    "--no-budget": ("options", "budget", False),
}


def parse(args: list[str], new_id: Callable[[], str], environ: Callable[[], dict[str, str]]) -> Options:
    """Raises UsageError for what makes no sense. ``environ``: what ``--env`` adds to."""
    found: dict[str, dict[str, object]] = {"job": {}, "limits": {}, "options": {}}
    lists: dict[str, list[object]] = {"drop_capabilities": [], "keep_fds": [], "env": [], "draws": []}
    rest = list(args)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in FLAGS and not equals:
            where, field, value_of_flag = FLAGS[name]
            found[where][field] = value_of_flag
        elif name in VALUES:
            if not equals:
                if not rest:
                    raise UsageError(f"{name} lacks its value.", advice="contain exec --help shows it.")
                value = rest.pop(0)
            where, field, convert = VALUES[name]
            if where == "lists":
                lists[field].append(convert(value, name))
            else:
                found[where][field] = convert(value, name)
        else:
            raise UsageError(
                f"contain exec has no option {word[:40]!r}.",
                advice="contain exec --help lists them; a command that begins with a dash comes after --.",
            )
    if not rest or not rest[0]:
        raise UsageError("There is no command.", advice="contain exec -- COMMAND [ARG...]")
    if found["options"].get("summary") or found["options"].get("json"):
        found["job"]["sample_memory"] = True  # only where somebody wants to know: it costs a look a second
    options = Options(job=_job(rest, found, lists, new_id, environ), draws=tuple(lists["draws"]))  # type: ignore[arg-type]
    return _sensible(options.replace(**found["options"]))


def _sensible(options: Options) -> Options:
    if options.draws and not options.budget:
        raise UsageError("--draw takes from the budget, and none is asked.", advice="Leave out --no-budget.")
    if options.launchd:
        if options.job.require_tier not in (None, LAUNCHD):
            raise UsageError("--launchd requires that very tier.", advice="Leave out --require-tier.")
        return options.replace(job=options.job.replace(require_tier=LAUNCHD))
    return options


def _job(
    words: list[str],
    found: Mapping[str, dict[str, object]],
    lists: Mapping[str, list[object]],
    new_id: Callable[[], str],
    environ: Callable[[], dict[str, str]],
) -> Job:
    job_id = str(found["job"].pop("id", None) or new_id())
    job = Job(
        id=job_id,
        permit_id=new_id(),
        command=words[0],
        args=tuple(words[1:]),
        limits=Limits().replace(**found["limits"]),
        grace_ms=LEFTOVERS_MS,
        kill_ms=KILL_AFTER_MS,
        stdio=(0, 1, 2),
        keep_fds=tuple(dict.fromkeys(lists["keep_fds"])),  # type: ignore[arg-type]
        drop_capabilities=tuple(
            word for names in lists["drop_capabilities"] for word in str(names).split(",")
        ),
    )
    if lists["env"]:
        job = job.replace(env=_env([str(text) for text in lists["env"]], environ()))
    return job.replace(**found["job"])


def _env(variables: list[str], found: dict[str, str]) -> Mapping[str, str]:
    for variable in variables:
        name, equals, value = variable.partition("=")
        if not equals or not name:
            raise _wrong("--env", "NAME=VALUE")
        found[name] = value
    return found
