"""Empty means empty. `released, empty:true` is said only when the kernel has drained the containment.

The tree is looked for from outside, by namespace and by what it does; that no write lands later is held by
test_07_a_permit_follows_the_tree.py as well, which ends trees in every way.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ground import USERS, ground_of
from tests.jobs import UNRULY, Unruly
from tests.programs import shared_programs
from tests.session import Session, in_namespace, run_job, wait_file, wait_until
from tests.survivors import Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ground import Ground

MOST_CHILDREN = 1000
CHILDREN = 20_000


@pytest.fixture(scope="module")
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A place for one user's jobs."""
    with ground_of(request.param, shared_programs(tmp_path_factory)) as made:
        yield made


CASES = [
    pytest.param(user, job, how, id=f"{user}-{job.name}-{how}")
    for user in USERS
    for job in UNRULY
    for how in ("cancel", "eof")
    if job.name != "forest"
]


@pytest.mark.parametrize(("ground", "job", "how"), CASES, indirect=["ground"])
def test_released_means_that_nothing_is_left(ground: Ground, job: Unruly, how: str) -> None:
    """However unruly the tree and however it is ended: at the moment of the reply nothing of it exists, or writes."""
    file = ground.file()
    with ground.session() as session:
        session.request(*ground.command(job, file), graceMs=200, killMs=200)
        proof = session.until("prepared")["namespaceInit"]
        session.go()
        wait_file(file)
        watch = Watch(session.process.pid).look()
        if how == "cancel":
            session.cancel(graceMs=100)
        else:
            session.hang_up()
        last = session.until("released")
        size = file.stat().st_size
        assert in_namespace(proof["namespace"]) == []
        assert last["empty"] is True
        session.finish()
        watch.assert_gone(0)
    assert file.stat().st_size == size


def test_a_thousand_processes(receipts: Path) -> None:
    """A large tree that ends by itself, one by one, and one that is cancelled."""
    forest = "i=0; while [ $i -lt 1000 ]; do setsid sleep 60 & i=$((i+1)); done; echo up >&2; wait"
    with Session(receipts) as session:
        proof = session.start("sh", "-c", forest)["namespaceInit"]
        assert session.process.stderr is not None
        assert session.process.stderr.readline() == b"up\n"
        assert len(in_namespace(proof["namespace"])) > 1000
        last = session.cancel(graceMs=20_000).until("released", 60)
        assert in_namespace(proof["namespace"]) == []
        session.finish()
    assert last["usage"]["processes"] >= 1000


def test_twenty_thousand_children(receipts: Path, tmp_path: Path) -> None:
    """Orphans by the thousand are reaped as they come: no stall, and only a fraction of them is ever there."""
    source, program = tmp_path / "orphans.c", tmp_path / "orphans"
    source.write_text(
        """
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            for (int i = 0; i < COUNT; i++) {
                pid_t child = fork();
                if (child == 0) {
                    if (fork() == 0) _exit(0);  /* its parent is gone at once: the init's to reap */
                    _exit(0);
                }
                if (child < 0 || waitpid(child, 0, 0) < 0) return 1;
            }
            return 0;
        }
        """
    )
    subprocess.run(["cc", "-O1", f"-DCOUNT={CHILDREN // 2}", "-o", str(program), str(source)], check=True)
    most = 0
    with Session(receipts) as session:
        init = session.start(str(program))["namespaceInit"]["pid"]
        children = Path(f"/proc/{init}/task/{init}/children")
        while session.process.poll() is None:
            try:
                most = max(most, len(children.read_text().split()))
            except OSError:
                break
        last = session.finish()
    assert last["outcome"]["code"] == 0
    assert last["usage"]["processes"] >= CHILDREN // 2
    assert most < MOST_CHILDREN


def test_zombies_are_not_left_over(receipts: Path) -> None:
    """A child that the command did not reap is dead, not a leftover; the end is said at once."""
    python = "import os, time; os.fork() or os._exit(0); time.sleep(0.1)"
    last, session = run_job(receipts, "python3", "-c", python, graceMs=30_000)
    assert last["outcome"]["code"] == 0
    assert "leftovers" not in last
    assert session.events() == ["prepared", "running", "exited", "released"]


def test_output_ends_with_the_tree(receipts: Path) -> None:
    """A detached process that kept the output cannot hold its reader longer than its grace."""
    with Session(receipts) as session:
        session.start("sh", "-c", "echo before; setsid sleep 60 & exit 3", graceMs=100, killMs=100)
        assert session.errors() == b"before\n"
        assert session.finish()["outcome"]["code"] == 3


def test_the_look_sees_a_tree(tmp_path: Path) -> None:
    """The control: the same look finds what a plain PID namespace holds."""
    if os.getuid() != 0:
        pytest.skip("capability: root, for a PID namespace without contain")
    up = tmp_path / "up"
    script = f"setsid sleep 60 & echo $$ > {up}; sleep 60"
    with subprocess.Popen(["unshare", "-pf", "--kill-child", "sh", "-c", script]) as plain:
        wait_until(up.exists)
        child = int(Path(f"/proc/{plain.pid}/task/{plain.pid}/children").read_text())
        inode = Path(f"/proc/{child}/ns/pid").stat().st_ino
        assert len(in_namespace(inode)) == 3
        plain.kill()
    wait_until(lambda: not in_namespace(inode))
