"""``contain status``: its published form is the schema's and the page's, and its table tells a person the same."""

from __future__ import annotations

import importlib.resources
import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from contain.budget.arbiter import Health, Hold, Ticket
from contain.budget.opening import Budget
from contain.budget.operator import Operator
from contain.budget.queue.desk import Desk
from contain.budget.registry import TicketRow
from contain.cli.desk import whole_id
from contain.cli.status import EXPLAINED, report
from contain.cli.status_table import span, table
from contain.errors import UsageError
from contain.linux.backend import LinuxBackend
from tests.budget import customer
from tests.session import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA: dict[str, Any] = json.loads(
    (importlib.resources.files("contain") / "schemas" / "status.json").read_text(encoding="ascii")
)
VALID = Draft202012Validator(SCHEMA)
SESSION = "terminal:/dev/pts/3"


def said(tmp_path: Path, waiting: int = 3) -> dict[str, Any]:
    """The status of two units with two permits, some who wait, a hold and an ill pool: from a real registry."""
    backend, operator = LinuxBackend(), Operator(str(tmp_path))
    operator.hold(
        Hold(id="deadbeef", owner="uid 0", reason="deploy", until_s=time.time() + 600, covers=("gpu",))
    )
    operator.mark("gpu", Health(reason="ECC errors"))
    plain = customer.desk(str(tmp_path))
    desk = Desk(
        plain.registry,
        plain.policy.replace(pools=(*plain.policy.pools, ("gpu", 1))),
        backend,
        plain.sample,
        lambda: (operator.read().holds, operator.read().health),
    )
    for n in range(2 + waiting):
        ticket = Ticket(id=f"{n:08x}-0000-4000-8000-000000000000", seq=0, session=SESSION, holder=f"task {n}")
        desk.enqueue(TicketRow(ticket=ticket, owner=backend.birth(), since_s=desk.now().awake_s))
    return report(
        Budget(backend, str(tmp_path), str(tmp_path), backend.judge(), desk.policy), desk, desk.tick()
    )


def test_it_is_exactly_the_published_form(tmp_path: Path) -> None:
    """Permits, tickets, holds and pools are all there, so no field of the schema goes unseen."""
    document = json.loads(json.dumps(said(tmp_path)))
    VALID.validate(document)
    assert len(document["permits"]) == 2
    assert all(document[name] for name in ("waiting", "holds", "pools"))
    assert (
        document["waiting"][0]["reasons"][0]["line"]
        == "cpu: needs 1, has 0 of 2; held by task 0 (1), task 1 (1)"
    )


@pytest.mark.parametrize(
    "where", [(), ("permits", 0), ("waiting", 0), ("waiting", 0, "reasons", 0), ("holds", 0)]
)
def test_a_field_more_or_less_is_noticed(tmp_path: Path, where: tuple[str | int, ...]) -> None:
    """The control: the schema is closed where we write."""
    text = json.dumps(said(tmp_path))
    for more in (True, False):
        document: Any = json.loads(text)
        inner = document
        for step in where:
            inner = inner[step]
        if more:
            inner["more"] = 1
        else:
            inner.popitem()
        with pytest.raises(ValidationError):
            VALID.validate(document)


def names(schema: dict[str, Any], prefix: str) -> set[str]:
    """Every field below ``prefix`` as the page spells it: ``waiting[].id``, ``pools{}.reason``."""
    if "$ref" in schema:
        schema = SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    found: set[str] = set()
    for name, inner in schema.get("properties", {}).items():
        found |= names(inner, f"{prefix}.{name}" if prefix else name)
    for one in (schema, *schema.get("anyOf", ())):
        if "items" in one:
            found |= names(one["items"], f"{prefix}[]")
        if isinstance(one.get("additionalProperties"), dict):
            found |= names(one["additionalProperties"], f"{prefix}{{}}")
    return found or {prefix}


def test_the_page_has_every_field_and_no_other() -> None:
    """docs/STATUS.md and the schema are two forms of one list."""
    page = (ROOT / "docs" / "STATUS.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    told = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    assert told == names(SCHEMA, "")
    assert names({"properties": {"new": {}}}, "permits[]") == {"permits[].new"}, "one more would be seen"


def test_the_table_tells_who_waits_and_why(tmp_path: Path) -> None:
    """An id that can be typed, place, reason, guess, the end of a hold; and no line is wider than the terminal."""
    document = said(tmp_path)
    lines = table(document, 200).splitlines()
    text = "\n".join(lines)
    assert "hold deadbeef: no new grants for gpu, another 10m: deploy (uid 0)" in text
    assert "pool gpu: ECC errors" in text
    row = next(n for n, line in enumerate(lines) if line.startswith("00000002 1 "))
    assert "~60s" in lines[row]
    assert lines[row].endswith(f"task 2 ({SESSION})")
    assert lines[row + 1].strip() == "cpu: needs 1, has 0 of 2; held by task 0 (1), task 1 (1)"
    assert "(and 1 more: contain why 00000003)" in text
    assert max(len(line) for line in table(document, 80).splitlines()) == 80


def test_a_label_moves_no_cursor(tmp_path: Path) -> None:
    """What anybody may write is not written to a terminal as it is."""
    document = said(tmp_path)
    document["permits"][0]["holder"] = "\033[2J\nfree now: everything"
    assert "?[2J?free now" in table(document, 200)
    assert "\033" not in table(document, 200)


def test_a_long_queue_is_not_asked_for_every_reason(tmp_path: Path) -> None:
    """Each costs a walk; behind the first of them it is null, and still the published form."""
    document = json.loads(json.dumps(said(tmp_path, waiting=EXPLAINED + 2)))
    VALID.validate(document)
    assert [one["reasons"] is None for one in document["waiting"]] == [False] * EXPLAINED + [True] * 2


def test_turns_come_as_permits_return(tmp_path: Path) -> None:
    """Two at a time, a minute each: the third and fourth who wait come a minute after the first two."""
    etas = [one["etaS"] for one in said(tmp_path, waiting=4)["waiting"]]
    assert [round(eta / 60) for eta in etas] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119.4, "119s"), (120, "2m"), (7199, "120m"), (7200, "2h"), (172_800, "2d"), (1e6, "12d")],
)
def test_a_span_has_few_digits(seconds: float, text: str) -> None:
    """For a column."""
    assert span(seconds) == text


def test_the_beginning_of_an_id_is_enough() -> None:
    """If it is at least four characters, and no other's."""
    ids = ["abcd1234", "abcd9999", "ffff0000", "a"]
    assert [whole_id(ids, word) for word in ("ffff", "FFFF00", "abcd12", "a", "fff", "none")] == [
        "ffff0000",
        "ffff0000",
        "abcd1234",
        "a",
        "fff",
        "none",
    ]
    with pytest.raises(UsageError):
        whole_id(ids, "abcd")
