"""Fixtures of the Darwin tests: a world of one's own, and the ABI on the system or on the fake."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.darwin.abi import Darwin
from tests.darwin.build import build, missing_compiler
from tests.darwin.processes import Actors
from tests.darwin.world import ON_A_MAC, World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def built_xnu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the compiled fake, shared by all processes of one run."""
    reason = missing_compiler()
    if reason:
        pytest.skip(reason)
    base = tmp_path_factory.getbasetemp()
    return build((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "fake-xnu")


@pytest.fixture
def xnu(request: pytest.FixtureRequest) -> Iterator[World]:
    """A fake XNU with nothing wrong, for one test; never on a Mac, where a fault cannot be injected."""
    if ON_A_MAC:
        pytest.skip("capability: a fake XNU, which a Mac needs not")
    with World(request.getfixturevalue("built_xnu")) as world:
        yield world


@pytest.fixture
def lineage(xnu: World) -> World:
    """The same, where forks and execs are seen as they happen."""
    if xnu.reason:
        pytest.skip(xnu.reason)
    return xnu


@pytest.fixture
def darwin(request: pytest.FixtureRequest) -> Darwin:
    """The raw ABI: the system's on a Mac, a fake's elsewhere."""
    if ON_A_MAC:
        return Darwin(None)
    world: World = request.getfixturevalue("xnu")
    return Darwin(world.library)


@pytest.fixture
def actors(darwin: Darwin) -> Iterator[Actors]:
    """Processes of this test."""
    with Actors(darwin) as made:
        yield made
