"""The supervisor: one process a job, between wrapper and anchor. When the wrapper goes, it ends the job and itself.

    wrapper --socket--> supervisor --socket--> anchor, the leader of the group --> command

It is the wrapper's child, or launchd's (contain.darwin.launchd_job).

It holds the anchor as its unreaped child, so that the group's number stays the job's; it looks who leaves; and it alone
says that the job is over. With a recorded proof instead of a command it ends what a killed supervisor has left.
"""

from __future__ import annotations

import os
import time

from contain.csignal import csignal as signal
from contain.darwin import anchored, birth, census, channel, command, ending, layout, lineage, mark, wire
from contain.darwin.handle import opened
from contain.darwin.kqueue import Kqueue
from contain.darwin.libproc import Libproc
from contain.darwin.lineage import Lineage
from receipts import Anchor, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Protocol

    class WrapperProcess(Protocol):
        """The wrapper, as a process."""

        pid: int

        def gone(self) -> bool:
            """True only on proof."""


CHANNEL = 3
FIRST_FREE = 4
MOST_OPEN = 4096
ABOVE_KEPT = 512
LOOK_S = 0.25
"""While the command runs: what no event has told (a parent that changed, a child of a child)."""
LEFT_S = 0.02
"""While only leftovers run: how soon their end is seen."""
SOON_S = 0.01
"""Between two looks for descendants that forks have asked for."""
KILL_S = 4.0
"""Less than the wrapper waits before it says held, so that it can say why."""
AGAIN_S = 1.0
"""Between two attempts at what did not end."""
IGNORED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGPIPE,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
)


class Parent:
    """A wrapper whose child we are."""

    def __init__(self) -> None:
        """As it is now."""
        self.pid = os.getppid()

    def gone(self) -> bool:
        """Its children are given to another at that."""
        return os.getppid() != self.pid


