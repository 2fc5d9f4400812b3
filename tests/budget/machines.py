"""Random machines, queues and moments for properties: small numbers, so that every resource is short now and then."""

from __future__ import annotations

from hypothesis import strategies as st

from contain.budget.arbiter import (
    Disk,
    Health,
    Hold,
    LimitState,
    Permit,
    Sample,
    Snapshot,
    Ticket,
    Unknown,
)
from contain.budget.policy import PRESETS, ClassCost, Policy, preset
from tests.budget.scene import NOW_S

POOLS = (("gpu", 1), ("seat", 2))
SESSIONS = st.sampled_from("abcd")
DRAWS = st.sampled_from([(), (), (), (("gpu", 1),), (("seat", 1),), (("seat", 2), ("gpu", 1))])
FAILED = st.just(Unknown(why="EIO"))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """A preset on a machine of two to sixteen cores, with two pools more."""
    cores = draw(st.integers(2, 16))
    chosen = preset(draw(st.sampled_from(sorted(PRESETS))), cores, draw(st.integers(2, 64)) * 1024)
    return chosen.replace(pools=(*chosen.pools, *POOLS), order=draw(st.sampled_from(["fair", "fifo"])))


@st.composite
def samples(draw: st.DrawFn, *, failures: bool = True) -> Sample:
    """A reading; what a machine may not have is sometimes absent, and anything may fail."""
    other = (st.none() | FAILED) if failures else st.none()
    percent = st.sampled_from([0.0, 5.0, 39.0, 41.0, 91.0])
    return Sample(
        busy=draw(st.floats(0, 16) | other),
        load1=draw(st.floats(0, 50) | other),
        psi_cpu=draw(percent | other),
        psi_io=draw(st.sampled_from([0.0, 0.0, 5.0, 41.0, 91.0]) | other),
        psi_memory=draw(st.sampled_from([0.0, 0.0, 0.0, 11.0, 26.0]) | other),
        available_mib=draw(st.integers(0, 65_536) | (FAILED if failures else st.nothing())),
        disks=draw(
            st.sampled_from(
                [
                    (),
                    (),
                    (("home", Disk(free_mib=100_000, total_mib=500_000)),),
                    (("home", Disk(free_mib=5, total_mib=9000)),),
                ]
            )
        ),
    )


@st.composite
def tickets(draw: st.DrawFn, seq: int) -> Ticket:
    """Somebody who waits."""
    kind = draw(st.sampled_from(["full", "full", "full", "light", "long"]))
    least = 0 if kind == "light" else draw(st.integers(1, 6))
    return Ticket(
        id=f"t{seq}",
        seq=seq,
        session=draw(SESSIONS),
        lane=kind,
        min_units=least,
        want_units=least + draw(st.integers(0, 6)) if least else 0,
        mem_mib=draw(st.sampled_from([0, 0, 500, 4000])),
        draws=(("lane:light", 1),) if kind == "light" else draw(DRAWS),
        unit_draws=("lane:long",) if kind == "long" else (),
        resizable=draw(st.booleans()),
        dormant=draw(st.sampled_from([False, False, False, True])),
        expected_s=draw(st.sampled_from([1.0, 60.0])),
    )


@st.composite
def permits(draw: st.DrawFn, seq: int) -> Permit:
    """Somebody who runs; not always what this policy would have granted."""
    units = draw(st.integers(0, 4))
    return Permit(
        id=f"p{seq}",
        seq=seq,
        session=draw(SESSIONS),
        state=draw(st.sampled_from(["granted", "running", "held"])),
        units=units,
        target=draw(st.integers(0, units)) if units else 0,
        mem_mib=draw(st.sampled_from([0, 500, 4000])),
        draws=draw(st.sampled_from([(), (), (("gpu", 1),), (("seat", 1),)])),
        resizable=draw(st.booleans()),
        granted_at_s=NOW_S - draw(st.sampled_from([5.0, 500.0])),
        cpu=draw(st.none() | st.floats(0, units)),
        rss_mib=draw(st.none() | st.floats(0, 4000)),
    )


@st.composite
def snapshots(draw: st.DrawFn, policy: Policy) -> Snapshot:
    """A moment of a registry."""
    held = [draw(permits(n)) for n in range(draw(st.integers(0, 4)))]
    waiting = [draw(tickets(100 + n)) for n in range(draw(st.integers(0, 6)))]
    passed = st.sampled_from([0.0, 5.0, 1e3])
    hold = Hold(id="h", owner="ann", reason="deploy", until_s=NOW_S + 9, covers=("long",))
    return Snapshot(
        limit=LimitState(
            limit=draw(st.integers(policy.floor, policy.base)),
            changed_at_s=NOW_S - draw(st.sampled_from([1.0, 25.0])),
            pressed_at_s=NOW_S - draw(st.sampled_from([1.0, 95.0])),
        ),
        permits=tuple(held),
        tickets=tuple(waiting),
        overtaken={one.seq: draw(passed) for one in waiting},
        service={session: draw(st.sampled_from([0.0, 1.0, 50.0])) for session in "abcd"},
        holds=draw(st.sampled_from([(), (), (hold,)])),
        health=draw(
            st.sampled_from(
                [{}, {}, {"gpu": Health(reason="ECC")}, {"seat": Health(reason="429", until_s=NOW_S + 5)}]
            )
        ),
    )


@st.composite
def asked(draw: st.DrawFn) -> ClassCost:
    """A class somebody asks `free` about."""
    ticket = draw(tickets(1))
    return ClassCost(
        name="asked",
        lane=ticket.lane,
        min_units=ticket.min_units,
        want_units=ticket.want_units,
        mem_mib=ticket.mem_mib,
        draws=ticket.draws,
        unit_draws=ticket.unit_draws,
    )
