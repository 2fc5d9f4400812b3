"""Facts to JSON and back: what is read is whole and certain, or it is unreadable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receipts import (
    CAUSES,
    STATES,
    Anchor,
    Blocker,
    Fact,
    Held,
    Leftovers,
    LimitsInForce,
    NamespaceInit,
    Outcome,
    Receipt,
    Unreadable,
    Usage,
    decode,
    dumps,
    encode,
    loads,
)
from receipts.codec import _columns
from tests.receipts.lives import PROOF, exited, held, prepared, released

GOLDEN = Path(__file__).with_name("golden")
FULL = held().replace(
    leftovers=Leftovers(count=2, names=("sh", "b\udcffd"), signal=None),
    held=Held(
        reason="not drained",
        owner="operator",
        advice="contain inspect --finish",
        blockers=(
            Blocker(
                pid=5,
                name="dd",
                state="D",
                wchan="folio_wait",
                tracer=None,
                freezer="/a b",
                why="waits for a disk",
            ),
        ),
    ),
    proof=PROOF.replace(time_namespace=4026531834, pidfs_id=77, pidfs_handle="00ff"),
    other={"seat": {"x": [1, None]}},
)
LIMITED = exited().replace(
    usage=Usage(
        wall_us=100,
        user_us=20,
        system_us=30,
        max_rss_bytes=4096,
        processes=2,
        read_bytes=512,
        written_bytes=0,
        scope="waited-for",
        peak_memory_bytes=8192,
        memory_source="cgroup",
    ),
    limits=LimitsInForce(memory_bytes="cgroup-v2", pids="not-applied: the cgroup /a may not be divided"),
    cgroups=("/sys/fs/cgroup/contain-00000000-0000-4000-8000-000000000001",),
)
ANCHOR = Anchor(
    pid=812,
    uid=501,
    boot_id="6F0DCE8B-7C1E-4D0E-9E0C-1C1B5B0E2A11",
    unique_id=90210,
    start_us=1_767_225_600_250_000,
    scope="session",
    signal="exact",
    witness="PROC_PIDUNIQIDENTIFIERINFO",
)
KNOWN = {
    "v1-prepared": prepared(),
    "v1-running": prepared().replace(state="running"),
    "v1-exited": exited(),
    "v1-released": released(),
    "v1-held": FULL,
    "v1-limited": LIMITED,
    "v1-anchored": prepared().replace(tier="session", proof=ANCHOR),
    "v1-launchd": prepared().replace(
        tier="launchd",
        proof=ANCHOR.replace(coalition=512, service="gui/501/contain.00000000-0000-4000-8000-000000000001"),
    ),
}


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_golden_receipts_are_read_for_ever(name: str) -> None:
    """A receipt once written is read as what it was, and written back alike. No such file is ever edited."""
    data = (GOLDEN / f"{name}.json").read_bytes()
    assert loads(data) == KNOWN[name]
    assert dumps(loads(data)) == data


def test_every_golden_receipt_is_tested() -> None:
    """No golden file lies about unread."""
    assert {path.stem for path in GOLDEN.iterdir()} == set(KNOWN)


TEXT = dumps(released()).decode()
MALFORMED: dict[str, str | bytes] = {
    "empty": "",
    "zeroed": "\0" * 512,
    "partly zeroed": TEXT[:50] + "\0" * 50 + TEXT[100:],
    "torn": TEXT[:-30],
    "not utf-8": b'{"id":"\xff"}',
    "utf-8 surrogate": b'{"id":"\xed\xb3\xbf"}',
    "byte order mark": b"\xef\xbb\xbf" + TEXT.encode(),
    "two documents": TEXT + TEXT,
    "list": "[]",
    "number": "1",
    "null": "null",
    "duplicate key": TEXT.replace('"tier":', '"state":"held","tier":'),
    "duplicate key inside": TEXT.replace('"code":3', '"code":3,"code":0'),
    "duplicate key in an unknown one": TEXT.replace('"version"', '"new":[{"a":1,"a":1}],"version"'),
    "missing id": TEXT.replace('"id":', '"ID":'),
    "missing field inside": TEXT.replace('"bootId":', '"bootID":'),
    "missing version": TEXT.replace('"version"', '"Version"'),
    "newer version": TEXT.replace('"version":1', '"version":2'),
    "version 0": TEXT.replace('"version":1', '"version":0'),
    "version true": TEXT.replace('"version":1', '"version":true'),
    "unknown state": TEXT.replace('"state":"released"', '"state":"done"'),
    "bool for int": TEXT.replace('"wrapperPid":4710', '"wrapperPid":true'),
    "int for bool": TEXT.replace('"empty":true', '"empty":1'),
    "float for int": TEXT.replace('"wrapperPid":4710', '"wrapperPid":4710.0'),
    "text for int": TEXT.replace('"wrapperPid":4710', '"wrapperPid":"4710"'),
    "bool for float": TEXT.replace('"createdAt":1000.5', '"createdAt":true'),
    "null for text": TEXT.replace('"tier":"namespace"', '"tier":null'),
    "null for bool": TEXT.replace('"core":false', '"core":null'),
    "list for object": TEXT.replace('"outcome":{', '"outcome":[{').replace('},"usage"', '}],"usage"'),
    "NaN": TEXT.replace("1000.5", "NaN"),
    "Infinity": TEXT.replace("1000.5", "-Infinity"),
    "too large": TEXT.replace("1000.5", "1e999"),
    "an int too large for a float": TEXT.replace("1000.5", "1" + "0" * 400),
    "an int without end": TEXT.replace("4710", "1" * 5000),
    "too deep": "[" * 200000,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_is_unreadable(name: str) -> None:
    """Each kind of damage is said, in one line, and never read as something else."""
    data = MALFORMED[name]
    assert data != TEXT, "the case has lost its damage"
    with pytest.raises(Unreadable) as caught:
        loads(data if isinstance(data, bytes) else data.encode())
    assert "\n" not in str(caught.value)


def test_the_whole_text_is_readable() -> None:
    """Negative control of the table: without damage the same text is read."""
    assert loads(TEXT.encode()) == released()


def test_a_newer_version_is_named() -> None:
    """Whoever meets a newer format learns that, and not that the file is damaged."""
    with pytest.raises(Unreadable, match="written by a newer version"):
        loads(TEXT.replace('"version":1', '"version":2').encode())


def test_where_it_is_wrong_is_said() -> None:
    """The path to a wrong value is in the reason."""
    text = dumps(FULL).replace(b'"pid":5', b'"pid":"5"')
    with pytest.raises(Unreadable, match=r"held\.blockers\[0\]\.pid: a whole number is due"):
        loads(text)


def test_empty_unknown_is_null() -> None:
    """None is left out, but for `empty`: null says that nobody knows."""
    document = encode(prepared())
    assert document["empty"] is None
    assert "outcome" not in document
    assert "endedAt" not in document


def test_every_annotation_has_a_reader() -> None:
    """A field of a new type fails here and not in the field."""
    for fact in (NamespaceInit, Outcome, Usage, Leftovers, Blocker, Held, Receipt):
        assert {name for name, *_ in _columns(fact)} | {"other"} == set(fact._types)


def test_what_json_cannot_hold_is_refused() -> None:
    """NaN is refused when it is written, not found when it is read."""
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps(released().replace(created_at=float("nan")))


# Lone surrogates as os.fsdecode makes them; others cannot come out of a file name.
escapes = st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)
texts = st.text(st.characters(codec="utf-8") | escapes)
numbers = st.integers(0, 2**64)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
unknown = st.dictionaries(texts.map("x-{}".format), json_values, max_size=2)


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Return None or a value."""
    return st.none() | strategy


