"""The budget above the Darwin backend: owners and proofs are births of Darwin, and nothing of it knows that."""

from __future__ import annotations

import select
from typing import TYPE_CHECKING

import pytest

from contain.backend import Drained
from contain.budget.arbiter import Sample, Ticket
from contain.budget.policy import preset
from contain.budget.queue.desk import Desk
from contain.budget.queue.waiting import Waiting
from contain.budget.registry import Registry
from contain.darwin.backend import DarwinBackend
from contain.errors import WaitedTooLong
from contain.job import Job, new_id
from receipts import encode, jsontext
from tests.darwin.jobs import anchor_program
from tests.darwin.living import WAIT_S, until

if TYPE_CHECKING:
    from pathlib import Path

    from contain.backend import Containment
    from tests.darwin.world import World

UNITS = 2


def drained(job: Containment) -> bool:
    """Whether it has been proven over; waits a moment."""
    poll = select.poll()
    for fd in job.fds():
        poll.register(fd, select.POLLIN)
    poll.poll(100)
    return any(isinstance(event, Drained) for event in job.events())


def test_a_permit_returns_when_the_tree_is_gone(xnu: World, tmp_path: Path) -> None:
    """Its owner lives on; the census of a session is the evidence, and a tree that lives keeps its units."""
    backend = DarwinBackend(library=xnu.library, program=anchor_program())
    tmp_path.chmod(0o700)
    idle = Sample(busy=0.0, load1=0.0, available_mib=20_000.0)
    rules = preset("shared", UNITS, 24_000).replace(ceiling=UNITS)
    desk = Desk(
        Registry(str(tmp_path), rules.base, lambda _: None), rules, backend, lambda: idle, lambda: ((), {})
    )

    def waiting(name: str, wait_s: float) -> Waiting:
        ticket = Ticket(id=name, seq=0, session=name, min_units=UNITS, want_units=UNITS)
        until_s = desk.now().awake_s + wait_s
        return Waiting(desk, backend, ticket, until_s=until_s, interrupts=None, tell=lambda _: None)

    assert waiting("first", WAIT_S).run().permit.id == "first"
    job = backend.launch(Job(id=new_id(), permit_id=new_id(), command="sleep", args=("600",))).ready()
    desk.bind("first", jsontext.dumps(encode(job.proof)), str(tmp_path), new_id())
    assert job.open_gate()
    with pytest.raises(WaitedTooLong):
        waiting("second", 1.0).run()
    job.kill()
    until(lambda: drained(job), "the tree is proven gone")
    assert waiting("third", WAIT_S).run().permit.id == "third"
    job.close()
    backend.stop()
