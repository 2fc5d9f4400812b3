"""Sessions of `contain run` that a host should not hold: mutants of good ones, each from a seed, and what they may do.

A mutant is a plan: what is written, how it is cut, what is waited for, and how it ends. ``may_run`` is an oracle of its
own over the bytes that were written; it does not use the product's parser.
"""

from __future__ import annotations

import json
import random
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MADE = "made"
QUICK, SLOW = "t", "w"
"""Names of two commands on the lane's PATH: touch, and one that makes the file too and then lives on."""

ACTION_BYTES = 65536


class Step(NamedTuple):
    """One thing that the host does: send bytes, hear `replies`, term, deaf (closes its end of the replies), eof."""

    kind: str
    data: bytes = b""
    replies: int = 0


class Plan(NamedTuple):
    """A session. ``clean``: nothing is wrong with it, and it must end as a good job."""

    seed: int
    name: str
    steps: tuple[Step, ...]
    clean: bool = False
    stdout: str = "pipe"

    def stream(self) -> bytes:
        """Everything that is written."""
        return b"".join(step.data for step in self.steps)

    def patient(self) -> bool:
        """The host keeps its end open until the wrapper ends: what it must not run would have the time to."""
        return self.clean or (self.seed % 2 == 1 and ends_itself(self.stream()))


class Words:
    """The lines of one good session."""

    def __init__(self, rng: random.Random, command: str = QUICK) -> None:
        """Ids and token come from the seed."""
        self.id, self.permit = (str(uuid.UUID(int=rng.getrandbits(128), version=4)) for _ in range(2))
        self.token = f"{rng.getrandbits(256):064x}"
        extras: dict[str, object] = {
            "x-note": [1, {"a": None}],
            "graceMs": 2000,
            "killMs": 500,
            "timeoutMs": 50_000,
            "limits": {},
        }
        chosen = {name: extras[name] for name in rng.sample(sorted(extras), rng.randint(0, 3))}
        spelled = self.id.upper() if rng.random() < 0.2 else self.id
        self.request = self.line(
            id=spelled,
            permitId=self.permit,
            token=self.token,
            command=command,
            args=[MADE],
            **chosen,
        )
        self.go = self.action("go")

    def action(self, word: str, **fields: object) -> bytes:
        """A later line."""
        return self.line(**{"id": self.id, "token": self.token, "action": word, **fields})

    @staticmethod
    def line(**fields: object) -> bytes:
        """One message."""
        return json.dumps(fields).encode() + b"\n"


def send(data: bytes) -> Step:
    """For short."""
    return Step("send", data)


EOF, TERM, DEAF = Step("eof"), Step("term"), Step("deaf")


def hear(replies: int) -> Step:
    """At least so many replies, or their end. Only where so many are sure to come."""
    return Step("hear", replies=replies)


# -- the oracle ------------------------------------------------------------------------------------------------------


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _no_number(text: str) -> None:
    raise ValueError(text)


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(
            line.decode("utf-8", "surrogateescape"), object_pairs_hook=_once, parse_constant=_no_number
        )
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def may_run(stream: bytes) -> bool:
    """Whether anything may be executed: the second complete line is an exact go for what the first one asked."""
    lines = stream.split(b"\n")[:-1]
    if len(lines) < 2 or len(lines[1]) > ACTION_BYTES:
        return False
    request, second = _object(lines[0]), _object(lines[1])
    asked = {key: value for key, value in second.items() if not key.startswith("x-")}
    return (
        set(asked) == {"id", "token", "action"}
        and asked["action"] == "go"
        and isinstance(request.get("token"), str)
        and asked["token"] == request["token"]
        and isinstance(request.get("id"), str)
        and isinstance(asked["id"], str)
        and asked["id"].lower() == request["id"].lower()
    )


def ends_itself(stream: bytes) -> bool:
    """Whether the wrapper must end without the end of its input: two lines, and they are no request and its go."""
    return stream.count(b"\n") >= 2 and not may_run(stream)


# -- mutants ---------------------------------------------------------------------------------------------------------


def clean(rng: random.Random) -> list[Step]:
    """A good session."""
    words = Words(rng)
    return [send(words.request), hear(1), send(words.go)]