class Supervision:
    """One job, from its anchor's birth to its proven end."""

    def __init__(
        self,
        wrapper: channel.Channel,
        libproc: Libproc,
        request: Mapping[str, Any],
        process: WrapperProcess,
    ) -> None:
        """Nothing is started yet."""
        self.wrapper = wrapper
        self.libproc = libproc
        self.request = request
        self.process = process
        self.kqueue: Kqueue | None = None
        self.ended = False
        self.started = False
        self.term_s: float | None = None
        self.kill_s: float | None = None
        self.last_scan_s = 0.0
        self.usage: dict[str, object] = {"user_us": 0, "system_us": 0, "max_rss_bytes": 0, "processes": 0}
        self.watched: set[int] = set()
        self.leader: anchored.Leader
        self.proof: Anchor
        self.tree: census.Tree
        self.lineage: Lineage

    def say(self, event: str, **more: object) -> None:
        """To the wrapper; one that is gone is seen by its end."""
        try:
            self.wrapper.send({"event": event, **more})
        except OSError:
            self.wrapper.over = True

    def prepare(self, program: str, fds: list[int], block: bytes) -> bool:
        """The anchor stands, knows its command, and waits at the gate. False: the wrapper was told why not."""
        session = bool(self.request["session"])
        fds = [_high(fd) for fd in fds]
        kept = [*zip(fds[4:], self.request["keep"], strict=True)]
        service: str | None = self.request.get("service")
        path, mark_fd = None, -1
        try:
            if service is None:  # else nobody can leave, and there is nothing to mark
                path, mark_fd, _ = mark.make()  # locked as long as this process lives
                mark_fd = _high(mark_fd)
                kept += [(mark_fd, _free(self.request["keep"]))]
            self.leader = anchored.Leader(program, fds[:4], kept, session=session)
            self.leader.tell(block)
            report = self.leader.report()
            self.proof = self.leader.prove(self.libproc, session=session, service=service)
            own = () if service is None else (birth.take(self.libproc, os.getpid()),)
        except OSError as error:
            self.say("broke", step="anchor", errno=error.errno or 0)
            if path is not None:
                mark.remove(path)
            return False
        finally:
            for fd in (*fds, *([mark_fd] if mark_fd >= 0 else [])):
                os.close(fd)
        self.tree = census.Tree(self.libproc, self.proof, own)
        self.lineage = Lineage(self.tree, path)
        if report is None or report.kind != wire.READY:
            self.say("broke", step="anchor", errno=0)
            self.finish()
            return False
        self._watch()
        self.say("ready", proof=encode(self.proof))
        return True

    def _watch(self) -> None:
        """Without a kqueue it looks by the clock: later, and no less surely."""
        try:
            self.kqueue = Kqueue(self.libproc.handle)
            self.kqueue.watch_readable(self.wrapper.fileno())
            self.kqueue.watch_readable(self.leader.fd)
            self.kqueue.watch_process(self.process.pid)
            self.kqueue.watch_process(self.leader.pid, layout.NOTE_EXIT | layout.NOTE_FORK)
        except OSError:
            if self.kqueue is not None:
                self.kqueue.close()
            self.kqueue = None

    def live(self) -> bool:
        """Until the job is over (True), or the wrapper is gone and all was tried."""
        while True:
            self._wait()
            self._hear_wrapper()
            self._hear_anchor()
            self._look()
            now_s = time.monotonic()
            if self.term_s is not None and now_s >= self.term_s:
                self.term_s = None
                self._ask()
                self.say("sent", signal="TERM")
                self.kill_s = now_s + float(self.request["kill_ms"]) / 1000
            if self.kill_s is not None and now_s >= self.kill_s and self.finish():
                return True
            if self.kill_s is not None and now_s >= self.kill_s:
                if self.wrapper.over:
                    return False  # held: whoever inspects the receipt goes on
                self.kill_s = now_s + AGAIN_S

    def _wait(self) -> None:
        now_s = time.monotonic()
        dues_s = [at_s - now_s for at_s in (self.term_s, self.kill_s) if at_s is not None]
        wait_s = max(0.0, min([LEFT_S if self.ended else LOOK_S, *dues_s]))
        if self.kqueue is None:
            self.leader.readable(now_s + min(wait_s, LEFT_S))
            return
        try:
            events = self.kqueue.wait(wait_s)
        except OSError:
            self.kqueue.close()
            self.kqueue = None
            return
        if any(kind == layout.PROC_FILTER and notes & layout.NOTE_FORK for kind, _, notes in events):
            self._scan(SOON_S)

    def _hear_wrapper(self) -> None:
        while (message := self.wrapper.receive(0.0)) is not None:
            order = message["order"]
            if order == "go":
                self.started = self.leader.open(foreground=bool(message["foreground"]))
                self.say("gate", open=self.started)
            elif order == "signal":
                self.leader.signal(int(str(message["number"])), everybody=bool(message["everybody"]))
            elif order == "cancel":
                self._ask()
                self.term_s = None
                self.kill_s = time.monotonic() + float(str(message["grace_ms"])) / 1000
            elif order == "kill":
                self.kill_s = time.monotonic()
        if (self.wrapper.over or self.process.gone()) and self.kill_s is None:
            self.wrapper.over = True
            self.kill_s = time.monotonic()

    def _hear_anchor(self) -> None:
        while self.leader.readable(0.0):
            report = self.leader.report()
            if report is None:
                self.kill_s = (
                    self.kill_s or time.monotonic()
                )  # the job has killed it: at once, while it is unreaped
                return
            self._reported(report)

    def _reported(self, report: wire.Report) -> None:
        if report.kind == wire.STARTED:
            self._scan(0.0)
        elif report.kind == wire.STOPPED:
            self.say("stopped", number=os.WSTOPSIG(report.status), group=report.group)
        elif report.kind == wire.BROKE:
            if report.step == "exec":
                self._command_ended(report, exec_errno=report.error)
            else:
                self.say("broke", step=report.step, errno=report.error)
                self.ended, self.kill_s = True, time.monotonic()
        elif report.kind == wire.ENDED and not self.ended:
            self._command_ended(report, exec_errno=None)

    def _command_ended(self, report: wire.Report, exec_errno: int | None) -> None:
        self.ended = True
        self.usage = {
            "user_us": report.user_us,
            "system_us": report.system_us,
            "max_rss_bytes": report.max_rss_bytes,
            "processes": 0 if exec_errno else 1,
        }
        strays = [(one.birth.pid, one.birth.unique_id) for one in self.lineage.strays()]
        left = bool(strays) or not self.tree.census().clean
        ended = {"status": report.status, "exec_errno": exec_errno, "leftovers": left, "usage": self.usage}
        self.say("ended", strays=strays, **ended)
        if not left:
            self.term_s, self.kill_s = None, time.monotonic()
        elif self.kill_s is None:
            self.term_s = time.monotonic() + float(self.request["grace_ms"]) / 1000

    def _anybody(self) -> bool:
        return not self.tree.census().clean or bool(self.lineage.strays())

    def _look(self) -> None:
        if self.ended and (self.kill_s is None or self.kill_s > time.monotonic()):
            if not self._anybody():
                self.term_s, self.kill_s = None, time.monotonic()
        elif self.started:
            self._scan(LOOK_S)

    def _scan(self, apart_s: float) -> None:
        """Looks for descendants, and hears of the forks of those that it finds."""
        if time.monotonic() - self.last_scan_s < apart_s:
            return
        self.lineage.scan()
        self.last_scan_s = time.monotonic()
        for pid in self.lineage.pids() if self.kqueue is not None else ():
            if pid not in self.watched and self.kqueue is not None:
                self.watched.add(pid)
                try:
                    self.kqueue.watch_process(pid, layout.NOTE_FORK)
                except OSError:
                    return

    def _ask(self) -> None:
        for number in (signal.SIGTERM, signal.SIGCONT):
            ending.ask(self.tree, number, strays=self.lineage.strays)

    def finish(self) -> bool:
        """Kills what there is. True: proven over, and said so."""
        if self._anybody():
            self.say("sent", signal="KILL")
        end = ending.kill(self.tree, pinned=True, strays=self.lineage.strays, wait_s=KILL_S)
        self._hear_anchor()  # how the command ended may be its last word
        if not end.empty:
            self.say("held", why=end.why, blockers=[encode(one) for one in end.blockers])
            return False
        self.leader.reap()
        self.lineage.forget_mark()
        self.say("emptied", usage=self.usage)
        self.say("drained", detached=self.lineage.detached)
        return True


