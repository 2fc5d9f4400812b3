"""The parser of the protocol: any bytes become a message or one of our errors, and never anything else.

Pure functions and one reader; no process is started here. What hosts are told of it is docs/PROTOCOL.md.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from contain import protocol
from contain.errors import BadToken, ImpossibleRequest, ProtocolViolation
from contain.job import GRACE_MS, KILL_MS, MAX_STRING_BYTES, TIERS, Job, Limits
from contain.protocol import LineReader, Request, parse_action, parse_request
from tests.unit.messages import ID, JSON, PERMIT, TOKEN, action, asked, fields

# -- any bytes -------------------------------------------------------------------------------------------------------

NAMES = [*protocol.REQUIRED, *protocol.OPTIONAL, "action", "x-note", "unknown"]


@st.composite
def almost_requests(draw: st.DrawFn) -> bytes:
    """A good request in which some fields are replaced, dropped or added, and some bytes flipped."""
    message = fields()
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=3)):
        message[name] = draw(JSON)
    for name in draw(st.lists(st.sampled_from(sorted(message)), max_size=1)):
        message.pop(name, None)
    data = bytearray(json.dumps(message).encode())
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(data)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200) | almost_requests())
@example(b"")
@example(b"\xff\xfe{}")
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b"9" * 5000)
@example(b"1e400")
@example(b"NaN")
def test_any_bytes_are_a_request_or_one_of_our_errors(data: bytes) -> None:
    """A parser that raises anything else would end a session in a traceback."""
    try:
        found = parse_request(data)
    except (ProtocolViolation, ImpossibleRequest) as error:
        protocol.line(protocol.refused(error, None))  # whatever the bytes were, it can be said
    else:
        assert isinstance(found, Request)
        assert found.job.command
        assert found.job.id == found.spelled_id.lower()


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200) | almost_requests())
@example(b"")
@example(b"null")
def test_any_bytes_are_an_action_or_one_of_our_errors(data: bytes) -> None:
    """The same for every later line; and nothing but an exact go is a go."""
    try:
        found = parse_action(data, asked())
    except (ProtocolViolation, BadToken):
        return
    message = json.loads(data.decode("utf-8", "surrogateescape"))
    assert (message["id"], message["token"]) == (ID, TOKEN)
    assert (found is None) == (message["action"] == "go")


# -- the reader ------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=6), st.data())
def test_lines_do_not_depend_on_how_they_arrive(lines: list[bytes], data: st.DataObject) -> None:
    """Cut anywhere, the same bytes are the same lines."""
    stream = b"".join(line + b"\n" for line in lines) + b"rest"
    reader, found, at = LineReader(), [], 0
    while at < len(stream):
        to = data.draw(st.integers(at + 1, len(stream)))
        found += reader.feed(stream[at:to])
        at = to
    assert found == lines
    assert reader.unfinished


@pytest.mark.parametrize("piece", [1, 7, 16, 1000])
def test_limits_hold_to_the_byte(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line may have exactly its limit; one byte more is refused, whole or not. First line and others differ."""
    monkeypatch.setattr(protocol, "REQUEST_LINE_BYTES", 40)
    monkeypatch.setattr(protocol, "LINE_BYTES", 10)

    def feed(stream: bytes) -> list[bytes]:
        reader, found = LineReader(), []
        for at in range(0, len(stream), piece):
            found += reader.feed(stream[at : at + piece])
        return found

    first, later = b"r" * 40, b"a" * 10
    assert feed(first + b"\n" + later + b"\n" + later + b"\n") == [first, later, later]
    for stream in (
        b"r" * 41,
        b"r" * 41 + b"\n",
        first + b"\n" + b"a" * 11,
        first + b"\n" + b"a" * 11 + b"\n",
    ):
        with pytest.raises(ProtocolViolation):
            feed(stream)


