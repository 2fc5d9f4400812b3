"""From a caller's words to a Job: the options that all four functions take."""

from __future__ import annotations

import os
import warnings
from typing import Any, TypedDict

from contain.api.contained import Contained
from contain.api.engine import engine, opened
from contain.api.handle import milliseconds
from contain.api.streams import PIPE, Stream, Streams, as_bytes
from contain.errors import ImpossibleRequest
from contain.job import GRACE_MS, KILL_MS, NETWORKS, TIERS, Job, Limits, check_bytes, new_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

Word = str | bytes | os.PathLike[Any]
"""What the kernel is to get as one string."""


class Options(TypedDict, total=False):
    """What a job may be asked to be. Times in seconds."""

    cwd: Word | None
    env: Mapping[str, str] | Mapping[bytes, bytes] | None
    """The whole environment; None: this process's."""
    timeout: float | None
    """From the start to the command's end; then TERM, and KILL after the grace."""
    limits: Limits
    require_limits: bool
    """Refuse the job where a limit of the whole tree cannot be had."""
    grace_s: float
    """From a TERM that ends the job to KILL, and how long leftovers may live before theirs."""
    kill_s: float
    """From the leftovers' TERM to their KILL."""
    no_new_privs: bool
    drop_capabilities: Collection[str]
    network: str
    """``host``, or ``none``: nothing but a loopback of its own."""
    require_tier: str | None
    sample_memory: bool
    """Look once a second at the memory of the whole tree, where no cgroup of its own tells its peak."""
    pass_fds: Collection[int]
    """Further descriptors that the command gets, under the same numbers."""
    receipts: Word | None
    """The directory of receipts; None: the account's own."""


class Wanted:
    """One request of a caller: the job, its directory of receipts, and how its streams are treated."""

    def __init__(
        self,
        args: Sequence[Word],
        options: Options,
        *,
        text: bool,
        encoding: str | None,
        errors: str | None,
    ) -> None:
        """Raises ImpossibleRequest for what no kernel could run, TypeError and ValueError for what is no option."""
        if isinstance(args, str | bytes | os.PathLike):
            raise TypeError("args is a sequence: the command, then its arguments; no shell is involved")
        self.args = tuple(os.fsdecode(word) for word in args)
        if not self.args or not self.args[0]:
            raise ValueError("args has no command")
        self.text = text or encoding is not None or errors is not None
        self.encoding = encoding
        self.errors = errors
        receipts = options.get("receipts")
        # Joined and not normalised: `link/..` means to the kernel what it means.
        self.directory = None if receipts is None else os.path.join(os.getcwd(), os.fsdecode(receipts))
        self.job = _job(self.args, options)

    def launch(
        self,
        stdin: Stream,
        stdout: Stream,
        stderr: Stream,
        *,
        feed: str | bytes | None = None,
        collect: bool = False,
    ) -> Contained:
        """Opens the streams and hands the job to the engine; ``begun`` of what is returned comes later."""
        running = engine()
        streams = opened(running, lambda: Streams(PIPE if feed is not None else stdin, stdout, stderr))
        if isinstance(feed, str):
            feed = as_bytes(feed, self.encoding, self.errors)
        contained = Contained(
            running,
            self.job.replace(stdio=streams.job),
            self.directory,
            streams,
            feed=feed,
            collect=collect,
        )
        running.launch(contained)
        return contained


def _job(args: tuple[str, ...], options: Options) -> Job:
    if unknown := set(options) - Options.__annotations__.keys():
        raise TypeError(f"unknown option: {min(unknown)}")
    for text in args:
        check_bytes(text, "An argument")
    timeout, cwd, env = options.get("timeout"), options.get("cwd"), options.get("env")
    network, tier = options.get("network", "host"), options.get("require_tier")
    if network not in NETWORKS:
        raise ValueError(f"network must be one of {', '.join(NETWORKS)}")
    if tier is not None and tier not in TIERS:
        raise ValueError(f"require_tier must be one of {', '.join(TIERS)}")
    return Job(
        id=new_id(),
        permit_id=new_id(),
        command=args[0],
        args=args[1:],
        cwd=None if cwd is None else os.fsdecode(cwd),
        env=None if env is None else _environment(env),
        limits=options.get("limits", Limits()),
        grace_ms=milliseconds(options["grace_s"]) if "grace_s" in options else GRACE_MS,
        kill_ms=milliseconds(options["kill_s"]) if "kill_s" in options else KILL_MS,
        timeout_ms=None if timeout is None else milliseconds(timeout),
        require_tier=tier,
        require_limits=options.get("require_limits", False),
        no_new_privs=options.get("no_new_privs", False),
        drop_capabilities=tuple(options.get("drop_capabilities", ())),
        network=network,
        sample_memory=options.get("sample_memory", False),
        keep_fds=tuple(options.get("pass_fds", ())),
    )


def _environment(env: Mapping[Any, Any]) -> dict[str, str]:
    found = {os.fsdecode(name): os.fsdecode(text) for name, text in env.items()}
    if any(not name or "=" in name for name in found):
        raise ImpossibleRequest("A name in env is empty or holds '='.", advice="Leave it out.")
    return found


def told(contained: Contained) -> None:
    """After ``begun``: raises why it could not be launched, and passes on what a person should know once."""
    if contained.note is not None:
        warnings.warn(f"contain: {contained.note}", RuntimeWarning, stacklevel=4)
    if contained.over.is_set() and contained.receipt is None and contained.error is not None:
        raise contained.error.with_traceback(None)