def clean_byte_by_byte(rng: random.Random) -> list[Step]:
    """The same, one byte a write."""
    words = Words(rng)
    cut = [send(bytes([byte])) for byte in words.request + words.go]
    return cut if rng.random() < 0.5 else [*cut[: len(words.request)], hear(1), *cut[len(words.request) :]]


def clean_twice_go(rng: random.Random) -> list[Step]:
    """A second go, and more of them, are ignored."""
    words = Words(rng)
    return [send(words.request), hear(1), send(words.go * rng.randint(2, 5))]


def flipped(rng: random.Random) -> list[Step]:
    """Some bits are other ones."""
    words = Words(rng)
    data = bytearray(words.request + words.go)
    for at in rng.sample(range(len(data)), rng.randint(1, 3)):
        data[at] ^= 1 << rng.randrange(8)
    return cut_anywhere(rng, bytes(data))


def truncated(rng: random.Random) -> list[Step]:
    """The host dies in the middle of a word."""
    words = Words(rng, rng.choice((QUICK, SLOW)))
    data = words.request + words.go
    return [*cut_anywhere(rng, data[: rng.randrange(len(data))]), EOF]


def reordered(rng: random.Random) -> list[Step]:
    """Lines twice, missing, or in another order."""
    words = Words(rng)
    pool = [words.request, words.go, words.action("cancel"), words.action("cancel", graceMs=0)]
    return [send(line) for line in rng.choices(pool, k=rng.randint(1, 5))]


GARBAGE = (
    b"\n",
    b"{}\n",
    b"null\n",
    b"[[[[\n",
    b"\0\n",
    b"\xff\xfe\n",
    b'"go"\n',
    b"{" * 5000 + b"\n",
    b"\r\n",
)


def garbage(rng: random.Random) -> list[Step]:
    """A line that is none, somewhere."""
    words = Words(rng, rng.choice((QUICK, SLOW)))
    noise = rng.randbytes(rng.randint(1, 60)).replace(b"\n", b" ") + b"\n"
    lines = [words.request, words.go]
    lines.insert(rng.randint(0, 2), rng.choice([*GARBAGE, noise]))
    return with_hearing(rng, lines)


def nul(rng: random.Random) -> list[Step]:
    """NULs between or instead of bytes."""
    words = Words(rng)
    data = bytearray(words.request + words.go)
    at = rng.randrange(len(data))
    data[at : at + rng.randint(0, 1)] = b"\0" * rng.randint(1, 3)
    return cut_anywhere(rng, bytes(data))


def wrong_token(rng: random.Random) -> list[Step]:
    """A go with nearly the token."""
    words = Words(rng, rng.choice((QUICK, SLOW)))
    at = rng.randrange(64)
    digit = rng.choice("0123456789abcdef".replace(words.token[at], ""))
    other = words.token[:at] + digit + words.token[at + 1 :]
    token = rng.choice(
        [other, words.token.upper(), words.token[:-1], words.token + "0", "", Words(rng).token]
    )
    wrong = words.action("go", token=token)
    return with_hearing(rng, rng.choice([[words.request, wrong], [words.request, wrong, words.go]]))


ODD_FIELDS: tuple[dict[str, object], ...] = (
    {"graceMs": 5},
    {"note": 1},
    {"action": "GO"},
    {"action": ["go"]},
    {"action": True},
    {"id": None},
    {"token": None},
    {"x-note": float("nan")},
)


def wrong_field(rng: random.Random) -> list[Step]:
    """A go with a field too many, of another type, or for another job."""
    words = Words(rng)
    odd: dict[str, object] = rng.choice([*ODD_FIELDS, {"id": words.permit}])
    wrong = words.line(**{"id": words.id, "token": words.token, "action": "go", **odd})
    return with_hearing(rng, [words.request, wrong, words.go])


def long_line(rng: random.Random) -> list[Step]:
    """An action of 64 KiB and some more, or just not."""
    words = Words(rng)
    room = ACTION_BYTES - len(words.go) + 1  # the line feed is not counted
    padded = b" " * (room + rng.choice([-1, 0, 1, 2, 70_000])) + words.go
    return with_hearing(rng, [words.request, padded])


