"""The parser of later lines, ids, tokens, and the words of replies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contain import protocol
from contain.errors import BadToken, ContainError, ProtocolViolation
from contain.job import Abort
from contain.protocol import parse_action, parse_request
from tests.unit.messages import ID, JSON, PERMIT, TOKEN, action, asked, fields

# -- ids and tokens --------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.uuids(), st.data())
def test_an_id_may_be_spelled_in_either_case(number: object, data: st.DataObject) -> None:
    """It is echoed as spelled, and one job whatever the spelling."""
    text = str(number)
    cases = data.draw(st.lists(st.booleans(), min_size=len(text), max_size=len(text)))
    spelled = "".join(c.upper() if up else c for c, up in zip(text, cases, strict=True))
    found = parse_request(json.dumps(fields(id=spelled, permitId=spelled)).encode())
    assert found.spelled_id == spelled
    assert (found.job.id, found.job.permit_id) == (text, text)
    assert parse_action(action(id=text.upper()), found) is None


def test_an_action_for_another_job_is_a_violation() -> None:
    """Its token is not looked at."""
    with pytest.raises(ProtocolViolation, match="another job"):
        parse_action(action(id=PERMIT), asked())


@pytest.mark.parametrize("at", range(64))
def test_every_digit_of_the_token_counts(at: int) -> None:
    """A token is compared whole: one digit is another token, and so is another case."""
    wrong = TOKEN[:at] + ("1" if TOKEN[at] != "1" else "2") + TOKEN[at + 1 :]
    upper = TOKEN[:at] + TOKEN[at].upper() + TOKEN[at + 1 :]
    for token in {wrong, upper} - {TOKEN}:
        with pytest.raises(BadToken) as caught:
            parse_action(action(token=token), asked())
        assert caught.value.exit_code == 66


@pytest.mark.parametrize("token", [None, "", TOKEN[:-1], TOKEN + "0", [TOKEN]])
def test_a_token_that_is_none_is_a_violation(token: object) -> None:
    """Not a wrong token: no token."""
    with pytest.raises(ProtocolViolation):
        parse_action(action(token=token), asked())


def test_go_and_cancel() -> None:
    """None lets it go; an Abort says by whom and with which grace: the line's own, else the request's."""
    request = asked(graceMs=77)
    assert parse_action(action(), request) is None
    assert parse_action(action("cancel"), request) == Abort(cause="canceled", by="host", grace_ms=77)
    assert parse_action(action("cancel", graceMs=0), request) == Abort(
        cause="canceled", by="host", grace_ms=0
    )


@pytest.mark.parametrize(
    "line",
    [
        action("Go"),
        action("stop"),
        action(None),
        action(["go"]),
        action("go", graceMs=5),
        action("cancel", graceMs=True),
        action("cancel", graceMs=-1),
        action("go", permitId=PERMIT),
        json.dumps({"id": ID, "token": TOKEN}).encode(),
        json.dumps({"token": TOKEN, "action": "go"}).encode(),
        json.dumps({"id": ID, "action": "go"}).encode(),
        json.dumps(fields()).encode(),
        action()[:-1] + b', "action": "go"}',
        action() + action(),
        b"",
    ],
)
def test_a_wrong_action_is_a_violation(line: bytes) -> None:
    """Nothing that is nearly a go is a go."""
    with pytest.raises(ProtocolViolation):
        parse_action(line, asked())


# -- replies ---------------------------------------------------------------------------------------------------------


def test_secrets_are_not_in_a_repr() -> None:
    """What a traceback or a log could show of a request holds no token, argument or environment."""
    shown = repr(asked(args=["secret-argument"], env={"A": "secret-value"}))
    assert "secret" not in shown
    assert TOKEN not in shown


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_a_reply_is_one_line_of_ascii(message: dict[str, object]) -> None:
    """Whatever it tells, no byte of it is a line end but the last."""
    data = protocol.line(message)
    assert data.endswith(b"\n")
    assert data.isascii()
    assert data.count(b"\n") == 1
    assert json.loads(data) == message


@pytest.mark.parametrize("kind", ContainError.__subclasses__())
def test_a_refusal_says_what_the_error_says(kind: type[ContainError]) -> None:
    """Reason, sentences and the narrowing words; what is not known is left out, but for the id."""
    error = kind("What.", advice="Do.", step="clone", detail="why")
    assert protocol.refused(error, "ID") == {
        "event": "refused",
        "id": "ID",
        "reason": kind.reason,
        "detail": "why",
        "step": "clone",
        "message": "What.",
        "state": error.state,
        "advice": "Do.",
    }
    bare = protocol.refused(kind("What.", advice="Do."), None)
    assert bare["id"] is None
    assert not {"step", "detail"} & set(bare)
