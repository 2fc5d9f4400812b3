"""Empty means empty. After `released` no descendant writes, whatever the tree did and however it came to its end.

Every unruly job adds bytes to a file for as long as anything of it runs, so the file's size at the reply is its last.
Then the leftovers: how those that outlive their command are given time, asked and ended.
"""

from __future__ import annotations

import random
import select
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.ground import USERS, ground_of
from tests.jobs import UNRULY, named, shell
from tests.programs import shared_programs
from tests.session import in_namespace, kill, wait_file, wait_until
from tests.survivors import Watch, adopting, end_all, reap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ground import Ground
    from tests.jobs import Unruly
    from tests.session import Reply

RUNS = 3
"""For each way to an end, job and user."""
RANDOM = random.SystemRandom()
CASES = [
    pytest.param(user, job, id=f"{user}-{job.name}")
    for user in USERS
    for job in UNRULY
    if job.name != "forest"
]
CAUSES = {"cancel": "canceled", "eof": "canceled", "end": "exited"}


@pytest.fixture(scope="module")
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A place for one user's jobs."""
    with ground_of(getattr(request, "param", "root"), shared_programs(tmp_path_factory)) as made:
        yield made


@pytest.fixture(autouse=True)
def orphans() -> Iterator[None]:
    """Whatever loses its parent comes to this process, and must be gone at the end."""
    with adopting():
        yield


def command(ground: Ground, job: Unruly, how: str, file: Path) -> tuple[str, ...]:
    """The job; for ``end``, a command that leaves the job behind as soon as it writes."""
    if how != "end":
        return ground.command(job, file)
    left = f"({job.text}) & until [ -s '{file}' ]; do :; done; exit 5"
    return shell(left, ground.unruly, file)


def end_once(ground: Ground, job: Unruly, how: str) -> tuple[Path, int, Reply]:
    """One job that is brought to its end; its file, and the size of that when ``released`` was read."""
    file = ground.file()
    with ground.session() as session:
        words = command(ground, job, how, file)
        session.request(*words, graceMs=RANDOM.randrange(80), killMs=RANDOM.randrange(80))
        inode = session.until("prepared")["namespaceInit"]["namespace"]
        session.go()
        wait_file(file)
        watch = Watch(session.process.pid).look()
        select.select([], [], [], RANDOM.uniform(0, 0.03))
        if how == "cancel":
            session.cancel(graceMs=RANDOM.randrange(60))
        elif how == "eof":
            session.hang_up()
        last = session.until("released")
        size = file.stat().st_size
        assert in_namespace(inode) == []
        session.finish()
        watch.assert_gone(0)
    reap()
    return file, size, last


@pytest.mark.parametrize(("ground", "job"), CASES, indirect=["ground"])
def test_no_write_lands_after_the_reply(ground: Ground, job: Unruly) -> None:
    """Cancelled, left by its command, or by its host: at the reply nothing lives, and the file has its last size."""
    ended = [(how, *end_once(ground, job, how)) for how in CAUSES for _ in range(RUNS)]
    for how, file, size, last in ended:
        assert file.stat().st_size == size, f"{how}: it wrote after released"
        assert (last["empty"], last["outcome"]["cause"]) == (True, CAUSES[how])
        if how == "end":
            assert last["outcome"]["code"] == 5


def test_a_plain_wrapper_says_it_too_early(ground: Ground) -> None:
    """The control: to wait for the command alone is what others call the end, and the file grows after it."""
    file = ground.file()
    text = command(ground, named("double-fork"), "end", file)
    with subprocess.Popen(text) as plain:
        watch = Watch(plain.pid)
        assert plain.wait() == 5
        size = file.stat().st_size
        wait_until(lambda: file.stat().st_size > size, what="somebody still writes")
        assert watch.survivors() != []
    end_all()


def test_the_next_job_owns_the_path(ground: Ground) -> None:
    """A timed-out job's orphan does not write into the outputs of the job that comes after it."""
    file = ground.file()
    with ground.session() as session:
        session.request(*ground.command(named("deaf"), file), timeoutMs=200, graceMs=30, killMs=30).go()
        assert session.finish()["outcome"]["cause"] == "timed-out"
    with ground.session() as session:
        session.request("sh", "-c", f"echo second > {file}; sleep 0.1; exit 0").go()
        assert session.finish()["outcome"]["code"] == 0
    assert file.read_text() == "second\n"


