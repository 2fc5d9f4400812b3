"""Processes that ask for one unit again and again: ``python -m tests.bench.askers COUNT HOLD_S LOG``.

Each writes a line to LOG for every grant: when it was read, and when the release after it began (ns of
CLOCK_MONOTONIC, 0 for a release that never began). The ids of all are the first line on standard output; they end with
standard input.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

from contain.budget.arbiter import Ticket
from contain.budget.opening import open_budget
from contain.budget.queue.waiting import Waiting
from contain.job import new_id
from contain.platform import backend as find_backend


def ask_again_and_again(name: str, hold_s: float, log: int) -> None:
    """Never returns."""
    backend = find_backend()
    desk = open_budget(backend).desk(lambda _: None)
    while True:
        ticket = Ticket(id=new_id(), seq=0, session=name)
        waiting = Waiting(desk, backend, ticket, until_s=None, interrupts=None, tell=lambda _: None)
        waiting.run()
        granted_ns = time.monotonic_ns()
        waiting.bell.close()
        os.write(log, f"{granted_ns} 0\n".encode())
        select.select([], [], [], hold_s)
        begun_ns = time.monotonic_ns()
        desk.release(ticket.id, "measured")
        os.write(log, f"{granted_ns} {begun_ns}\n".encode())


def main() -> int:
    """Forks: a thousand interpreters would be measured otherwise, and not what they do."""
    count, hold_s = int(sys.argv[1]), float(sys.argv[2])
    log = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    children = []
    for number in range(count):
        pid = os.fork()
        if not pid:
            ask_again_and_again(f"asker{number}", hold_s, log)
        children.append(pid)
    sys.stdout.write(" ".join(str(pid) for pid in children) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