inits = st.builds(
    NamespaceInit,
    pid=numbers,
    uid=numbers,
    boot_id=texts,
    start_ticks=numbers,
    namespace=numbers,
    observer_namespace=numbers,
    pidfs_id=maybe(numbers),
    pidfs_handle=maybe(texts),
    witness=texts,
    proc=texts,
    other=unknown,
)
outcomes = st.builds(
    Outcome, cause=st.sampled_from(CAUSES) | texts, code=maybe(numbers), core=st.booleans(), other=unknown
)
blockers = st.builds(
    Blocker,
    pid=numbers,
    name=texts,
    state=texts,
    wchan=maybe(texts),
    tracer=maybe(numbers),
    freezer=maybe(texts),
    why=texts,
)
helds = st.builds(
    Held,
    reason=texts,
    owner=texts,
    advice=texts,
    blockers=st.lists(blockers, max_size=2).map(tuple),
    other=unknown,
)
receipts = st.builds(
    Receipt,
    id=texts,
    permit_id=texts,
    state=st.sampled_from(STATES),
    tier=texts,
    command=texts,
    wrapper_pid=numbers,
    created_at=st.floats(allow_nan=False, allow_infinity=False),
    proof=maybe(inits),
    outcome=maybe(outcomes),
    held=maybe(helds),
    empty=maybe(st.booleans()),
    ran=maybe(st.booleans()),
    other=unknown,
)


# No database: the tests also run as a user who may not write here, and a warning is an error.
@settings(max_examples=150, deadline=None, database=None)
@given(receipts)
def test_round_trip(receipt: Receipt) -> None:
    """Any receipt comes back equal, and its bytes are ASCII on one line."""
    data = dumps(receipt)
    assert loads(data) == receipt
    assert data.isascii()
    assert data.count(b"\n") == 1
    assert decode(Receipt, json.loads(data)) == receipt


@settings(max_examples=150, deadline=None, database=None)
@given(receipts, st.data())
def test_a_cut_or_a_hole_is_seen(receipt: Receipt, data: st.DataObject) -> None:
    """A cut or a hole of zeros anywhere, garbage at the end: unreadable, or equal but for blanks."""
    whole = dumps(receipt)
    at = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(1, 64))
    garbage = data.draw(st.binary(min_size=1, max_size=20))
    for damaged in (whole[:at], whole[:at] + b"\0" * length + whole[at + length :], whole + garbage):
        try:
            found = loads(damaged)
        except Unreadable:
            continue
        assert found == receipt
        assert damaged.strip() == whole.strip()


@settings(max_examples=300, deadline=None, database=None)
@given(st.binary(max_size=300), st.integers(0, 300))
def test_garbage_raises_nothing_else(garbage: bytes, at: int) -> None:
    """Whatever lies under a receipt's name, the reader says Unreadable and no other error."""
    whole = dumps(released())
    for damaged in (garbage, whole[:at] + garbage + whole[at + len(garbage) :]):
        try:
            found: Fact = loads(damaged)
        except Unreadable:
            continue
        assert isinstance(found, Receipt)
