"""The wrapper's side of a supervisor that launchd has started, in a coalition that is the job's alone.

Nobody who is born in a coalition can leave it, and only launchd makes one: that is what the job is wanted for. So it is
looked at first, before the supervisor is told anything, and a job that launchd has put anywhere else is refused.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time

from contain.darwin import command, launchd
from contain.darwin.meeting import Meeting
from contain.darwin.supervisor import ABOVE_CHANNEL, ANSWER_S, PACKAGES, Supervisor
from contain.errors import SetupFailed, TierTooWeak

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contain.backend import Birth
    from contain.darwin.libproc import Libproc

START = "import sys; sys.path.insert(0, sys.argv[1]); from contain.darwin.launchd_job import main; main(*sys.argv[2:])"
LOOK_S = 0.01
"""Between two looks whether launchctl has given up, and whether the supervisor is alone."""

MOST_LOOKS = 10
WEAKER = "Ask for the session tier instead: --require-tier session."


class LaunchedSupervisor(Supervisor):
    """A supervisor that is launchd's child. ``retire`` removes it from launchd; it is called on every way out."""

    def __init__(self, libproc: Libproc, program: str, launchctl: str, job_id: str) -> None:
        """Begins to ask launchd for it. Raises TierTooWeak."""
        self._libproc = libproc
        self._program = program
        self._launchctl = launchctl
        self._job_id = job_id
        self._domains = list(launchd.DOMAINS)
        self._kept: list[int] = []
        self._asked: tuple[Mapping[str, object], bytes] | None = None
        self._met = self._retired = False
        self.own: Sequence[Birth] = ()
        try:
            self._meeting = Meeting(libproc)
        except OSError as error:
            raise SetupFailed(
                f"There is no place to meet a supervisor of launchd's ({error.strerror}).",
                step="launchd",
                advice="Look whether files can be made in /tmp.",
            ) from None
        try:
            self._bootstrap()
        except BaseException:
            self._meeting.close()
            raise

    def _bootstrap(self) -> None:
        """Asks the next domain. The file is there before launchd hears of it."""
        self.service = launchd.service(self._domains.pop(0), self._job_id)
        path, pid, unique_id = self._meeting.words()
        words = [sys.executable, "-I", "-B", "-c", START, PACKAGES]
        words += [self._libproc.handle.path or "", self._program, self._launchctl]
        words += [path, pid, unique_id, self.service]
        try:
            plist = launchd.write(self._meeting.folder, self.service, words)
            self._call = launchd.bootstrap(self._launchctl, self.service, plist)
        except OSError as error:
            raise _refusal(f"launchctl cannot be run: {error.strerror}") from None

    def launch(self, fds: Sequence[int], request: Mapping[str, object], block: bytes) -> None:
        """Keeps the job, and copies of its descriptors, until the supervisor has come."""
        self._kept = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, ABOVE_CHANNEL) for fd in fds]
        self._asked = (request, block)

    def answer(self, wait_s: float = ANSWER_S) -> dict[str, object]:
        """See Supervisor; the first waits for the supervisor itself. Raises TierTooWeak where that is not enclosed."""
        if self._asked is not None:
            request, block = self._asked
            self._meet()
            self._probe()
            more = {"service": self.service, "inherit": command.inheritance()}
            super().launch(self._kept, {**request, **more}, block)
            self._asked = None
            self._let_go()
        return super().answer(wait_s)

    def _meet(self) -> None:
        until_s = time.monotonic() + ANSWER_S
        while (found := self._meeting.accept(LOOK_S)) is None:
            if (status := self._call.status()) not in (None, 0):
                if not self._domains:
                    raise _refusal(f"launchctl ended with {status}: {self._call.why}")
                self._bootstrap()
            if time.monotonic() > until_s:
                raise SetupFailed(
                    f"launchd was asked for a supervisor, and none came within {ANSWER_S:g} s.",
                    step="launchd",
                    advice="Look whether this account may have background items. " + WEAKER,
                )
        self._meeting.over()
        self._call.wait(launchd.REMOVED_S)  # it has done its work, and is not to be anybody's zombie
        self._channel, born = found
        self._met, self.pid, self.own = True, born.pid, (born,)

    def _probe(self) -> None:
        """Whether it is in a coalition that is not ours, and alone in it: all that is in there will be killed."""
        try:
            ours = self._libproc.coalition(os.getpid())
            theirs = self._libproc.coalition(self.pid)
            for _ in range(MOST_LOOKS):
                tasks = self._libproc.tasks(theirs)
                if theirs == ours or tasks == 1:
                    break
                time.sleep(LOOK_S)  # the end of who was there before an exec is soon
        except OSError as error:
            raise _refusal(f"a coalition cannot be read: {error.strerror}") from None
        if theirs == ours:
            raise _refusal(f"it has given the job no coalition of its own, but ours, {ours}")
        if tasks != 1:
            raise _refusal(f"the coalition {theirs} that it has given the job has {tasks} processes already")

    def _let_go(self) -> None:
        while self._kept:
            os.close(self._kept.pop())

    def retire(self) -> None:
        """Removes the job from launchd, once. Bounded."""
        if not self._retired:
            self._retired = True
            self._call.wait(launchd.REMOVED_S)
            launchd.bootout(self._launchctl, self.service)

    def close(self) -> None:
        """Hangs up, at which a living supervisor ends its job and removes itself; one that is gone is removed here."""
        self._let_go()
        self._asked = None
        if self._met:
            while self.fileno() >= 0 and not self.over and self.said() is not None:
                pass
            gone = self.over
            self._channel.close()
        if not self._met or gone:
            self.retire()
        self._meeting.close()

    def abandon(self) -> None:
        """In a forked child: closes its copies."""
        self._let_go()
        self._meeting.over()
        if self._met:
            self._channel.close()


def _refusal(why: str) -> TierTooWeak:
    return TierTooWeak(f"launchd gives this job no tier of its own here ({why}).", advice=WEAKER)
