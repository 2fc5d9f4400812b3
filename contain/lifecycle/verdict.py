"""How a job ended: one cause, from what was seen. The table of causes is in docs/PROTOCOL.md."""

from __future__ import annotations

import os

from contain.csignal import csignal as signal
from contain.job import Outcome

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.backend import CommandEnded, Containment, SetupBroke
    from contain.job import Abort, Limits

SHELL_KILLED = 128 + signal.SIGKILL


def outcome(
    ended: CommandEnded | None,
    broke: SetupBroke | None,
    abort: Abort | None,
    limits: Limits,
    containment: Containment,
    *,
    drained: bool,
) -> Outcome:
    """The outcome of a job. A wait status that was seen is always in it, whatever the cause is called."""
    if broke is not None:
        return Outcome(
            cause="setup-failed", step=broke.step, errno=broke.errno, detail=os.strerror(broke.errno)
        )
    if ended is None:
        return _without_status(abort, containment, drained=drained)
    if ended.exec_errno is not None:
        return Outcome(
            cause="exec-failed", errno=ended.exec_errno, step="exec", detail=os.strerror(ended.exec_errno)
        )
    found = _from_status(ended.status)
    if abort is not None:
        return found.replace(cause=abort.cause, by=abort.by, detail=_memory_of_its_own(containment))
    return _kernel_killed(found, limits, containment)


def _without_status(abort: Abort | None, containment: Containment, *, drained: bool) -> Outcome:
    """What leads the job died, or is being killed, before it could report."""
    leader, launcher = containment.leader, containment.launcher
    if abort is not None:
        return Outcome(cause=abort.cause, by=abort.by, detail=_memory_of_its_own(containment))
    if not drained:
        return Outcome(cause="init-killed", detail=f"the {leader} did not report and is not gone")
    if containment.memory_is_own() and containment.memory_kills() > 0:
        return Outcome(cause="out-of-memory", detail=f"the kernel killed the job's {leader} for memory")
    if containment.launcher_lost():
        return Outcome(cause="keeper-lost", detail=f"the {launcher} was killed, and its {leader} with it")
    return Outcome(cause="init-killed", detail=f"the {leader} was killed from outside")


def _from_status(status: int) -> Outcome:
    if os.WIFSIGNALED(status):
        return Outcome(cause="signaled", signal=os.WTERMSIG(status), core=os.WCOREDUMP(status))
    return Outcome(cause="exited", code=os.WEXITSTATUS(status))


def _kernel_killed(found: Outcome, limits: Limits, containment: Containment) -> Outcome:
    """SIGXCPU and SIGXFSZ come from a limit that the job has; SIGKILL for memory is counted by the kernel."""
    if found.signal == signal.SIGXCPU and limits.cpu_s is not None:
        return found.replace(cause="limit", detail="cpuS")
    if found.signal == signal.SIGXFSZ and limits.file_bytes is not None:
        return found.replace(cause="limit", detail="fileBytes")
    own = _memory_of_its_own(containment)
    # A shell whose child was killed passes it on as 137: the memory was the job's all the same.
    if (found.signal == signal.SIGKILL or found.code == SHELL_KILLED) and (
        kills := containment.memory_kills()
    ) > 0:
        why = own or f"the kernel killed {kills} for memory in this cgroup"
        return found.replace(cause="out-of-memory", detail=why)
    # make ends with 2 because its compiler was killed: the cause is its own, the reason is told.
    return found.replace(detail=own)


def _memory_of_its_own(containment: Containment) -> str | None:
    """What to tell of kills that were certainly in this job; None where there were none, or nobody knows whose."""
    kills = containment.memory_kills() if containment.memory_is_own() else 0
    return f"the kernel killed {kills} of its processes for memory" if kills > 0 else None
