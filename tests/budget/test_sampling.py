"""One look at the machine for everybody who asks within a second."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from contain.budget.sampling import FILE, SharedSampler
from contain.linux.sample import Sampler, judge
from contain.machine import Machine, Unknown
from tests.session import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from contain.machine import Sample


class Counted(Sampler):
    """The real one, which counts how often it has really looked."""

    looks = 0

    def sample(self, volumes: Mapping[str, str] | None = None) -> Sample:
        """See Sampler."""
        Counted.looks += 1
        return super().sample(volumes)


@pytest.fixture(autouse=True)
def _from_zero() -> None:
    Counted.looks = 0


def shared(folder: Path, machine: Machine | None = None) -> SharedSampler:
    """As each command makes one."""
    return SharedSampler(str(folder), Counted(machine or judge()), {"work": "."})


def test_a_hundred_at_once_look_once(tmp_path: Path) -> None:
    """Or a few times, while the first is still looking; and all of them know the disk that they write to."""
    found: list[Sample] = []
    threads = [threading.Thread(target=lambda: found.append(shared(tmp_path).sample())) for _ in range(100)]
    shared(tmp_path).sample()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 100
    assert Counted.looks <= 2
    assert all(one.disks[0][0] == "work" for one in found)


def test_a_command_of_a_moment_has_a_window(tmp_path: Path) -> None:
    """What is busy is counted from where the last command left the counters."""
    first = shared(tmp_path).sample()
    assert first.interval_s == 0.0  # a number of runnable tasks, since nobody was here before
    found: list[Sample] = []

    def second() -> bool:
        found.append(shared(tmp_path).sample())
        return found[-1].at_s != first.at_s

    wait_until(second)
    assert 0.9 < found[-1].interval_s < 10


@pytest.mark.parametrize("text", ["", "{", "[]", '{"sample":{"busy":"x"}}', '{"sample":{},"counters":7}'])
def test_what_cannot_be_read_is_looked_at_again(tmp_path: Path, text: str) -> None:
    """Torn, or of another version."""
    (tmp_path / FILE).write_text(text)
    assert isinstance(shared(tmp_path).sample().busy, float)
    assert Counted.looks == 1


def test_a_failed_sensor_is_kept_as_one(tmp_path: Path) -> None:
    """It is unknown for the next command too, and not absent."""
    machine = judge()
    broken = SharedSampler(str(tmp_path), Sampler(machine, proc=str(tmp_path / "no-proc")), {})
    taken = broken.sample()
    assert isinstance(taken.busy, Unknown)
    assert isinstance(shared(tmp_path).sample().busy, Unknown)
    assert Counted.looks == 0


def test_a_process_that_may_use_less_sees_the_whole() -> None:
    """One that is bound to one core judged for all of them, and held the queue for 20 minutes."""
    whole = judge()
    mine = os.sched_getaffinity(0)
    if len(mine) < 2:
        pytest.skip("one core only: there is no less of it")
    os.sched_setaffinity(0, {min(mine)})
    try:
        seen = Sampler(whole)
        sampled = seen.sample()
        assert isinstance(sampled.busy, float)
        again: list[float] = []

        def window() -> bool:
            found = seen.sample()
            assert isinstance(found.busy, float)
            again.append(found.busy)
            return found.interval_s > 0

        wait_until(window)
    finally:
        os.sched_setaffinity(0, mine)
    assert 0 <= again[-1] <= whole.cores
