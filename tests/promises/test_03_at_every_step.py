"""Any of us may die. Wrapper, keeper and init are killed at every numbered step of the launch.

A contain-init that waits 400 ms at one step stands for a slow machine. The kill comes when a process is seen in that
wait; what is then still to come of the launch, it does with a dead companion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.ground import ground_of
from tests.on_disk import receipts_on_disk
from tests.programs import STEP_NAMES, other_program, shared_programs
from tests.session import inspect, keeper_of, kill, stat_fields, wait_until
from tests.survivors import Watch, adopting, waiting_at_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ground import Ground
    from tests.programs import Programs
    from tests.session import Session

WAIT_MS = 400
AGAIN_MS = 1000
KEEPERS = ("REQUEST", "DIRECTORY", "CLONE", "ANSWER")
IN_A_USER_NAMESPACE = ("SETGROUPS", "UID_MAP", "GID_MAP")
COMMANDS = STEP_NAMES[STEP_NAMES.index("SESSION") :]
"""Steps of the command's process: the gate may be open by then, and the receipt says so."""
SOME = (*IN_A_USER_NAMESPACE, "CLONE", "DETACH", "PROC", "DEATH_SIGNAL", "PARENTS", "ARM", "GATE", "EXEC")


class Death(NamedTuple):
    """Who dies, at which step of whose launch. ``again``: at the step's second time."""

    user: str
    step: str
    whom: str
    again: bool = False

    def __str__(self) -> str:
        """The name of its test."""
        return f"{self.user}-{self.step}-{self.whom}" + ("-again" if self.again else "")


DEATHS = [
    Death(user, step, whom)
    for whom in ("wrapper", "keeper", "init")
    for user in ("root", "nobody")
    for step in STEP_NAMES[1:]
    if (step not in IN_A_USER_NAMESPACE if user == "root" else step in SOME)
    and not (whom == "init" and step in KEEPERS)
] + [Death("root", "DEATH_SIGNAL", whom, again=True) for whom in ("wrapper", "keeper", "init")]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Programs that wait at a step."""
    return shared_programs(tmp_path_factory)


@pytest.fixture(scope="module")
def grounds(programs: Programs) -> Iterator[dict[str, Ground]]:
    """A ground for each user."""
    with ground_of("root", programs) as root, ground_of("nobody", programs) as nobody:
        yield {"root": root, "nobody": nobody}


@pytest.fixture(autouse=True)
def orphans() -> Iterator[None]:
    """Whatever loses its parent comes to this process, and must be gone at the end."""
    with adopting():
        yield


def at_the_step(session: Session, *, again: bool = False) -> int:
    """Waits until a process is in the wait; returns which."""
    found: list[int] = []

    def there() -> bool:
        pid = waiting_at_step(session.process.pid)
        found[:] = [] if pid is None else [pid]
        return bool(found)

    if again:
        session.until("prepared")  # said when the init has its order to arm a second time
    wait_until(there, what="a process waits at the step")
    return found[0]


def mortal(session: Session, whom: str, waiting: int) -> int:
    """Whose turn it is."""
    if whom == "wrapper":
        return session.process.pid
    keeper = keeper_of(session.process.pid)
    if whom == "keeper":
        return keeper
    parent = int((stat_fields(waiting) or ["", "0"])[1])
    return waiting if parent == keeper else parent  # the command's process is the init's child


def slow(ground: Ground, programs: Programs, death: Death) -> Session:
    """A session of this ground's user whose contain-init waits at the step."""
    program = ground.usable(programs.waits_at(death.step, AGAIN_MS if death.again else WAIT_MS))
    if ground.user == "root":
        return ground.session(other_program(program))
    return ground.session((*ground.python, str(ground.library / "other_program.py"), str(program)))


@pytest.mark.parametrize("death", DEATHS, ids=str)
def test_a_death_at_a_step(grounds: dict[str, Ground], programs: Programs, death: Death) -> None:
    """Nothing is left 2 s later, nothing ran before its receipt said so, and inspect releases what there is."""
    ground = grounds[death.user]
    mark = ground.file()
    with slow(ground, programs, death) as session:
        watch = Watch(session.process.pid)
        session.request("touch", str(mark)).go()
        waiting = at_the_step(session, again=death.again)
        kill(mortal(session, death.whom, waiting))
        watch.look()
        if death.whom == "wrapper":
            session.process.wait()
            watch.assert_gone()
            while session.read() is not None:
                pass
        else:
            named_end(session, death.whom)
            watch.assert_gone()
    latest = receipts_on_disk(ground.receipts).get(session.id)
    assert not mark.exists() or (latest is not None and latest.may_have_run)
    if latest is None:
        assert session.events() in ([], ["refused"]), "it spoke of a job that has no receipt"
        return
    code, (found,) = inspect(ground.receipts, session.id, program=ground.contain)
    assert (code, found["state"], found["empty"]) == (0, "released", True)
    if death.step not in COMMANDS:
        assert not mark.exists(), "it ran although the gate cannot have been open"


def named_end(session: Session, whom: str) -> None:
    """The wrapper lives: it says what happened, and ends."""
    last = session.finish()
    if last["event"] == "refused":
        assert last["reason"] == "setup-failed", last
        assert last["step"], last
        assert "prepared" not in session.events()
    else:
        assert (last["event"], last["empty"]) == ("released", True), last
        assert last["outcome"]["cause"] == {"keeper": "keeper-lost", "init": "init-killed"}[whom], last


def test_the_wait_is_seen(grounds: dict[str, Ground]) -> None:
    """The control: without a hook nobody waits at a step, and the job that lives is called alive."""
    with grounds["root"].session() as session:
        session.start("sh", "-c", "kill -STOP $$")
        assert waiting_at_step(session.process.pid) is None
        with pytest.raises(AssertionError, match="alive"):
            Watch(session.process.pid).look().assert_gone(0.1)
        session.cancel(graceMs=0).finish()
