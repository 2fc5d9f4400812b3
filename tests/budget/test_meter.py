"""What permits use is measured: shown by status, and what decisions are made of."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from contain.budget.queue.meter import FILE, Meter
from contain.platform import backend
from tests.blocked import needs_root
from tests.budget.account import Account
from tests.budget.calm import units_policy
from tests.session import kill, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from contain.budget.registry import PermitRow


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """Of two units."""
    with ExitStack() as stack:
        yield Account(
            tmp_path,
            stack,
            units_policy().replace("base = 1\n", "base = 2\n").replace("ceiling = 1", "ceiling = 2"),
        )


def measured(account: Account, session: str) -> dict[str, Any]:
    """What status says of a session's permit."""
    (found,) = [one for one in account.status()["permits"] if one["session"] == session]
    return dict(found)


@needs_root
def test_who_works_is_busy_and_who_sleeps_is_not(account: Account) -> None:
    """Children count, however they came; memory is what is resident."""
    account.holds("works", "sh", "-c", "sh -c 'while :; do :; done' & while :; do /bin/true; done")
    account.holds("sleeps", "sleep", "1000")
    wait_until(lambda: (measured(account, "works")["busy"] or 0.0) > 0.3, what="it is seen to work")
    wait_until(lambda: measured(account, "sleeps")["busy"] in (0.0, 0.001, 0.002), what="it is seen to sleep")
    assert measured(account, "sleeps")["residentMib"] > 0.1


@needs_root
def test_what_is_gone_or_bound_to_nothing_is_not_known(account: Account) -> None:
    """A tree that cannot be looked at has no numbers, and never those of who has its number now."""
    process = account.holds("a", "sleep", "1000")
    row = account.permit("a")
    assert row is not None
    assert row.proof is not None
    meter = Meter(str(account.folder), backend())
    meter.measure([row])
    assert list(meter.uses()) == [row.permit.id]
    kill(process.pid)
    process.wait()
    init = json.loads(row.proof)["pid"]
    wait_until(lambda: not Path(f"/proc/{init}").exists(), what="its tree is gone")
    (account.folder / FILE).unlink()
    meter.measure([row, row.replace(proof=None)])
    assert meter.uses() == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"at_s": 1.0}',
        '{"at_s": "x", "trees": {}}',
        '{"at_s": 1e12, "trees": {"a": [1, 2, 3, 4]}}',
        '{"at_s": 0.0, "trees": {"a": [1, 2, 3, 4]}}',
        '{"at_s": 1.0, "trees": {"a": [1, 2]}}',
    ],
)
def test_a_file_that_says_nothing_is_nothing_known(tmp_path: Path, text: str) -> None:
    """Torn, of another version, of the future, too old: unknown, and measured anew."""
    (tmp_path / FILE).write_text(text, encoding="ascii")
    meter = Meter(str(tmp_path), backend())
    assert meter.uses() == {}
    rows: list[PermitRow] = []
    if text:
        meter.measure(rows)
        assert json.loads((tmp_path / FILE).read_text(encoding="ascii"))["trees"] == {}
