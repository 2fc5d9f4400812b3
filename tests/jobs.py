"""Unruly jobs: what each does that has been seen to outlive a wrapper somewhere, and how it is started.

Every one of them adds bytes to a file while anything of it runs. ``unruly.c`` holds what a shell cannot say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

LIFE_S = 50
"""An unruly job ends by itself after this: later than every test, and never long after one."""


class Unruly(NamedTuple):
    """One kind of job. In ``text``, $U is the unruly program, $F the file, $S the seconds, for ``sh -c``."""

    name: str
    text: str
    gone_s: float = 2.0
    """Nothing of it may live so long after its containment was killed."""


UNRULY = (
    Unruly("double-fork", 'exec "$U" daemon "$F" "$S"'),
    Unruly("session", 'setsid "$U" beat "$F" "$S" & setsid nohup "$U" beat "$F" "$S" & wait'),
    Unruly("no-environment", 'env -i setsid "$U" daemon "$F" "$S" & wait'),
    Unruly("deaf", 'trap "" TERM HUP INT; exec "$U" deaf "$F" "$S"'),
    Unruly("nested-pid", '[ "$(id -u)" = 0 ] || N=-Ur; unshare $N -pf "$U" daemon "$F" "$S"'),
    Unruly(
        "nested-user-pid",
        '[ "$(id -u)" != 0 ] || N="setpriv --reuid 65534 --regid 65534 --clear-groups"; '
        'exec $N unshare -Upf "$U" daemon "$F" "$S"',
    ),
    Unruly("nested-twice", 'unshare -Ur -pf unshare -pf sh -c \'"$U" daemon "$F" "$S" & wait\''),
    Unruly("thread-storm", 'exec "$U" storm "$F" "$S"'),
    Unruly("relay", 'exec "$U" relay "$F" "$S"'),
    Unruly("stopped", 'exec "$U" stopped "$F" "$S"'),
    Unruly("traced", 'exec "$U" traced "$F" "$S"'),
    Unruly("forest", 'exec "$U" forest "$F" "$S"', gone_s=5.0),
)


def named(name: str) -> Unruly:
    """The unruly job of this name."""
    return next(job for job in UNRULY if job.name == name)


def shell(text: str, unruly: Path, file: Path, life_s: int = LIFE_S) -> tuple[str, ...]:
    """The command line of a job."""
    return ("sh", "-c", f"U='{unruly}' F='{file}' S={life_s}; export U F S; {text}")
