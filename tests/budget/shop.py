"""A registry of two units, and customers of it as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

from tests.budget.customer import desk
from tests.session import WAIT_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


CUSTOMER = (sys.executable, "-m", "tests.budget.customer")


class Customer:
    """A process that asks, holds and returns as it is told."""

    def __init__(
        self, folder: Path, name: str, program: Sequence[str] = CUSTOMER, numbers: Mapping[str, float] = {}
    ) -> None:
        """Starts it; it asks at once. ``program`` takes a folder, a name and fields (``busy=1``)."""
        self.name = name
        self.process = subprocess.Popen(
            [*program, str(folder), name, *(f"{field}={number}" for field, number in numbers.items())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def hears(self, word: str) -> Self:
        """Waits for what it says next."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline().split()[:1] == [word]
        return self

    def give_back(self) -> Self:
        """Lets it return its permit."""
        self.process.communicate("\n", timeout=WAIT_S)
        return self

    def close(self) -> None:
        """Ends it, by its id."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


class Shop:
    """The registry's folder, and its customers."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        """Nobody has come yet."""
        self.folder = folder
        self._stack = stack
        self.customers: list[Customer] = []

    def comes(
        self, name: str, program: Sequence[str] = CUSTOMER, numbers: Mapping[str, float] = {}
    ) -> Customer:
        """One more customer, asking. ``numbers``: what it sees of the machine, and some of its policy."""
        customer = Customer(self.folder, name, program, numbers)
        self._stack.callback(customer.close)
        self.customers.append(customer)
        return customer.hears("asking")

    def stands(self) -> tuple[list[str], list[str]]:
        """(who has a permit, who waits), as it was last committed."""
        book = desk(str(self.folder)).look()
        return sorted(book.permits), list(book.tickets)

    def waits(self, *names: str) -> None:
        """Until exactly these wait, in this order."""
        wait_until(lambda: self.stands()[1] == list(names), what=f"{names} wait")


@contextmanager
def open_shop(folder: Path) -> Iterator[Shop]:
    """Whoever came is gone at the end."""
    folder.mkdir(mode=0o700)
    with ExitStack() as stack:
        yield Shop(folder, stack)
