"""``contain`` with the Darwin backend on a fake XNU: ``-m tests.darwin.on_fake LIBRARY PROGRAM VERB ARGS...``."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import contain.platform
from contain.darwin.backend import DarwinBackend


def main() -> int:
    """Everything above the backend is the product's own."""
    library, program = sys.argv[1], sys.argv[2]
    launchctl = str(Path(library).with_name("launchctl"))  # where a world has it
    contain.platform.backend = functools.partial(
        DarwinBackend, library=library, program=program, launchctl=launchctl
    )
    from contain.cli.main import main as verb  # noqa: PLC0415 - it takes the backend as it is then

    return verb(sys.argv[3:])


if __name__ == "__main__":
    sys.exit(main())
