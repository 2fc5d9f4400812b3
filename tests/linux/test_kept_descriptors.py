"""Descriptors that a job keeps arrive under the numbers that were asked for, whatever lies in the way.

contain-init is told directly: its own descriptors are where the keeper received them, from 8 on, so low numbers collide
with them. Which file is which is seen by inode.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contain.linux import native
from tests.ground import PYTHON
from tests.linux.driver import USERS, block, keeper, public_program, run_to_end
from tests.session import CONTAIN, Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.linux.driver import Keeper

LATER = 60
FREE = 3


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    """contain-init, where everybody may execute it."""
    with public_program() as path:
        yield path


@pytest.fixture(scope="module", params=USERS)
def started(request: pytest.FixtureRequest, program: Path) -> Iterator[Keeper]:
    """A keeper of root, and one of nobody."""
    with keeper(program, request.param) as made:
        yield made


@contextlib.contextmanager
def files(count: int) -> Iterator[list[int]]:
    """Open files, each another one."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(tempfile.TemporaryFile()).fileno() for _ in range(count)]


def shown(started: Keeper, numbers: Sequence[int], descriptors: Sequence[int]) -> dict[int, int]:
    """Number -> inode, from 3 on, of a command that keeps ``descriptors`` as ``numbers``."""
    request = native.launch_request(200, 200, 0o022, None, {}, native.Extras(keep=tuple(numbers)))
    code = (
        "import os\n"
        "for name in sorted(map(int, os.listdir('/proc/self/fd'))):\n"
        "    try: print(name, os.fstat(name).st_ino)\n"
        "    except OSError: pass"
    )
    launch = started.launch(block(PYTHON, "-I", "-S", "-c", code), request=request, more=descriptors)
    ended, text = run_to_end(launch.arm().go())
    assert ended.status == 0, text
    pairs = (line.split() for line in text.splitlines())
    return {int(number): int(inode) for number, inode in pairs if int(number) >= FREE}


def expected(numbers: Sequence[int], descriptors: Sequence[int]) -> dict[int, int]:
    """What must be seen: these and no others."""
    return {
        number: os.fstat(descriptor).st_ino for number, descriptor in zip(numbers, descriptors, strict=True)
    }


NUMBERS = {
    "one": [3],
    "in order": [3, 4, 5],
    "on the init's own": [8, 9, 10, 11, 12, 13, 14],
    "reversed over all that the init holds": list(range(30, 2, -1)),
    "every second": list(range(4, 40, 2)),
    "far apart": [3, 100, 900],
    "as many as there may be": list(range(3, 3 + native.MOST_KEPT)),
    "as many, from above": list(range(70, 70 - native.MOST_KEPT, -1)),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_they_arrive_under_their_numbers(started: Keeper, name: str) -> None:
    """Each file under its number, and no other descriptor."""
    numbers = NUMBERS[name]
    with files(len(numbers)) as descriptors:
        assert shown(started, numbers, descriptors) == expected(numbers, descriptors)


@given(numbers=st.lists(st.integers(FREE, LATER), unique=True, max_size=native.MOST_KEPT))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_numbers_in_any_order(started: Keeper, numbers: list[int]) -> None:
    """Any choice: numbers that sources, gate and pipes lie on, in any order."""
    with files(len(numbers)) as descriptors:
        assert shown(started, numbers, descriptors) == expected(numbers, descriptors)


@given(order=st.permutations(range(8, 28)))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_permutation_of_where_they_lie(started: Keeper, order: list[int]) -> None:
    """Every source lies where another is wanted: cycles of every length."""
    with files(len(order)) as descriptors:
        assert shown(started, order, descriptors) == expected(order, descriptors)


def test_one_file_under_two_numbers(started: Keeper) -> None:
    """The same descriptor may be asked for twice."""
    with files(1) as (descriptor,):
        assert shown(started, [5, 9], [descriptor] * 2) == expected([5, 9], [descriptor] * 2)


def test_none_is_kept_by_default(started: Keeper) -> None:
    """The control."""
    assert shown(started, [], []) == {}


@pytest.mark.parametrize("count", [native.MOST_KEPT + 1])
def test_too_many_are_refused(started: Keeper, count: int) -> None:
    """The keeper does not take a request that lies about its descriptors."""
    numbers = list(range(FREE, FREE + native.MOST_KEPT))
    request = native.launch_request(200, 200, 0o022, None, {}, native.Extras(keep=tuple(numbers)))
    with files(count) as descriptors:
        launch = started.launch(block("true"), request=request, more=descriptors)
        assert (launch.error, launch.step) == (22, "request")
        launch.close()


# -- by the product ----------------------------------------------------------------------------------------------------

INHERIT = """
import os, sys
numbers = [int(word) for word in sys.argv[1].split(",")]
for number in numbers:
    os.dup2(2, number, inheritable=True)
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_few_open_files_allowed(tmp_path: Path) -> None:
    """Under ``ulimit -n 64`` for all of us, a job still has what it keeps, and nothing else."""
    numbers = [3, 20, 40]
    words = [
        "-c",
        INHERIT,
        ",".join(map(str, numbers)),
        *CONTAIN,
        "exec",
        "--no-budget",
        "--receipts",
        str(receipts_in(tmp_path)),
    ]
    keep = [word for number in numbers for word in ("--keep-fd", str(number))]
    done = subprocess.run(
        [PYTHON, *words, *keep, "--", "sh", "-c", "ulimit -n; ls /proc/self/fd"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )
    assert done.returncode == 0, done.stderr
    limit, *found = done.stdout.split()
    assert limit == "64"
    assert {str(number) for number in numbers} <= set(found)
    assert len(found) <= len(numbers) + 4, "and nothing else but 0 to 2 and what ls opens"


def test_a_low_limit_of_the_job_comes_after_the_descriptors(receipts: Path) -> None:
    """``openFiles`` below what the launch needs for itself: the command starts, and has the limit."""
    with Session(receipts) as session:
        session.start("sh", "-c", "ulimit -n", limits={"openFiles": 4})
        assert session.finish()["outcome"]["code"] == 0
    assert session.errors().strip() == b"4"


def receipts_in(folder: Path) -> Path:
    """A private directory."""
    place = folder / "receipts"
    place.mkdir(mode=0o700)
    return place
