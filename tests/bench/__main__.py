"""The table of speed: ``python -m tests.bench [ROUNDS]``. Exit 1 when a target is missed."""

from __future__ import annotations

import json
import os
import platform
import select
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.programs import compile_command
from tests.bench.table import Table, medians, ms, ratio
from tests.session import TOKEN, Session, inspect, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONTAIN = (str(Path(sys.executable).with_name("contain")),)
BWRAP = (
    "bwrap",
    "--unshare-pid",
    "--die-with-parent",
    "--bind",
    "/",
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
)
UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
BARE = (sys.executable, "-I", "-S", "-B", "-c", "pass")
RECEIPTS = 1000
INIT_KB = 64


def spawn_and_wait(*command: str) -> float:
    """Seconds from the spawn to the exit of a whole command."""
    begun = time.perf_counter()
    pid = os.posix_spawnp(
        command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, 1, 0)]
    )
    os.waitpid(pid, 0)
    return time.perf_counter() - begun


def settle() -> None:
    """The same pause before each contestant: the wrapper has started by then, and the processor is as idle for all."""
    select.select([], [], [], 0.3)


def first_instruction(receipts: Path, stamp: str) -> float:
    """Seconds from the request's write to the command's first instruction; two receipts are durable in between."""
    with Session(receipts, program=CONTAIN) as session:
        process = session.process
        assert process.stdin is not None
        assert process.stdout is not None
        head = {"id": session.id, "token": TOKEN}
        request = json.dumps({**head, "permitId": session.id, "command": stamp, "args": []}).encode() + b"\n"
        go = json.dumps({**head, "action": "go"}).encode() + b"\n"
        settle()
        begun_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        os.write(process.stdin.fileno(), request)
        os.read(process.stdout.fileno(), 65536)
        os.write(process.stdin.fileno(), go)
        session.finish()
        return (int(session.errors()) - begun_ns) / 1e9


def after_a_pause(*command: str) -> float:
    """A whole launch, after the same pause."""
    settle()
    return spawn_and_wait(*command)


def whole_run(receipts: Path, command: str) -> float:
    """Seconds from the start of ``contain run`` to its exit, its host's part included."""
    begun = time.perf_counter()
    with Session(receipts, program=CONTAIN) as session:
        session.request(command).until("prepared")
        session.go().finish()
    return time.perf_counter() - begun


def cancel_forest(receipts: Path, forest: str) -> float:
    """Seconds from ``cancel`` to ``released``: 1,000 processes gone, and that on disk."""
    with Session(receipts, program=CONTAIN) as session:
        session.start(forest)
        assert session.process.stderr is not None
        assert session.process.stderr.read(1) == b"+"
        begun = time.perf_counter()
        session.cancel(graceMs=0).until("released")
        return time.perf_counter() - begun


def kill_cgroup(cgroup: Path, forest: str) -> float:
    """Seconds from cgroup.kill to ``populated 0``, for the same tree without a containment."""
    into = f'echo 0 > {cgroup}/cgroup.procs && exec "$@"'
    with subprocess.Popen(["sh", "-c", into, "-", forest], stdout=subprocess.PIPE) as tree:
        assert tree.stdout is not None
        assert tree.stdout.read(1) == b"+"
        with (cgroup / "cgroup.events").open() as events:
            poll = select.poll()
            poll.register(events, select.POLLPRI)
            begun = time.perf_counter()
            (cgroup / "cgroup.kill").write_text("1")
            while "populated 1" in (events.seek(0), events.read())[1]:
                poll.poll(100)
            return time.perf_counter() - begun


@contextmanager
def own_cgroup() -> Iterator[Path | None]:
    """A fresh cgroup v2, or None where there is none for us."""
    for mount in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")):
        folder = mount / f"contain-bench-{os.getpid()}"
        if (mount / "cgroup.procs").exists() and os.access(mount, os.W_OK):
            folder.mkdir()
            try:
                yield folder
            finally:
                folder.rmdir()
            return
    yield None


def init_kb(receipts: Path) -> int:
    """Resident memory of an idle init, in kB."""
    with Session(receipts, program=CONTAIN) as session:
        init = session.start("sleep", "60")["namespaceInit"]["pid"]
        select.select([], [], [], 0.2)
        rollup = Path(f"/proc/{init}/smaps_rollup").read_text()
        session.hang_up().finish()
    return int(next(line.split()[1] for line in rollup.splitlines() if line.startswith("Rss:")))


