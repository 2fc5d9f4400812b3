"""The table of speed: ``python -m tests.bench [ROUNDS]``. Exit 1 when a target is missed."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

from tests.bench import long_lived, one_shot
from tests.bench.table import Table


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
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix="bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # a plain user's worker goes through
        long_lived.whole_jobs(4 * rounds, folder, table)
        long_lived.weights(2 * rounds, folder, table)
        long_lived.rates(max(5, rounds // 3), folder, table)
        one_shot.launches(rounds, folder, table)
        one_shot.teardown(max(3, rounds // 4), folder, table)
        one_shot.idle(folder, table)
        one_shot.inspect_many(folder, table)
    return 1 if table.missed else 0


if __name__ == "__main__":
    sys.exit(main())