def finish_recorded(wrapper: channel.Channel, libproc: Libproc, proof: Anchor) -> None:
    """Ends a job whose supervisor was killed. Its anchor is nobody's child that we know: exact births only."""
    detached = lineage.at_end(proof)
    tree = census.Tree(libproc, proof)
    while not wrapper.over:
        end = ending.kill(tree, pinned=False)
        try:
            if end.empty:
                wrapper.send({"event": "drained", "detached": detached})
                return
            wrapper.send({"event": "held", "why": end.why, "blockers": [encode(one) for one in end.blockers]})
        except OSError:
            return
        wrapper.receive(time.monotonic() + AGAIN_S)


def _high(fd: int) -> int:
    import fcntl

    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, ABOVE_KEPT)
    os.close(fd)
    return copy


def _free(kept: list[int]) -> int:
    """Where the mark goes in the command: out of the way of shells, which use 10 and 255."""
    return next(number for number in range(198, 0, -1) if number not in kept)


def settle(first_free: int) -> None:
    """Nobody ends a supervisor by an ordinary signal, and it keeps nothing open that it was not given."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    os.closerange(first_free, MOST_OPEN)


def main(library: str, program: str) -> None:
    """The whole process, as the wrapper's child."""
    settle(FIRST_FREE)
    wrapper = channel.of(CHANNEL)
    os.set_inheritable(CHANNEL, False)
    serve(wrapper, Libproc(opened(library or None)), program, Parent())


def serve(wrapper: channel.Channel, libproc: Libproc, program: str, process: WrapperProcess) -> bool:
    """One job, or the rest of one. True: it is over, and that was said."""
    try:
        return _serve(wrapper, libproc, program, process)
    except Exception as error:
        # Its stderr is nobody's. The wrapper sees our end after this, and the anchor sees it as well.
        wrapper.send({"event": "failed", "why": f"{type(error).__name__}: {error}"})
        raise


def _serve(wrapper: channel.Channel, libproc: Libproc, program: str, process: WrapperProcess) -> bool:
    fds = wrapper.receive_fds()
    request = wrapper.receive()
    if request is None:
        return False
    if request["kind"] == "finish":
        finish_recorded(wrapper, libproc, decode(Anchor, request["proof"], "proof"))
        return True
    block = wrapper.receive_bytes(int(str(request["bytes"])))
    if "inherit" in request:
        command.adopt(request["inherit"])
    supervision = Supervision(wrapper, libproc, request, process)
    return supervision.prepare(program, fds, block) and supervision.live()
