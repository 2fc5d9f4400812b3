"""Hosts of many jobs on a fake XNU: ``contain serve``, and the Python API from threads and from asyncio."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator

from tests.darwin.jobs import anchor_program, kill_all, parent, program, until_gone
from tests.serving import Served
from tests.session import ROOT, WAIT_S, inspect

if TYPE_CHECKING:
    from pathlib import Path

    from tests.darwin.world import World

VALID = Draft202012Validator(json.loads((ROOT / "contain" / "schemas" / "protocol.json").read_text()))

API = """
import asyncio, functools, sys
import contain, contain.platform
from contain.darwin.backend import DarwinBackend

contain.platform.backend = functools.partial(DarwinBackend, library=sys.argv[1], program=sys.argv[2])
options = {"receipts": sys.argv[3]}
done = contain.run(["sh", "-c", "cat; exit 3"], input="given\\n", capture_output=True, text=True, **options)
print(done.returncode, done.stdout.strip(), done.receipt.state, done.receipt.tier)
with contain.start(["sh", "-c", "echo up; exec sleep 600"], stdout=contain.PIPE, text=True, **options) as job:
    print(job.stdout.readline().strip(), job.over)
print(job.outcome.cause, job.receipt.state)

async def both():
    late = contain.arun(["sleep", "600"], timeout=0.2, grace_s=0.2, **options)
    slow, quick = await asyncio.gather(late, contain.arun(["true"], **options), return_exceptions=True)
    print(type(slow).__name__, quick.returncode)
    async with await contain.astart(["cat"], stdin=contain.PIPE, stdout=contain.PIPE, **options) as job:
        await job.stdin.write(b"hello\\n")
        job.stdin.close()
        print((await job.stdout.read()).decode().strip(), (await job.wait()).returncode)

asyncio.run(both())
"""

LIMITS = """
import resource, sys
from contain.darwin.backend import DarwinBackend

resource.setrlimit(resource.RLIMIT_NOFILE, (64, int(sys.argv[2])))
raised = DarwinBackend(library=sys.argv[1]).raise_open_files()
print(raised, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_one_host_with_many_jobs(xnu: World, receipts: Path) -> None:
    """One whose supervisor is killed says so and is released; those beside it go on. Every line is of the schema."""
    with Served(receipts, program=program(xnu.library)) as served:
        lost, canceled, whole = (served.request(*words) for words in [("sleep", "600")] * 2 + [("true",)])
        anchor = served.until("prepared", lost)["anchor"]["pid"]
        for job in (canceled, whole):
            served.until("prepared", job)
        for job in (lost, canceled, whole):
            served.go(job)
            served.until("running", job)
        kill_all(parent(anchor))
        served.cancel(canceled, graceMs=100)
        ends = {job: served.until("released", job) for job in (lost, canceled, whole)}
        outcomes = [ends[job]["outcome"] for job in (lost, canceled, whole)]
        assert [outcome["cause"] for outcome in outcomes] == ["keeper-lost", "canceled", "exited"]
        assert outcomes[0]["detail"] == "the supervisor was killed, and its anchor with it"
        until_gone(anchor)
        served.hang_up()
        served.finish()
    for reply in served.replies:
        VALID.validate(reply)


def test_the_api_is_the_same(xnu: World, receipts: Path) -> None:
    """``run``, ``start``, ``arun`` and ``astart``, with input, output, ends and codes as on Linux; nothing is left."""
    words = [sys.executable, "-c", API, xnu.library, anchor_program(), str(receipts)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    assert said.stdout.splitlines() == [
        "3 given released session",
        "up False",
        "canceled released",
        "CommandTimedOut 0",
        "hello 0",
    ], said.stderr
    _, found = inspect(receipts, program=program(xnu.library))
    assert {one["state"] for one in found} == {"released"}


@pytest.mark.parametrize(("hard", "most"), [(20_000, 10_240), (300, 300)])
def test_the_limit_of_open_files_is_raised_as_far_as_darwin_takes_it(
    xnu: World, hard: int, most: int
) -> None:
    """To OPEN_MAX and no further, whatever the hard limit says; that one stays as it is."""
    words = [sys.executable, "-c", LIMITS, xnu.library, str(hard)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    said = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert said.stdout.split() == [str(most), str(most), str(hard)], said.stderr
