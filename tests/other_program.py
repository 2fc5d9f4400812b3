"""``contain`` with another contain-init, for tests: ``python other_program.py PROGRAM VERB ARGS...``."""

from __future__ import annotations

import sys

from contain.cli.main import main
from contain.linux import native

native.PROGRAM = sys.argv[1]
sys.exit(main(sys.argv[2:]))
