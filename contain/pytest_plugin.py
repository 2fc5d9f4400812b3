"""For pytest: processes that cannot outlive their test.

The fixture ``contained`` starts a command as ``contain.start`` does; when the test ends, however it ends, so does every
process of it. With ``--contained-leftovers=fail`` a test fails whose command ended by itself and left processes behind.
"""

from __future__ import annotations

import pytest

import contain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from contain.api.asking import Word

CHOICES = ("ignore", "fail")
OWN_END = ("exited", "signaled")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one option."""
    group = parser.getgroup("contain")
    group.addoption(
        "--contained-leftovers",
        choices=CHOICES,
        default="ignore",
        help="what becomes of a test whose contained command left processes behind (they are ended in any case)",
    )


class Contained:
    """What the fixture gives: call it as ``contain.start``, as often as needed."""

    def __init__(self, receipts: Path) -> None:
        """Receipts are in a directory of the test session."""
        self._receipts = receipts
        self.handles: list[contain.Handle] = []

    def __call__(self, args: Sequence[Word], **options: Any) -> contain.Handle:
        """Starts a command. Leftovers get a second before TERM unless ``grace_s`` says otherwise."""
        handle = contain.start(args, **{"receipts": self._receipts, "grace_s": 1.0, **options})
        self.handles.append(handle)
        return handle

    def end(self) -> list[str]:
        """Ends everything; what each command left behind that had ended by itself, as a sentence."""
        for handle in self.handles:
            if not handle.over and handle.outcome is None:
                handle.cancel()
        left = []
        for handle in self.handles:
            with handle:
                found = handle.receipt.leftovers if handle.receipt is not None else None
                if found is not None and handle.outcome is not None and handle.outcome.cause in OWN_END:
                    left.append(f"{handle.args[0]} left {found.count}: {', '.join(found.names)}")
        return left


@pytest.fixture(scope="session")
def _contained_receipts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A private directory, one for each worker."""
    place = tmp_path_factory.mktemp("contained") / "receipts"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture
def contained(request: pytest.FixtureRequest, _contained_receipts: Path) -> Iterator[Contained]:
    """Starts processes that cannot outlive the test: called as ``contain.start`` is, it returns its handle."""
    starter = Contained(_contained_receipts)
    yield starter
    left = starter.end()
    if left and request.config.getoption("--contained-leftovers") == "fail":
        pytest.fail(f"processes outlived their command: {'; '.join(left)}", pytrace=False)
