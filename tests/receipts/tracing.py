"""What a child really asks of the kernel: recorded, checked for its order, made to fail at any one call."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PROJECT = Path(__file__).resolve().parents[2]
LIVES = Path(__file__).with_name("lives.py")
# Those that the store makes. `?`: not every architecture has all of them (aarch64 has no rename).
_CALLS = """
    openat newfstatat statx fstat flock fchmod pwrite64 pread64 write read fsync fdatasync rename renameat
    renameat2 unlink unlinkat close getdents64 lseek fcntl dup ftruncate
""".split()  # noqa: SIM905 - a list to read
_ALL = ",".join("?" + call for call in _CALLS)
_LINE = re.compile(r"^(\w+)\((.*)\) += (-?\d+)")


class Call(NamedTuple):
    """One system call: its name, its number among those of that name, its text, its result."""

    name: str
    ordinal: int
    text: str
    result: int


_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def each(check: Callable[[_Item], _Found], items: Sequence[_Item]) -> list[_Found]:
    """Return `check` of each item, two at a time: most of the time is the start of a traced interpreter."""
    with ThreadPoolExecutor(2) as two:
        return list(two.map(check, items))


def child(directory: Path, kind: str, script: str) -> list[str]:
    """Return the command of one child of `lives.py`."""
    return [sys.executable, "-S", "-B", str(LIVES), str(directory), kind, script]


def environment() -> dict[str, str]:
    """Return an environment in which every start of the child makes the same calls."""
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(PROJECT), "PYTHONHASHSEED": "0"}


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a child to its end. A missing strace is a failure, not a skip: these tests are the proof."""
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=50, check=False)


def record(directory: Path, kind: str, script: str, log: Path) -> list[Call]:
    """Return the calls of one life between its marks, descriptors shown as paths."""
    strace = ["strace", "-y", "-s", "64", "-o", str(log), "-e", f"trace={_ALL}"]
    done = run([*strace, *child(directory, kind, script)])
    assert done.returncode == 0, done.stderr
    seen: dict[str, int] = {}
    calls = []
    inside = False
    for line in log.read_text(errors="replace").splitlines():
        match = _LINE.match(line)
        if not match:
            continue
        name, text, result = match.groups()
        seen[name] = seen.get(name, 0) + 1
        if "-of-life" in text:
            inside = "begin-of-life" in text
        elif inside:
            calls.append(Call(name, seen[name], text, int(result)))
    assert calls, "the marks were not seen"
    return calls


def sabotage(
    directory: Path, script: str, call: Call, fault: str, kind: str = "real"
) -> subprocess.CompletedProcess[str]:
    """Run a child in which exactly this call fails (`error=EIO`) or is the last (`signal=KILL`)."""
    log = directory.with_suffix(".log")
    # Not with --seccomp-bpf: strace 6.1 then injects errors and silently no signals.
    inject = f"inject={call.name}:{fault}:when={call.ordinal}"
    done = run(
        ["strace", "-o", str(log), "-e", f"trace={call.name}", "-e", inject, *child(directory, kind, script)]
    )
    text = log.read_text(errors="replace")
    assert "(INJECTED)" in text or "+++ killed by SIGKILL +++" in text, f"the fault was not felt: {call}"
    return done


def misorders(calls: list[Call], directory: Path) -> list[str]:
    """Return where the order write, fsync(file), rename, fsync(directory), say, unlink is broken."""
    wrong = []
    unsynced: set[str] = set()
    undurable = False
    for name, _, text, _ in calls:
        first = re.match(r"\d+<([^>]*)>", text)
        target = first.group(1) if first else ""
        paths = re.findall(r'"([^"]*)"', text)
        if name == "write" and target.startswith(str(directory)):
            unsynced.add(target.rsplit("/", 1)[1])
            if not target.endswith(".tmp"):
                wrong.append(f"written under its name: {text}")
        elif name in ("fsync", "fdatasync"):
            unsynced.discard(target.rsplit("/", 1)[1])
            undurable = undurable and target != str(directory)
        elif name.startswith("rename"):
            if paths[0] in unsynced:
                wrong.append(f"renamed before its data was synced: {text}")
            undurable = True
        elif name == "write" and text.startswith("1<") and undurable:
            wrong.append(f"said before it was durable: {text}")
        elif name.startswith("unlink") and undurable and not paths[0].endswith((".tmp", ".lock")):
            wrong.append(f"dropped before the newer was durable: {text}")
    return wrong
