"""``python -m tests.faults``, as root: kills by the thousand, in an account's root of their own.

    --kills N [--limit UNITS] [--seed NUMBER]     random kills and stops of wrappers, keepers, inits and jobs
    --calls [--first N] [--stride N]              a wrapper is killed at each of its system calls

Prints a report as JSON, and fails when anything that may not be was seen.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.faults.campaign import hold
from tests.faults.crowd import Place
from tests.faults.stage import apart, compiled_marker, new_root
from tests.faults.sweep import through
from tests.faults.verdict import faults
from tests.survivors import adopting


def parsed(words: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults")
    parser.add_argument("--kills", type=int, default=2000)
    parser.add_argument("--limit", type=int, default=2)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--calls", action="store_true")
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--staged", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(words)


def main() -> int:
    """Stages itself in a mount namespace first."""
    options = parsed(sys.argv[1:])
    if not options.staged:
        return subprocess.run(apart(["tests.faults", "--staged", *sys.argv[1:]]), check=False).returncode
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    limit = 1 if options.calls else options.limit
    root = new_root(limit)
    with tempfile.TemporaryDirectory(prefix="contain-faults-") as name:
        folder = Path(name)
        place = Place(folder, compiled_marker(folder), limit)
        with adopting():
            if options.calls:
                report = through(place, root, options.first, options.stride)
            else:
                report = hold(place, root, seed, options.kills)
    wrong = faults(report)
    sys.stdout.write(json.dumps({**report, "faults": wrong}, indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