def sync_floor(folder: Path, count: int) -> float:
    """Seconds of ``count`` bare durable replaces: write, fsync, rename, and one directory sync at the end."""
    directory = os.open(folder, os.O_RDONLY)
    begun = time.perf_counter()
    for number in range(count):
        fd = os.open("floor.tmp", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=directory)
        os.write(fd, b"x" * 600)
        os.fsync(fd)
        os.close(fd)
        os.rename("floor.tmp", f"floor-{number}", src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)
    took = time.perf_counter() - begun
    os.close(directory)
    return took


def dead_receipts(receipts: Path) -> Path:
    """A directory with ``RECEIPTS`` receipts of jobs whose wrapper was killed."""
    with Session(receipts, program=CONTAIN) as session:
        session.request("true").until("prepared")
    pattern = (receipts / f"{session.id}.prepared").read_text()
    (receipts / f"{session.id}.prepared").unlink()
    for _ in range(RECEIPTS):
        job_id = new_id()
        (receipts / f"{job_id}.running").write_text(pattern.replace(session.id, job_id))
    return receipts


def inspect_many(folder: Path, table: Table) -> None:
    """``inspect`` of a thousand receipts beside what the disk alone takes for them."""
    receipts = dead_receipts(private(folder / "many"))
    floor_s = sync_floor(private(folder / "floor"), RECEIPTS)
    begun = time.perf_counter()
    code, found = inspect(receipts, program=CONTAIN)
    took_s = time.perf_counter() - begun
    assert (code, len(found)) == (0, RECEIPTS), (code, len(found))
    table.row(
        f"inspect of {RECEIPTS} receipts, in s", f"{took_s:.2f} s", f"bare syncs {floor_s:.2f} s", took_s, 2
    )


def private(folder: Path) -> Path:
    """A new directory that receipts may lie in."""
    folder.mkdir(mode=0o700)
    return folder


def launches(rounds: int, folder: Path, table: Table) -> None:
    """Launch and whole one-shot run."""
    receipts = private(folder / "receipts")
    stamp = compile_command("stamp", folder)
    contestants: list[Callable[[], float]] = [
        lambda: first_instruction(receipts, stamp),
        lambda: after_a_pause(*BWRAP, stamp),
        lambda: after_a_pause(*UNSHARE, stamp),
        lambda: whole_run(receipts, "/bin/true"),
        lambda: spawn_and_wait(*BARE),
    ]
    first, bwrap, unshare, whole, bare = medians(contestants, rounds)
    claim = "request to first instruction, prepared and running durable"
    table.row(claim, ms(first), f"bwrap {ms(bwrap)}", ratio(first, bwrap), 0.45)
    table.row(
        "  the same (no target)", ms(first), f"unshare {ms(unshare)}", ratio(first, unshare), float("inf")
    )
    table.row(
        "whole contain run of true (peer: bare python)",
        ms(whole),
        f"python {ms(bare)}",
        ratio(whole, bare),
        4,
    )


def teardown(rounds: int, folder: Path, table: Table) -> None:
    """Cancel against cgroup.kill."""
    receipts = private(folder / "cancels")
    forest = compile_command("forest", folder)
    with own_cgroup() as cgroup:
        if cgroup is None:
            sys.stdout.write("no cgroup v2 that we may write: cancel is not compared\n")
            return
        contestants = [lambda: cancel_forest(receipts, forest), lambda: kill_cgroup(cgroup, forest)]
        ours, theirs = medians(contestants, rounds, 1)
    table.row(
        "cancel of 1,000 processes, to released",
        ms(ours),
        f"cgroup.kill {ms(theirs)}",
        ratio(ours, theirs),
        1.3,
    )


def main() -> int:
    """Prints the table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    missing = [tool for tool in ("bwrap", "unshare", "cc") if shutil.which(tool) is None]
    if missing:
        sys.stdout.write(
            f"The peers are not all here: install {', '.join(missing)} (bubblewrap, util-linux, gcc).\n"
        )
        return 2
    machine = f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores"
    sys.stdout.write(f"{machine}, {rounds} rounds\n")
    table = Table()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        launches(rounds, folder, table)
        teardown(max(3, rounds // 4), folder, table)
        used_kb = init_kb(private(folder / "idle"))
        table.row("resident memory of an idle init, kB", f"{used_kb} kB", "", used_kb, INIT_KB)
        inspect_many(folder, table)
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