def test_the_real_limits_are_16_mib_and_64_kib() -> None:
    """Once with the real constants, in the pieces in which the wrapper reads."""
    first, later, piece = b"r" * (16 << 20), b"a" * (64 << 10), 65536
    reader, found = LineReader(), []
    stream = first + b"\n" + later + b"\n"
    for at in range(0, len(stream), piece):
        found += reader.feed(stream[at : at + piece])
    assert [len(line) for line in found] == [16 << 20, 64 << 10]
    assert not reader.unfinished
    with pytest.raises(ProtocolViolation, match="65536"):
        reader.feed(later + b"a")
    with pytest.raises(ProtocolViolation, match="16777216"):
        LineReader().feed(first + b"r")


# -- fields ----------------------------------------------------------------------------------------------------------


def test_defaults_are_the_documented_ones() -> None:
    """A request without extras."""
    job = asked().job
    assert job == Job(id=ID, permit_id=PERMIT, command="true", args=())
    assert (job.grace_ms, job.kill_ms, job.timeout_ms) == (GRACE_MS, KILL_MS, None) == (10_000, 5_000, None)
    assert (job.cwd, job.env, job.limits, job.require_tier) == (None, None, Limits(), None)


def test_every_field_arrives() -> None:
    """Each extra ends in the field of the job that bears its name."""
    limits = {name: number for number, name in enumerate(protocol.LIMIT_FIELDS, start=10)}
    job = asked(
        args=["a", ""],
        cwd="/tmp",
        env={"A": "b", "x-c": ""},
        limits={**limits, "nice": -3},
        graceMs=1,
        killMs=2,
        timeoutMs=3,
        requireTier="cgroup",
    ).job
    assert (job.args, job.cwd, job.env) == (("a", ""), "/tmp", {"A": "b", "x-c": ""})
    assert (job.grace_ms, job.kill_ms, job.timeout_ms, job.require_tier) == (1, 2, 3, "cgroup")
    assert job.limits.nice == -3
    for name, field in protocol.LIMIT_FIELDS.items():
        assert getattr(job.limits, field) == limits[name]


ODD: dict[str, list[object]] = {
    "id": [
        None,
        1,
        "",
        ID[:-1],
        ID + "0",
        ID.replace("-", ""),
        f"{{{ID}}}",
        f"urn:uuid:{ID}",
        ID.replace("a", "\u0430"),
    ],
    "permitId": [None, 1, "", ID[:-1], [ID]],
    "token": [None, 64, "", TOKEN[1:], TOKEN + "0", "g" * 64, "\uff10" * 64, TOKEN + "\n"],
    "command": [None, 1, "", ["true"]],
    "args": [None, "true", {}, [1], [None], [["a"]], {"0": "a"}],
    "cwd": [None, 1, ["/"]],
    "env": [None, [], "A=B", {"A": 1}, {"A": None}, {"": "x"}, {"A=B": "x"}],
    "limits": [
        *(None, [], {"files": 1}, {"x-note": 1}, {"nice": -21}, {"nice": 20}),
        *({"openFiles": number} for number in (True, -1, 2**63, 1.0, "9", None)),
    ],
    "graceMs": [None, True, -1, 2**31, 1.0, 1e3, "5", [5], 10**400],
    "killMs": [None, False, -1, 2**31, 0.5, "5"],
    "timeoutMs": [None, True, -1, 2**31, 1.5, "5"],
    "requireTier": [None, 1, "", "Namespace", "vm", [], {}],
    "shell": [None, True],
    "X-note": [1],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in ODD.items() for value in values]
)
def test_a_wrong_value_is_a_violation(name: str, value: object) -> None:
    """No type is guessed, no case is folded, true is no number, and an unknown field is not read over."""
    with pytest.raises(ProtocolViolation) as caught:
        asked(**{name: value})
    assert caught.value.exit_code == 65


@pytest.mark.parametrize("name", protocol.REQUIRED)
def test_a_missing_field_is_a_violation(name: str) -> None:
    """Each of the five is asked for by name."""
    less = {key: value for key, value in fields().items() if key != name}
    with pytest.raises(ProtocolViolation, match=name):
        parse_request(json.dumps(less).encode())