TREES = {
    "a pipe that breaks": "for i in 1 2 3 4; do yes > /dev/null & done; yes | head -1; kill -PIPE $$",
    "ten busy forks": "for i in 0 1 2 3 4 5 6 7 8 9; do yes > /dev/null & done; exit 0",
    "a chain with a session in it": 'sh -c \'setsid sh -c "sh -c \\"sleep 50; :\\" & wait" & wait\' & exit 0',
    "servers that hear nothing": "trap '' TERM INT; for i in 1 2 3; do (while :; do sleep 5; done) & done; exit 0",
    "a daemon with a directory": "mkdir d; cd d; (setsid sleep 50 < /dev/null > /dev/null 2>&1 &); exit 0",
}


@pytest.mark.parametrize("tree", TREES)
def test_what_a_command_leaves_is_ended(ground: Ground, tree: str) -> None:
    """Trees of real reports, none of which ends by itself: gone with the reply, and counted in it."""
    with ground.session() as session:
        session.request("sh", "-c", TREES[tree], graceMs=500, killMs=100, cwd=str(ground.work))
        inode = session.until("prepared")["namespaceInit"]["namespace"]
        last = session.go().until("released")
        assert in_namespace(inode) == []
        session.finish()
    assert last["leftovers"]["count"] >= 1
    assert last["leftovers"]["names"]
    assert last["leftovers"]["signal"] == ("KILL" if "hear" in tree else "TERM")
    kill_by_pipe = {"cause": "signaled", "signal": 13} if "pipe" in tree else {"cause": "exited", "code": 0}
    assert kill_by_pipe.items() <= last["outcome"].items()


def test_leftovers_that_nobody_saw_are_counted(ground: Ground) -> None:
    """The wrapper has no turn from the command's end until they are ended: who they were is unknown, not that."""
    go = ground.file()
    with ground.session() as session:
        text = f"sleep 50 & until [ -e {go} ]; do sleep 0.02; done"
        session.request("sh", "-c", text, graceMs=50, killMs=5000)
        inode = session.until("prepared")["namespaceInit"]["namespace"]
        session.go().until("running")
        kill(session.process.pid, signal.SIGSTOP)
        go.touch()
        wait_until(lambda: in_namespace(inode) == [], what="the init has ended them")
        kill(session.process.pid, signal.SIGCONT)
        last = session.finish()
    assert last["outcome"] == {"cause": "exited", "code": 0, "core": False, "lastSignal": "TERM"}
    assert (last["leftovers"]["names"], last["leftovers"]["signal"]) == ([], "TERM")
    assert last["leftovers"]["count"] >= 1


def test_leftovers_may_end_by_themselves(ground: Ground) -> None:
    """Within the grace nobody signals them: their work is done, and the reply says that it took nothing."""
    file = ground.file()
    with ground.session() as session:
        text = f"(sleep 0.4; echo done > {file}) & exit 3"
        session.request("sh", "-c", text, graceMs=30_000).go()
        exited = session.until("exited")
        last = session.finish()
    assert file.read_text() == "done\n"
    assert exited["leftovers"]["count"] >= 1
    assert last["leftovers"].get("signal") is None
    assert last["outcome"]["code"] == 3


def test_leftovers_are_asked_before_they_are_killed(ground: Ground) -> None:
    """One that cleans up on TERM has the time for it, also when it was stopped; nobody is killed then."""
    bye, ready = ground.file(), ground.file()
    polite = (
        f"trap 'echo bye > {bye}; exit 0' TERM; echo > {ready}; kill -STOP $$; while :; do sleep 0.01; done"
    )
    with ground.session() as session:
        text = f'setsid sh -c "$1" & until [ -s {ready} ]; do :; done; exit 0'
        session.request("sh", "-c", text, "sh", polite, graceMs=100, killMs=20_000).go()
        last = session.finish()
    assert bye.read_text() == "bye\n"
    assert last["leftovers"]["signal"] == "TERM"
    assert last["leftovers"]["names"] == ["sh"]


def test_hundreds_of_zombies_are_no_leftovers(ground: Ground) -> None:
    """Children that ended before their parent, and that it never waited for, are dead: nothing is left over."""
    with ground.session() as session:
        session.request(str(ground.unruly), "zombies", str(ground.file()), "300", graceMs=30_000).go()
        last = session.finish()
    assert session.events() == ["prepared", "running", "exited", "released"]
    assert "leftovers" not in last
    assert last["usage"]["processes"] == 301


def test_a_hopping_command_ends(ground: Ground) -> None:
    """The command itself forks and exits every half millisecond, in a new session each time: it is caught."""
    file = ground.file()
    with ground.session() as session:
        session.request(str(ground.unruly), "hop", str(file), "50", graceMs=100, killMs=50)
        inode = session.until("prepared")["namespaceInit"]["namespace"]
        last = session.go().until("released")
        size = file.stat().st_size
        assert in_namespace(inode) == []
        session.finish()
    assert (last["empty"], last["outcome"]["code"]) == (True, 0)
    assert file.stat().st_size == size > 1
