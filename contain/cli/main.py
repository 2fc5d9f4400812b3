"""The command ``contain``: finds the verb, and turns every error of ours into words and an exit code."""

from __future__ import annotations

import os
import sys

from contain.errors import ContainError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

USAGE = """\
usage: contain exec [OPTION...] -- COMMAND     run a command; contain exec --help tells more
       contain run [DIR]                       run one job; JSON lines on stdin and stdout
       contain serve [DIR]                     run many jobs for one host, by the same messages
       contain permit                          permits for a host in any language; JSON lines
       contain inspect [DIR] [ID]              what is true of one job, or of all; releases what is proven gone
       contain inspect [DIR] ID --finish       end a tree that is still alive, by its exact identity
       contain inspect [DIR] ID --forget --reason TEXT
                                               give up a receipt that nothing can settle; recorded
       contain status [--json | --watch]       who has what, who waits, how much is free
       contain why TICKET | -- COMMAND         every reason why it waits, or would
       contain cancel TICKET                   take a waiting request out of the queue
       contain hold --for TIME --reason TEXT [LANE...] | --lift ID
                                               pause new grants
       contain release --force PERMIT --reason TEXT
                                               return a permit without proof; recorded
       contain pool [--json] | quarantine NAME --reason TEXT | cool NAME --for TIME --reason TEXT | clear NAME
                                               lanes and pools: who has them; an ill one takes no new work
       contain repair [DIR...]                 rebuild a registry that cannot be read, from receipts; releases nothing
       contain costs [--json | --forget KEY | --forget-all]
                                               what finished jobs took, and the next are asked with
       contain policy show | check FILE | set NAME VALUE
       contain doctor [--json] [DIR]           what works here and at which tier, tried by a job; what to do else
       contain --version | --help

DIR holds the receipts, one private file a job; without it: .contain in the account's home.
"""

INTERRUPTED = 130
FIRST_FREE = 3


VERBS = {
    "exec": ("exec", "main"),
    "run": ("run", "main"),
    "serve": ("serve", "main"),
    "inspect": ("inspect", "main"),
    "status": ("status", "main"),
    "why": ("why", "main"),
    "cancel": ("tickets", "cancel"),
    "release": ("tickets", "release_permit"),
    "hold": ("hold", "main"),
    "permit": ("permits", "main"),
    "costs": ("costs", "main"),
    "policy": ("policy", "main"),
    "repair": ("repair", "main"),
    "pool": ("pool", "main"),
    "doctor": ("doctor", "main"),
}
"""A verb -> its module in this package, and the function there."""


def _verb(name: str) -> Callable[[list[str]], int]:
    """Imported when asked for: what one verb needs must not slow another's start."""
    if name not in VERBS:
        raise UsageError(f"There is no verb {name[:40]!r}.", advice="contain --help lists them.")
    module, function = VERBS[name]
    # __import__ and not importlib: the package would be one more module of every start.
    found: Callable[[list[str]], int] = getattr(
        getattr(__import__("contain.cli", fromlist=[module]), module), function
    )
    return found


def keep_standard_fds() -> None:
    """A caller may have closed 0, 1 or 2; the next file to be opened would then become the job's output."""
    while (fd := os.open(os.devnull, os.O_RDWR)) < FIRST_FREE:
        os.set_inheritable(fd, True)
    os.close(fd)


def main(argv: list[str] | None = None) -> int:
    """Runs a verb; returns its exit code. Errors of ours are three sentences on standard error."""
    args = sys.argv[1:] if argv is None else argv
    keep_standard_fds()
    try:
        if not args or args[0] in ("-h", "--help"):
            sys.stdout.write(USAGE)
            return 0 if args else UsageError.exit_code
        if args[0] == "--version":
            from contain import version

            sys.stdout.write(f"contain {version()}\n")
            return 0
        if args[1:2] in (["--help"], ["-h"]) and args[0] in VERBS and args[0] != "exec":
            sys.stdout.write(USAGE)
            return 0
        return _verb(args[0])(args[1:])
    except ContainError as error:
        complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


def complain(error: ContainError) -> None:
    """One line for a person. A closed standard error must not hide the exit code."""
    try:
        os.write(2, f"contain: {error}\n".encode("utf-8", "backslashreplace"))
    except OSError:
        pass
