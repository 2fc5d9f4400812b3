"""A long-lived process that uses the Python API: ``python -m tests.bench.worker RECEIPTS [BALLAST_MB]``.

A request is one JSON line on standard input, its answer one number (seconds) on standard output.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack

import contain

DURABLE_BYTES = 600


def whole(command: str, receipts: str) -> float:
    """A whole job: from the call to its return, the tree gone and both receipts written."""
    begun = time.perf_counter()
    contain.run([command], receipts=receipts, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def first(command: str, receipts: str) -> float:
    """From the call to the command's first instruction, which the command itself tells."""
    begun_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = contain.run([command], receipts=receipts, capture_output=True)
    return (int(done.stdout) - begun_ns) / 1e9


def bare(command: str) -> float:
    """The same command without any containment."""
    begun = time.perf_counter()
    subprocess.run([command], check=True)
    return time.perf_counter() - begun


def replaces(receipts: str, count: int) -> float:
    """Bare durable replaces: write, fsync, rename, fsync of the directory."""
    folder = os.open(receipts, os.O_RDONLY | os.O_DIRECTORY)
    begun = time.perf_counter()
    for number in range(count):
        fd = os.open("floor.tmp", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=folder)
        os.write(fd, b"x" * DURABLE_BYTES)
        os.fsync(fd)
        os.close(fd)
        os.rename("floor.tmp", f"floor-{number}", src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    took = time.perf_counter() - begun
    os.close(folder)
    return took


def burst(command: str, receipts: str, seconds: float) -> float:
    """Seconds per job, one after the other for so long."""
    count, begun = 0, time.perf_counter()
    while (now := time.perf_counter()) - begun < seconds:
        contain.run([command], receipts=receipts)
        count += 1
    return (now - begun) / max(1, count)


def main() -> int:
    """Serves requests until the input ends."""
    receipts = sys.argv[1]
    ballast = bytearray(os.urandom(1 << 20)) * int(sys.argv[2] if len(sys.argv) > 2 else "0")
    with ExitStack() as idle:
        for text in sys.stdin:
            what, *args = json.loads(text)
            if what == "whole":
                took = whole(args[0], receipts)
            elif what == "first":
                took = first(args[0], receipts)
            elif what == "bare":
                took = bare(args[0])
            elif what == "replaces":
                took = replaces(receipts, args[0])
            elif what == "burst":
                took = burst(args[0], receipts, args[1])
            else:
                begun = time.perf_counter()
                for _ in range(args[1]):
                    idle.enter_context(contain.start([args[0]], receipts=receipts, grace_s=0.0))
                took = time.perf_counter() - begun
            sys.stdout.write(f"{took}\n")
            sys.stdout.flush()
    return len(ballast) < 0


if __name__ == "__main__":
    sys.exit(main())
