"""What a host may say to ``contain permit``, as strictly parsed as every line of the protocol."""

from __future__ import annotations

from contain.budget.classes import KINDS
from contain.job import check_bytes
from contain.protocol import milliseconds_of, strings_of, text_of, unknown_field, uuid_of, violation, whole_of
from receipts import Record, Unreadable, decode_proof

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from receipts import Proof

MOST_UNITS = 2**20
LONGEST_LABEL = 200
MOST_DRAWS = 64


class Said(Record):
    """A line of a host about one permit. ``id`` in lower case, ``spelled_id`` as the host has it."""

    id: str
    spelled_id: str


class Ask(Said):
    """A permit is wanted: for a command, or for work of a class."""

    words: tuple[str, ...] = ()
    cwd: str | None = None
    kind: str | None = None
    """A class by name; then there are no words."""
    session: str | None = None
    holder: str = ""
    max_wait_ms: int | None = None
    draws: tuple[tuple[str, int], ...] = ()
    resizable: bool = False
    """The host will follow targets."""


class Bind(Said):
    """The permit is this containment's. ``receipts``: the directory of the job's receipt."""

    proof: Proof
    receipts: str
    job_id: str


class Settled(Said):
    """The job holds so many units now."""

    units: int


class Release(Said):
    """The job is over: look at the evidence."""


class Withdraw(Said):
    """The request, or the grant that nothing was bound to, is given up."""


def _label(value: object, name: str) -> str:
    text = text_of(value, name)
    if len(text) > LONGEST_LABEL or not text.isprintable():
        raise violation(f"{name} must be a printable string of at most {LONGEST_LABEL} characters.")
    return text


def _directory(value: object, name: str) -> str:
    text = text_of(value, name)
    check_bytes(text, name)
    if not text.startswith("/"):
        raise violation(f"{name} must be an absolute path.")
    return text


def _class(value: object) -> str:
    if not isinstance(value, str) or value not in KINDS:
        raise violation(f"class must be one of {', '.join(KINDS)}.")
    return value


def _draws(value: object) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, dict) or len(value) > MOST_DRAWS:
        raise violation(f"draws must be an object of at most {MOST_DRAWS} pools, each with a number.")
    return tuple((_label(pool, "a pool"), whole_of(n, "a draw", 1, MOST_UNITS)) for pool, n in value.items())


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise violation("resizable must be true or false.")
    return value


def _proof(value: object) -> Proof:
    try:
        return decode_proof(value, "proof")
    except Unreadable as error:
        raise violation(
            f"proof must be the namespaceInit (on Darwin the anchor) of prepared ({error})."
        ) from None


FIELDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ask": ((), ("command", "args", "cwd", "class", "session", "holder", "maxWaitMs", "draws", "resizable")),
    "bind": (("proof", "receipts", "jobId"), ()),
    "settled": (("units",), ()),
    "release": ((), ()),
    "withdraw": ((), ()),
}
"""Action -> (required, optional) fields besides ``id`` and ``action``."""


def said_of(found: Mapping[str, object]) -> Said:
    """The record of a message. Raises ProtocolViolation and ImpossibleRequest."""
    action = found.get("action")
    if not isinstance(action, str) or action not in FIELDS:
        raise violation(f"action must be one of {', '.join(FIELDS)}.")
    required, optional = FIELDS[action]
    for name in required:
        if name not in found:
            raise violation(f"{action} has no {name}.")
    for name in found:
        if name not in ("id", "action", *required, *optional):
            raise unknown_field(f"{action} has", name)
    ids = {"id": uuid_of(found.get("id"), "id"), "spelled_id": str(found.get("id"))}
    if action == "ask":
        return _ask(found, ids)
    if action == "bind":
        return Bind(
            proof=_proof(found["proof"]),
            receipts=_directory(found["receipts"], "receipts"),
            job_id=uuid_of(found["jobId"], "jobId"),
            **ids,
        )
    if action == "settled":
        return Settled(units=whole_of(found["units"], "units", 0, MOST_UNITS), **ids)
    return Release(**ids) if action == "release" else Withdraw(**ids)


def _ask(found: Mapping[str, object], ids: Mapping[str, str]) -> Ask:
    if ("class" in found) == ("command" in found) or ("args" in found and "command" not in found):
        raise violation("ask has either a command, with args, or a class.")
    words: tuple[str, ...] = ()
    if "command" in found:
        words = (text_of(found["command"], "command"), *strings_of(found.get("args", []), "args"))
    if words and not words[0]:
        raise violation("command is empty.")
    return Ask(
        words=words,
        kind=_class(found["class"]) if "class" in found else None,
        cwd=_directory(found["cwd"], "cwd") if "cwd" in found else None,
        session=_label(found["session"], "session") if "session" in found else None,
        holder=_label(found["holder"], "holder") if "holder" in found else "",
        max_wait_ms=milliseconds_of(found["maxWaitMs"]) if "maxWaitMs" in found else None,
        draws=_draws(found["draws"]) if "draws" in found else (),
        resizable=_flag(found["resizable"]) if "resizable" in found else False,
        **ids,
    )
