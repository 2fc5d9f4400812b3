"""The protocol of ``contain run``: JSON lines, both directions. ``docs/PROTOCOL.md`` is its description for hosts.

Parsing is strict: an unknown field, a duplicate key or a wrong type is a ProtocolViolation, since a field that was
silently ignored could have been a limit that somebody relies on. Readers of *replies* ignore what they do not know.
"""

from __future__ import annotations

from _operator import _compare_digest  # hmac's own; hmac itself would load OpenSSL before every job

from contain.errors import BadToken, ContainError, ProtocolViolation
from contain.job import NETWORKS, TIERS, Abort, Job, Limits, check_bytes
from receipts import Anchor, Record, encode, jsontext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import ClassVar

    from receipts import Receipt

REQUEST_LINE_BYTES = 16 * 1024 * 1024
LINE_BYTES = 64 * 1024
LONGEST_MS = 2**31 - 1
TOKEN_DIGITS = 64
LONGEST_NAME = 24


class Request(Record):
    """The first line: the job, the token that opens its gate, and its id as the host spelled it."""

    _secret: ClassVar[tuple[str, ...]] = ("token",)

    job: Job
    token: str
    spelled_id: str


class LineReader:
    """Cuts a byte stream into lines, and refuses one that is too long before it has been read whole."""

    def __init__(self) -> None:
        """The first line may have ``REQUEST_LINE_BYTES``, every other one ``LINE_BYTES``."""
        self._limit_bytes = REQUEST_LINE_BYTES
        self._pending = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that ``data`` completed, without their line ends. Raises ProtocolViolation."""
        lines = []
        self._pending += data
        while (end := self._pending.find(b"\n", 0, self._limit_bytes + 1)) >= 0:
            lines.append(bytes(self._pending[:end]))
            del self._pending[: end + 1]
            self._limit_bytes = LINE_BYTES
        if len(self._pending) > self._limit_bytes:
            raise ProtocolViolation(
                f"A line has more than {self._limit_bytes} bytes.",
                advice="Send one JSON object a line, and end it.",
            )
        return lines

    @property
    def unfinished(self) -> bool:
        """Bytes were read that no line end has followed."""
        return bool(self._pending)


def violation(message: str) -> ProtocolViolation:
    """What is wrong with a line."""
    return ProtocolViolation(message, advice="See docs/PROTOCOL.md for the messages and their fields.")


def unknown_field(where: str, name: str) -> ProtocolViolation:
    """A name is quoted where it may be one. What else a host puts in its place could be a token or a variable."""
    word = name.isascii() and name.replace("_", "").isalpha() and len(name) <= LONGEST_NAME
    quoted = repr(name) if word else "one whose name is no plain word"
    return violation(f"{where} a field that this version does not know: {quoted}.")


def message_of(line: bytes) -> dict[str, object]:
    """The fields of a message, less those that are the host's own. Raises ProtocolViolation."""
    try:
        # surrogateescape: a host that pastes odd bytes raw instead of escaped gets the same bytes in the command.
        found = jsontext.loads(line.decode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise violation(f"A line is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise violation("A line is not a JSON object.")
    return {key: value for key, value in found.items() if not key.startswith("x-")}


def text_of(value: object, name: str) -> str:
    """A string. Raises ProtocolViolation, as all of these do."""
    if not isinstance(value, str):
        raise violation(f"{name} must be a string.")
    return value


def uuid_of(value: object, name: str) -> str:
    """A UUID, in lower case."""
    text = text_of(value, name)
    groups = text.split("-")
    if [len(group) for group in groups] != [8, 4, 4, 4, 12] or set(text) - set("0123456789abcdefABCDEF-"):
        raise violation(f"{name} must be a UUID in its usual form (8-4-4-4-12 hex digits).")
    return text.lower()


def id_of(found: Mapping[str, object]) -> str | None:
    """The id of a message, in lower case; None where it has none that could be one."""
    try:
        return uuid_of(found.get("id"), "id")
    except ProtocolViolation:
        return None


def _token(value: object) -> str:
    text = text_of(value, "token")
    if len(text) != TOKEN_DIGITS or set(text) - set("0123456789abcdefABCDEF"):
        raise violation(f"token must be {TOKEN_DIGITS} hex digits.")
    return text


def whole_of(value: object, name: str, least: int = 0, most: int = 2**63 - 1) -> int:
    """A whole number within its bounds."""
    if type(value) is not int or not least <= value <= most:
        raise violation(f"{name} must be a whole number from {least} to {most}.")
    return value


def strings_of(value: object, name: str) -> tuple[str, ...]:
    """An array of strings."""
    if not isinstance(value, list):
        raise violation(f"{name} must be an array of strings.")
    return tuple(text_of(item, f"{name}[{index}]") for index, item in enumerate(value))


def _env(value: object) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise violation("env must be an object of strings.")
    for name, text in value.items():
        if not name or "=" in name:
            raise violation("A name in env is empty or holds '='.")
        check_bytes(name + "=" + text_of(text, "a value in env"), "A variable of env")
    return value


LEAST_CPUS, MOST_CPUS = 0.01, 100_000.0
LIMIT_FIELDS = {
    "memoryBytes": "memory_bytes",
    "pids": "pids",
    "openFiles": "open_files",
    "fileBytes": "file_bytes",
    "coreBytes": "core_bytes",
    "cpuS": "cpu_s",
    "addressSpaceBytes": "address_space_bytes",
    "stackBytes": "stack_bytes",
}


def _limits(value: object) -> Limits:
    if not isinstance(value, dict):
        raise violation("limits must be an object.")
    found: dict[str, int | float] = {}
    for name, number in value.items():
        if name == "cpus":
            found["cpus"] = _cpus(number)
        elif name == "nice":
            found["nice"] = whole_of(number, "limits.nice", -20, 19)
        elif name in LIMIT_FIELDS:
            found[LIMIT_FIELDS[name]] = whole_of(number, f"limits.{name}")
        else:
            raise unknown_field("limits has", name)
    return Limits().replace(**found)


def _cpus(value: object) -> float:
    if type(value) not in (int, float) or not LEAST_CPUS <= value <= MOST_CPUS:  # type: ignore[operator]
        raise violation(f"limits.cpus must be a number from {LEAST_CPUS} to {MOST_CPUS}.")
    return float(value)  # type: ignore[arg-type]


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise violation("noNewPrivs, requireLimits and sampleMemory must be true or false.")
    return value


def _network(value: object) -> str:
    if value not in NETWORKS:
        raise violation(f"network must be one of {', '.join(NETWORKS)}.")
    return str(value)


def _capabilities(value: object) -> tuple[str, ...]:
    return strings_of(value, "dropCapabilities")


def _tier(value: object) -> str:
    if value not in TIERS:
        raise violation(f"requireTier must be one of {', '.join(TIERS)}.")
    return str(value)


def milliseconds_of(value: object) -> int:
    """A time."""
    return whole_of(value, "a time in milliseconds", 0, LONGEST_MS)


def path_of(value: object) -> str:
    """A working directory."""
    text = text_of(value, "cwd")
    check_bytes(text, "cwd")
    return text


REQUIRED = ("id", "permitId", "token", "command", "args")
OPTIONAL = {
    "cwd": ("cwd", path_of),
    "env": ("env", _env),
    "limits": ("limits", _limits),
    "graceMs": ("grace_ms", milliseconds_of),
    "killMs": ("kill_ms", milliseconds_of),
    "timeoutMs": ("timeout_ms", milliseconds_of),
    "requireTier": ("require_tier", _tier),
    "requireLimits": ("require_limits", _flag),
    "noNewPrivs": ("no_new_privs", _flag),
    "dropCapabilities": ("drop_capabilities", _capabilities),
    "network": ("network", _network),
    "sampleMemory": ("sample_memory", _flag),
}


def parse_request(line: bytes) -> Request:
    """The first line of a session. Raises ProtocolViolation, or ImpossibleRequest for strings no kernel takes."""
    return request_of(message_of(line))


def request_of(found: Mapping[str, object]) -> Request:
    """The request in a message. Raises as ``parse_request``."""
    for name in REQUIRED:
        if name not in found:
            raise violation(f"The request has no {name}.")
    for name in found:
        if name not in REQUIRED and name not in OPTIONAL:
            raise unknown_field("The request has", name)
    command = text_of(found["command"], "command")
    if not command:
        raise violation("command is empty.")
    check_bytes(command, "command")
    args = strings_of(found["args"], "args")
    for index, text in enumerate(args):
        check_bytes(text, f"args[{index}]")
    extras = {field: parse(found[name]) for name, (field, parse) in OPTIONAL.items() if name in found}
    job = Job(
        id=uuid_of(found["id"], "id"),
        permit_id=uuid_of(found["permitId"], "permitId"),
        command=command,
        args=args,
    ).replace(**extras)
    return Request(job=job, token=_token(found["token"]), spelled_id=str(found["id"]))


def parse_action(line: bytes, request: Request) -> Abort | None:
    """A later line: None for ``go``, an Abort for ``cancel``.

    Raises BadToken for a token that is not this job's, ProtocolViolation for anything else that is wrong.
    """
    return action_of(message_of(line), request)


def action_of(found: Mapping[str, object], request: Request) -> Abort | None:
    """The action in a message for the job of ``request``. Returns and raises as ``parse_action``."""
    if unknown := set(found) - {"id", "token", "action", "graceMs"}:
        raise unknown_field("A message has", min(unknown))
    action = found.get("action")
    if action not in ("go", "cancel"):
        raise violation("action must be go or cancel.")
    if uuid_of(found.get("id"), "id") != request.job.id:
        raise violation("A message names another job than this session's.")
    # Constant time in the digits: how long a refusal takes tells nothing about the token.
    if not _compare_digest(_token(found.get("token")).encode(), request.token.encode()):
        raise BadToken(
            "A message carried another token than the request's.",
            advice="Only the process that made the request knows its token.",
            state="The job is being ended; its receipt says how.",
        )
    if action == "go":
        if "graceMs" in found:
            raise violation("graceMs belongs to cancel.")
        return None
    grace_ms = milliseconds_of(found["graceMs"]) if "graceMs" in found else request.job.grace_ms
    return Abort(cause="canceled", by="host", grace_ms=grace_ms)


def refused(error: ContainError, spelled_id: str | None) -> dict[str, object]:
    """The reply for an error: nothing will run."""
    found: dict[str, object] = {
        "event": "refused",
        "id": spelled_id,
        "reason": error.reason,
        "detail": error.detail,
        "step": error.step,
        "message": error.message,
        "state": error.state,
        "advice": error.advice,
    }
    return {key: value for key, value in found.items() if value is not None or key == "id"}


def receipt_fields(receipt: Receipt) -> dict[str, object]:
    """What a reply tells of a receipt; the same words in ``run`` and ``inspect``."""
    found = encode(receipt)
    proof = found.pop("proof", None)
    name = "anchor" if isinstance(receipt.proof, Anchor) else "namespaceInit"
    return {**found, name: proof} if proof is not None else found


def reply(message: Mapping[str, object], spelled_id: str | None) -> bytes:
    """One reply of a session as a line; ``event`` and ``id`` come first."""
    head = {"event": message["event"], "id": spelled_id}
    return line(head | {key: value for key, value in message.items() if key not in head})


def reply_fields(event: str, receipt: Receipt | None, extra: Mapping[str, object]) -> dict[str, object]:
    """A reply's fields: of the receipt as it stands, and what else there is to say."""
    return {"event": event, **({} if receipt is None else receipt_fields(receipt)), **extra}


def line(message: Mapping[str, object]) -> bytes:
    """One reply as a line of ASCII."""
    return jsontext.dumps(message).encode("ascii") + b"\n"
