"""``contain permit``: the budget for hosts in any language, as JSON lines. docs/PROTOCOL.md has the messages."""

from __future__ import annotations

import gc
import os

from contain.budget import nested
from contain.budget.counter import Counter
from contain.budget.opening import find_root, open_budget
from contain.cli.desk import say
from contain.cli.main import complain
from contain.errors import ContainError, NestedRefused, UsageError
from contain.lifecycle.loop import Signals
from contain.platform import backend as find_backend
from contain.protocol import refused, reply

SIGNALED = 128


def main(args: list[str]) -> int:
    """Serves until the end of input or a signal; 0 at the end of input."""
    if args:
        raise UsageError("contain permit takes no words and no options.", advice="contain --help shows it.")
    gc.enable()  # bin/contain disables it for one job; of thousands the garbage must go
    signals = Signals()
    backend = find_backend()
    try:
        backend.check_host()
        open_files = backend.raise_open_files()
        backend.name_process("contain")
        root = find_root(backend)
        outer = nested.ask(root, os.environ, backend, ())
        if outer is not None:
            outer[1].close()
            raise NestedRefused(
                "This runs inside a job that has a permit: what it starts runs under that one.",
                advice="Start contain permit outside, or use contain exec inside.",
            )
        desk = open_budget(backend, root).desk(say)
        Counter(backend, desk, signals, open_files=open_files).run()
    except ContainError as error:
        try:
            os.write(1, reply(refused(error, None), None))
        except OSError:
            pass  # the exit code and standard error tell it too
        complain(error)
        return error.exit_code
    return SIGNALED + signals.first if signals.first else 0
