"""Messages of a host, for tests of the parser."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from contain.protocol import Request, parse_request

ID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
PERMIT = "00000000-0000-4000-8000-000000000001"
TOKEN = "a0" * 32


def fields(**extra: object) -> dict[str, object]:
    """A request; ``extra`` replaces and adds."""
    return {"id": ID, "permitId": PERMIT, "token": TOKEN, "command": "true", "args": [], **extra}


def asked(**extra: object) -> Request:
    """That request, parsed."""
    return parse_request(json.dumps(fields(**extra)).encode())


def action(word: object = "go", **extra: object) -> bytes:
    """A later line for ``asked()``."""
    return json.dumps({"id": ID, "token": TOKEN, "action": word, **extra}).encode()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
"""Any small JSON value."""
