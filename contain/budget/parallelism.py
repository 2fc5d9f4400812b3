"""What a grant of some units tells the tools below it, by their environment.

Hints are a courtesy, not a limit: a tool may ignore its variable, and a flag on its command line beats it. The rule is
one for all of them: a caller's lower value stays, a higher one is lowered, and what is no number becomes the limit.

UV_THREADPOOL_SIZE is left alone on purpose: those threads wait for files and names, and with one of them some programs
wait for themselves. Maven and ESLint start one worker unless they are told otherwise, and need no hint.
"""

from __future__ import annotations

import os

from contain.budget.classes.words import number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WORKERS = (
    "VITEST_MAX_WORKERS", "VITEST_MAX_FORKS", "VITEST_MAX_THREADS",
    "PYTEST_XDIST_AUTO_NUM_WORKERS", "TURBO_CONCURRENCY", "NX_PARALLEL",
    "CARGO_BUILD_JOBS", "RUST_TEST_THREADS", "GOMAXPROCS", "RAYON_NUM_THREADS", "TOKIO_WORKER_THREADS",
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS", "JULIA_NUM_THREADS",
    "CMAKE_BUILD_PARALLEL_LEVEL", "CTEST_PARALLEL_LEVEL", "MAX_JOBS", "UV_CONCURRENT_BUILDS", "JOBS",
    "BUNDLE_JOBS",
)  # fmt: skip
"""Variables whose value is a number of workers."""

LOWEST = ("VITEST_MIN_WORKERS", "VITEST_MIN_FORKS", "VITEST_MIN_THREADS")
"""A configuration's minimum above our maximum is an error of vitest's pool, so the minimum is said too."""

GRADLE = "-Dorg.gradle.workers.max="
JOBSERVER_OPTIONS = ("--jobserver-auth", "--jobserver-fds", "--jobserver-style")
STALE = ("MFLAGS", "CARGO_MAKEFLAGS")
"""They may name an outer make's jobserver, and some clients look there first."""

WITH_VALUE = frozenset("CfIoWElO")
"""Short options of make whose value may be attached: what follows one of them in a word is not an option."""


def hints(width: int, env: Mapping[str, str], jobserver: str | None = None) -> dict[str, str | None]:
    """What to change in ``env`` for children that may start ``width`` workers: name -> value, None to unset. Pure.

    ``jobserver``: the text of ``--jobserver-auth=`` for a private jobserver of the permit, or None.
    """
    width = max(1, width)
    changes: dict[str, str | None] = {name: str(lower(env.get(name), width)) for name in WORKERS}
    changes |= {name: str(lower(env.get(name), 1)) for name in LOWEST}
    changes["GRADLE_OPTS"] = gradle_options(env.get("GRADLE_OPTS", ""), width)
    changes["MAKEFLAGS"] = make_flags(env.get("MAKEFLAGS", ""), width, jobserver)
    changes |= dict.fromkeys((name for name in STALE if "--jobserver" in env.get(name, "")), None)
    return {name: value for name, value in changes.items() if env.get(name) != value}


def jobserver_fds(make_flags: str) -> tuple[int, ...]:
    """The open descriptors of a jobserver in the form of a pipe, as MAKEFLAGS numbers them; else ()."""
    found: tuple[int, ...] = ()
    for word in make_flags.partition(" -- ")[0].split():
        option, _, value = word.partition("=")
        numbers = value.split(",")
        if (
            option in JOBSERVER_OPTIONS
            and len(numbers) == len(("read", "write"))
            and all(map(str.isdigit, numbers))
        ):
            found = tuple(map(int, numbers))
    try:
        for fd in found:
            os.fstat(fd)
    except OSError:
        return ()  # whoever made it did not hand it on: the flags lie
    return found


def lower(text: str | None, limit: int) -> int:
    """The caller's number if it is lower than the limit; the limit for everything else, 0 included."""
    found = number(text)
    return limit if found is None or int(text or "0") == 0 else min(found, limit)


def gradle_options(text: str, width: int) -> str:
    """GRADLE_OPTS with exactly one ``workers.max``, last: the JVM takes the last of two."""
    kept, own = [], width
    for word in text.split(" "):
        if word.startswith(GRADLE):
            own = lower(word.removeprefix(GRADLE), own)
        elif word:
            kept.append(word)
    return " ".join([*kept, f"{GRADLE}{own}"])


def make_flags(text: str, width: int, jobserver: str | None) -> str:
    """MAKEFLAGS with the job count lowered and one jobserver: ours, or none.

    Other flags stay, as do variables behind `` -- ``. An outer make's jobserver goes: its descriptors do not reach into
    the containment, and its tokens are not this permit's. See the GNU make manual, "Sharing Job Slots with GNU make".
    """
    flags, separator, variables = f" {text} ".partition(" -- ")
    words = _words(flags)
    kept, jobs = _without_jobs(words)
    lower = width if jobs is None else min(jobs, width)
    added = [f"-j{lower}"]
    if jobserver is not None:
        added.append(f"--jobserver-auth={jobserver}")
    # The first word alone may be a bundle without its dash ("kw"): it stays first, and no other word becomes it.
    bare = bool(words) and words[0][0] != "-" and "=" not in words[0]
    bundles = 1 if bare and _bundle(words[0], first=True)[0] else 0
    joined = " ".join([*kept[:bundles], *added, *kept[bundles:]])
    return f"{joined} -- {variables.strip()}" if separator else joined


def _words(text: str) -> list[str]:
    """Split at blanks that no backslash precedes."""
    words: list[str] = []
    for part in text.split(" "):
        if words and words[-1].endswith("\\"):
            words[-1] += f" {part}"
        else:
            words.append(part)
    return [word for word in words if word]


def _without_jobs(words: Sequence[str]) -> tuple[list[str], int | None]:
    """The words without job counts and jobservers, and the lowest count there was; a bare ``-j`` has none."""
    kept: list[str] = []
    counts: list[int] = []
    at = 0
    while at < len(words):
        word = words[at]
        following = words[at + 1] if at + 1 < len(words) else ""
        name, equals, value = word.partition("=")
        text: str | None
        at += 1
        if name in JOBSERVER_OPTIONS:
            continue
        if name == "--jobs":
            text = value if equals else following
            at += not equals and following.isdigit()
        else:
            left, text = _bundle(word, first=at == 1)
            if text == "" and following.isdigit():
                text = following
                at += 1
            if left not in ("", "-"):
                kept.append(left)
        count = number(text)
        if count is not None and int(text or "0") > 0:
            counts.append(count)
    return kept, min(counts, default=None)


def _bundle(word: str, *, first: bool) -> tuple[str, str | None]:
    """A word of short options without its ``j``, and what stood behind that: "" for a bare one, None without one."""
    dashed = word.startswith("-")
    if word.startswith("--") or not (dashed or (first and "=" not in word)):
        return word, None
    at = 1 if dashed else 0
    while at < len(word):
        if word[at] == "j":
            end = at + 1
            while end < len(word) and word[end].isdigit():
                end += 1
            return word[:at] + word[end:], word[at + 1 : end]
        if word[at] in WITH_VALUE:
            break
        at += 1
    return word, None
