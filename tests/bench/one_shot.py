"""One job a process: ``contain run`` and ``contain exec`` from their start to their end, and the end of a tree."""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.contestants import (
    BARE,
    BWRAP,
    CONTAIN,
    UNSHARE,
    after_a_pause,
    private,
    settle,
    spawn_and_wait,
)
from tests.bench.programs import compile_command
from tests.bench.table import Table, medians, ms, ratio
from tests.session import TOKEN, Session, in_namespace, inspect, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RECEIPTS = 1000
INIT_KB = 64


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


def help_shown() -> float:
    """Seconds of ``contain --help``."""
    return spawn_and_wait(*CONTAIN, "--help")


def executed(receipts: Path, command: str) -> float:
    """Seconds of a whole ``contain exec``."""
    return spawn_and_wait(*CONTAIN, "exec", "--no-budget", "--receipts", str(receipts), "--", command)


def launches(rounds: int, folder: Path, table: Table) -> None:
    """Launch and whole one-shot run."""
    receipts = private(folder / "receipts")
    stamp = compile_command("stamp", folder)
    contestants: list[Callable[[], float]] = [
        lambda: first_instruction(receipts, stamp),
        lambda: after_a_pause(*BWRAP, stamp),
        lambda: after_a_pause(*UNSHARE, stamp),
    ]
    first, bwrap, unshare = medians(contestants, rounds)
    claim = "request to first instruction, contain run, two receipts durable"
    table.row(claim, ms(first), f"bwrap {ms(bwrap)}", ratio(first, bwrap), 0.45)
    table.row("  the same", ms(first), f"unshare {ms(unshare)}", ratio(first, unshare), float("inf"))
    contestants = [
        lambda: whole_run(receipts, "/bin/true"),
        lambda: executed(receipts, "/bin/true"),
        help_shown,
        lambda: spawn_and_wait(*BARE),
    ]
    whole, execed, helped, bare = medians(contestants, rounds)
    python = f"python {ms(bare)}"
    table.row(
        "7 whole contain run of true, its host's part included", ms(whole), python, ratio(whole, bare), 4
    )
    table.row("7 whole contain exec of true", ms(execed), python, ratio(execed, bare), 4)
    table.row("7 contain --help, in ms", ms(helped), "", statistics.median(helped) * 1000, 60)


def killed_wrapper(receipts: Path, forest: str) -> float:
    """Seconds from SIGKILL of the wrapper to an empty namespace."""
    with Session(receipts, program=CONTAIN) as session:
        namespace_init = session.start(forest)["namespaceInit"]
        assert session.process.stderr is not None
        assert session.process.stderr.read(1) == b"+"
        init = os.pidfd_open(namespace_init["pid"])
        try:
            begun = time.perf_counter()
            session.process.kill()
            select.select([init], [], [])
            took_s = time.perf_counter() - begun
        finally:
            os.close(init)
        assert not in_namespace(namespace_init["namespace"])
        return took_s


def teardown(rounds: int, folder: Path, table: Table) -> None:
    """Cancel against cgroup.kill, and a killed wrapper against cancel."""
    receipts = private(folder / "cancels")
    forest = compile_command("forest", folder)
    with own_cgroup() as cgroup:
        if cgroup is None:
            sys.stdout.write("no cgroup v2 that we may write: cancel is not compared\n")
            return
        contestants = [
            lambda: cancel_forest(receipts, forest),
            lambda: kill_cgroup(cgroup, forest),
            lambda: killed_wrapper(receipts, forest),
        ]
        ours, theirs, killed = medians(contestants, rounds, 1)
    peer = f"cgroup.kill {ms(theirs)}"
    table.row("6 cancel of 1,000 processes, to released", ms(ours), peer, ratio(ours, theirs), 1.3)
    cancel = f"cancel {ms(ours)}"
    table.row("6 SIGKILL of the wrapper to an empty namespace", ms(killed), cancel, ratio(killed, ours), 1.3)


def idle(folder: Path, table: Table) -> None:
    """What one idle job keeps."""
    used_kb = init_kb(private(folder / "idle"))
    table.row("4 resident memory of an idle init, kB", f"{used_kb} kB", "", used_kb, INIT_KB)
