"""launchd, by its own command: a job is loaded from a file, started at once, and removed again.

The file stands in a private folder before launchd is told of it and until the job is removed, so that a job whose
wrapper and supervisor were both killed can be found. It names our own programs, a socket and a birth: the command, its
arguments and its environment come over the socket (contain.darwin.meeting) and are never in it.
"""

from __future__ import annotations

import errno
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

LAUNCHCTL = "/bin/launchctl"
DOMAINS = ("gui", "user")
"""The account's session at the screen; where there is none (ssh), the account's own."""

PLIST = "job.plist"
REMOVED_S = 3.0
"""launchctl waits for the end of a job that it removes. Ours are over, or end by themselves soon."""

POLL_S = 0.005
MOST_SAID_BYTES = 4096
MOST_TOLD = 200


def service(domain: str, job_id: str) -> str:
    """What launchd knows the job as. No secret: receipts are named alike."""
    return f"{domain}/{os.getuid()}/contain.{job_id}"


def write(folder: str, target: str, words: Sequence[str]) -> str:
    """The path of a file that tells launchd what to run. Raises OSError."""
    import plistlib

    path = os.path.join(folder, PLIST)
    job = {
        "Label": target.rpartition("/")[2],
        "ProgramArguments": list(words),
        "RunAtLoad": True,
        "ProcessType": "Interactive",  # else it is throttled as a background service
    }
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as file:
        plistlib.dump(job, file)
    return path


class Call:
    """One run of launchctl, which is spawned and never waited for without an end."""

    def __init__(self, program: str, words: Sequence[str]) -> None:
        """Raises OSError."""
        self._said, writer = os.pipe()
        actions: list[tuple[int, int] | tuple[int, int, int] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, writer, 2),
        ]
        try:
            # A session of its own: when launchd clears the group of a supervisor that has asked for its own removal,
            # the asking goes on.
            self._pid = os.posix_spawn(
                program, [program, *words], {}, file_actions=actions, setsid=True, setsigmask=()
            )
        except OSError:
            os.close(self._said)
            raise
        finally:
            os.close(writer)
        self._status: int | None = None
        self.why = ""

    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        if self._status is None:
            try:
                pid, waited = os.waitpid(self._pid, os.WNOHANG)
            except OSError as error:
                if error.errno != errno.ECHILD:
                    raise
                pid, waited = (
                    self._pid,
                    0,
                )  # a host that waits for whatever comes: what it did is seen by its effect
            if pid != 0:
                self._status = os.waitstatus_to_exitcode(waited)
                self.why = _last_line(self._said)
                os.close(self._said)
        return self._status

    def wait(self, wait_s: float) -> int | None:
        """The same, within that time."""
        until_s = time.monotonic() + wait_s
        while self.status() is None and time.monotonic() < until_s:
            time.sleep(POLL_S)
        return self._status


def _last_line(fd: int) -> str:
    os.set_blocking(fd, False)
    try:
        lines = os.read(fd, MOST_SAID_BYTES).decode("utf-8", "replace").split("\n")
    except BlockingIOError:
        return "it said nothing"
    said = next((text.strip() for text in reversed(lines) if text.strip()), "it said nothing")
    return "".join(one for one in said if one.isprintable())[:MOST_TOLD]


def bootstrap(program: str, target: str, plist: str) -> Call:
    """Begins to load and start a job. Raises OSError."""
    return Call(program, ("bootstrap", target.rpartition("/")[0], plist))


def bootout(program: str, target: str, wait_s: float = REMOVED_S) -> None:
    """Removes a job, as far as that can be done: nothing of it runs, and one that was not loaded is no error."""
    try:
        Call(program, ("bootout", target)).wait(wait_s)
    except OSError:
        pass  # no launchctl: then there is no job of it either