@pytest.mark.parametrize("tier", TIERS)
def test_every_tier_can_be_required(tier: str) -> None:
    """Whether it can be had is not the parser's question."""
    assert asked(requireTier=tier).job.require_tier == tier


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 1, "id": 1}',
        json.dumps(fields())[:-1] + ', "args": []}',
        json.dumps(fields())[:-1] + ', "env": {"A": "1", "A": "1"}}',
        json.dumps(fields())[:-1] + ', "x-a": 1, "x-a": 1}',
        json.dumps(fields())[:-1] + ', "x-a": {"b": [{"c": 1, "c": 2}]}}',
        json.dumps(fields())[:-1] + ', "\\u0061rgs": []}',
    ],
)
def test_a_key_that_stands_twice_is_a_violation(text: str) -> None:
    """At any depth, however it is spelled: two readers of such a line could both be right."""
    with pytest.raises(ProtocolViolation, match="twice"):
        parse_request(text.encode())


@pytest.mark.parametrize(
    "value", ["[" * 500_000, "9" * 5000, "1e400", "NaN", "-Infinity", "01", "'a'", '"\x01"']
)
def test_what_is_not_json_is_a_violation_anywhere(value: str) -> None:
    """Also in a field of the host's own: too deep, too many digits, no number, a raw control character."""
    with pytest.raises(ProtocolViolation):
        parse_request(f'{json.dumps(fields())[:-1]}, "x-a": {value}}}'.encode())


def test_fields_of_the_host_are_ignored_whatever_they_hold() -> None:
    """`x-`, at the top of any message. Deeper ones are not the host's: a limit of that name is refused (above)."""
    assert asked(**{"x-a": {"id": [1]}, "x-": None, "x-args": 5}).job == asked().job
    assert parse_action(action(**{"x-a": 1}), asked()) is None


# -- strings that execve(2) takes ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.binary(max_size=40).filter(lambda data: b"\0" not in data))
def test_any_bytes_but_nul_can_be_an_argument(data: bytes) -> None:
    """Escaped as U+DC80 to U+DCFF, or pasted raw where JSON allows it: the command gets the same bytes."""
    text = data.decode("utf-8", "surrogateescape")
    escaped = json.dumps(fields(args=[text])).encode()
    raw = json.dumps(fields(args=[text]), ensure_ascii=False).encode("utf-8", "surrogateescape")
    for line in (escaped, raw):
        (found,) = parse_request(line).job.args
        assert found.encode("utf-8", "surrogateescape") == data


UNSPEAKABLE = ["a\0b", *map(chr, (0xD800, 0xDBFF, 0xDC00, 0xDC7F, 0xDD00))]


@pytest.mark.parametrize("place", ["command", "args", "cwd", "env"])
@pytest.mark.parametrize("text", UNSPEAKABLE)
def test_strings_that_no_kernel_takes_are_impossible(place: str, text: str) -> None:
    """NUL, and surrogates that stand for no byte, by their own reason: the request is well-formed."""
    value: Any = {"args": [text], "env": {"A": text}}.get(place, text)
    with pytest.raises(ImpossibleRequest) as caught:
        asked(**{place: value})
    assert caught.value.exit_code == 67


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\udc80"])
def test_one_string_has_the_kernels_limit(letter: str) -> None:
    """131071 bytes (not characters) go in one string, with the name and the equals sign of a variable."""
    wide = len(letter.encode("utf-8", "surrogateescape"))
    most = "b" * (MAX_STRING_BYTES % wide) + letter * (MAX_STRING_BYTES // wide)
    assert asked(args=[most]).job.args == (most,)
    asked(env={"A": most[2:] if wide == 1 else "b" + most[2:]})
    for extra in ({"args": [most + "b"]}, {"env": {"A": most}}, {"command": most + "b"}):
        with pytest.raises(ImpossibleRequest):
            asked(**extra)