def huge_request(rng: random.Random) -> list[Step]:
    """A request of 16 MiB and some more, or just not."""
    words = Words(rng)
    room = (16 << 20) - len(words.request) + 1
    padding = b" " * (room + rng.choice([0, 1, 5_000_000]))
    return [send(padding + words.request), hear(1), send(words.go)]


def noise_only(rng: random.Random) -> list[Step]:
    """Bytes."""
    return [send(rng.randbytes(rng.randint(0, 3000))), EOF]


def deaf(rng: random.Random) -> list[Step]:
    """The host stops reading for good."""
    words = Words(rng, rng.choice((QUICK, SLOW)))
    steps = [send(words.request), hear(1), send(words.go), send(words.go)]
    at = rng.randint(0, len(steps))
    return [*steps[:at], DEAF, *(step for step in steps[at:] if step.kind != "hear")]


def termed(rng: random.Random) -> list[Step]:
    """SIGTERM to the wrapper at some time."""
    words = Words(rng, rng.choice((QUICK, SLOW)))
    steps = [send(words.request), hear(1), send(words.go), hear(2)][: rng.randint(0, 4)]
    return [*steps, TERM] if rng.random() < 0.8 else [*steps, TERM, send(words.go), TERM]


def canceled(rng: random.Random) -> list[Step]:
    """Before, with or after go; with what is no grace, too."""
    words = Words(rng, rng.choice((QUICK, SLOW)))
    grace: dict[str, object] = rng.choice(
        [{}, {"graceMs": 0}, {"graceMs": 50}, {"graceMs": -1}, {"graceMs": True}]
    )
    cancel = words.action("cancel", **grace)
    return with_hearing(
        rng, rng.choice([[words.request, cancel], [words.request, words.go, cancel, words.go]])
    )


def long_lived(rng: random.Random) -> list[Step]:
    """A command that lives, and a host that goes, or misbehaves, when it runs."""
    words = Words(rng, SLOW)
    wrong = words.action("go", token="0" * 64)
    end = rng.choice([EOF, TERM, send(b"?\n"), send(words.go + b"{}\n"), send(wrong)])
    return [send(words.request), hear(1), send(words.go), hear(2), end]


def again(rng: random.Random) -> list[Step]:
    """An id that every mutant of this kind uses."""
    words = Words(random.Random(0))  # noqa: S311 - always the same
    return with_hearing(rng, [words.request, words.go])


def with_hearing(rng: random.Random, lines: list[bytes]) -> list[Step]:
    """Each line a write; with or without waiting for the answer to the first, which is sure to come."""
    first, *later = map(send, lines)
    return [first, hear(1), *later] if rng.random() < 0.5 else [first, *later]


def cut_anywhere(rng: random.Random, data: bytes) -> list[Step]:
    """The bytes in up to four writes."""
    cuts = sorted(rng.randint(0, len(data)) for _ in range(rng.randint(0, 3)))
    return [send(data[a:b]) for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


KINDS: tuple[tuple[int, Callable[[random.Random], list[Step]]], ...] = (
    (60, clean),
    (20, clean_byte_by_byte),
    (20, clean_twice_go),
    (200, flipped),
    (80, truncated),
    (80, reordered),
    (80, garbage),
    (60, nul),
    (80, wrong_token),
    (50, wrong_field),
    (20, long_line),
    (3, huge_request),
    (30, noise_only),
    (40, deaf),
    (60, termed),
    (60, canceled),
    (50, long_lived),
    (10, again),
)


def mutant(seed: int) -> Plan:
    """The plan of a seed."""
    rng = random.Random(seed)  # noqa: S311 - repeatable, not secret
    make = rng.choices([kind for _, kind in KINDS], [weight for weight, _ in KINDS])[0]
    steps = make(rng)
    is_clean = make.__name__.startswith("clean")
    # No command and no argument may name a place outside the session's own directory, whatever was flipped.
    steps = [step._replace(data=step.data.replace(b"/", b"_")) for step in steps]
    stdout = "pipe"
    if not is_clean and DEAF not in steps and rng.random() < 0.03:
        stdout = "closed"
        steps = [step for step in steps if step.kind != "hear"]
    return Plan(seed, make.__name__, tuple(steps), is_clean, stdout)
