"""The table of speed: ``python -m tests.bench [budget] [ROUNDS]``. Exit 1 when a target is missed.

With ``budget``: what the budget costs and promises, in an account's root of its own (a quarter of an hour).
"""

from __future__ import annotations

import compileall
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

import contain
import receipts
from tests.bench import account, fairness, grants, jobs, long_lived, one_shot
from tests.bench.table import Table

BUDGET = "budget"


def main() -> int:
    """Prints the table."""
    words = sys.argv[1:]
    part = words.pop(0) if words[:1] == [BUDGET] else ""
    rounds = int(words[0]) if words else 30
    peers = ("unshare",) if part else ("bwrap", "unshare", "cc")
    missing = [tool for tool in peers if shutil.which(tool) is None]
    if missing:
        sys.stdout.write(
            f"The peers are not all here: install {', '.join(missing)} (bubblewrap, util-linux, gcc).\n"
        )
        return 2
    compiled()
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as name:
        folder = Path(name)
        if part and account.INSIDE not in os.environ:
            return account.enter(sys.argv[1:], folder)
        machine = f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores"
        sys.stdout.write(f"{machine}, {rounds} rounds\n")
        table = Table()
        if part:
            budget(rounds, folder, table)
        else:
            containment(rounds, folder, table)
    return 1 if table.missed else 0


def compiled() -> None:
    """As pip does where it installs: an editable installation that may not write byte code compiles at every start."""
    for package in (contain, receipts):
        compileall.compile_dir(str(Path(str(package.__file__)).parent), quiet=1)


def containment(rounds: int, folder: Path, table: Table) -> None:
    """Everything but the budget."""
    folder.chmod(0o755)  # a plain user's worker goes through
    long_lived.whole_jobs(4 * rounds, folder, table)
    long_lived.weights(2 * rounds, folder, table)
    long_lived.rates(max(5, rounds // 3), folder, table)
    one_shot.launches(rounds, folder, table)
    one_shot.teardown(max(3, rounds // 4), folder, table)
    one_shot.idle(folder, table)
    one_shot.inspect_many(folder, table)


def budget(rounds: int, folder: Path, table: Table) -> None:
    """Permits: their price, their speed, and whose turn it is."""
    missing = jobs.absent(folder)
    if missing:
        sys.stdout.write(f"absent, and not compared: {', '.join(missing)}\n")
    jobs.environment(folder)
    try:
        jobs.launches(rounds, folder, table)
        jobs.handovers(folder, table)
        jobs.ten_jobs(folder, table)
        jobs.ninjas(folder, table)
        grants.grants(folder, table)
        grants.crowd(table)
        fairness.replays(table)
        fairness.simulated(table)
        fairness.full_size(folder, table)
        fairness.live(folder, table)
    finally:
        jobs.close(folder)


if __name__ == "__main__":
    sys.exit(main())
