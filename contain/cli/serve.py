"""``contain serve [DIR]``: many jobs for one host, by the messages of ``contain run`` on one pair of pipes."""

from __future__ import annotations

import gc
import os

from contain.cli.main import complain
from contain.cli.place import open_receipts
from contain.errors import ContainError, UsageError
from contain.lifecycle.loop import Signals
from contain.lifecycle.serving import Serving
from contain.platform import backend as find_backend
from contain.protocol import refused, reply

SIGNALED = 128


def main(args: list[str]) -> int:
    """Serves until the end of input or a signal; 0 where every job that was prepared is released."""
    if len(args) > 1 or any(arg.startswith("-") for arg in args):
        raise UsageError(
            "contain serve takes one directory and no options.", advice="contain --help shows it."
        )
    gc.enable()  # bin/contain disables it for one job; of thousands the garbage must go
    signals = Signals()
    backend = find_backend()
    try:
        backend.check_host()
        open_files = backend.raise_open_files()
        backend.start()
        backend.name_process("contain")
        place, store = open_receipts(args[0] if args else None, backend, create=True)
        serving = Serving(backend, place, store, signals, open_files=open_files)
        serving.run()
    except ContainError as error:
        _say_refused(error)
        complain(error)
        return error.exit_code
    finally:
        backend.stop()
    if serving.error is not None:
        complain(serving.error)
        return serving.error.exit_code
    return SIGNALED + signals.first if signals.first else 0


def _say_refused(error: ContainError) -> None:
    """Before the first line is read: it is short, and the pipe is empty."""
    try:
        os.write(1, reply(refused(error, None), None))
    except OSError:
        pass  # the exit code and standard error tell it too
