"""From a command to its ticket: what it is, what it costs here, and whose turn it takes."""

from __future__ import annotations

import os

from contain.budget.arbiter import Ticket, has_pool
from contain.budget.classes import Eyes, classify
from contain.budget.classes.kinds import SERVER
from contain.budget.costs import OUT_OF_MEMORY, expected_memory_mib, expected_s
from contain.errors import NeverPossible
from receipts import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contain.backend import Backend
    from contain.budget.classes import JobClass
    from contain.budget.costs import LearnedCost
    from contain.budget.policy import ClassCost, Policy

SESSIONS = (
    "CLAUDE_CODE_SESSION_ID",
    "CODEX_THREAD_ID",
    "CURSOR_TRACE_ID",
    "GITHUB_RUN_ID",
    "CI_JOB_ID",
    "BUILD_TAG",
)
"""Variables that name a session. A label confers nothing but a place in the accounts of fairness."""

BELOW_INIT = 1


def recognise(words: Sequence[str], cwd: str, *, terminal: bool) -> JobClass:
    """The class of a command; never fails."""
    return classify(words, Eyes(cwd, terminal=terminal))


class Expected(Record):
    """What a command is expected to take, and who says so, in words for a person."""

    memory_mib: int
    memory_from: str
    wall_s: float
    wall_from: str


def expected(asked: JobClass, policy: Policy, learned: LearnedCost | None = None) -> Expected:
    """What ``asked`` is charged with under this policy. A number of the policy's own file stands; a guess gives way."""
    cost = policy.cost(asked.name, asked.lane)
    memory_mib, memory_from = _memory(asked, cost, learned)
    budget_mib = policy.mem_budget_mib
    if budget_mib is None:
        memory_mib, memory_from = 0, "this policy counts no memory"
    elif memory_mib > budget_mib:
        memory_mib, memory_from = budget_mib, f"{memory_from}: {memory_mib:,}, and the whole budget is less"
    # A server ends when somebody ends it: its time is nobody's expectation.
    timed = None if asked.lane == SERVER else learned
    wall_s = cost.expected_s if timed is None else expected_s(timed, cost.expected_s)
    wall_from = "the class says so" if timed is None or wall_s == cost.expected_s else _learned(timed.runs)
    return Expected(memory_mib=memory_mib, memory_from=memory_from, wall_s=wall_s, wall_from=wall_from)


def _memory(asked: JobClass, cost: ClassCost, learned: LearnedCost | None) -> tuple[int, str]:
    if cost.mem_mib and (
        asked.memory_mib or cost.lane == asked.lane
    ):  # not for a focused call, which needs little
        return cost.mem_mib, "the policy says so"
    guess_mib = asked.memory_mib
    if learned is None:
        return guess_mib, "the class says so"
    memory_mib = expected_memory_mib(learned, guess_mib)
    if memory_mib == guess_mib:
        return guess_mib, f"the class says so; {_learned(learned.memory_runs)}: {learned.memory_mib:,}"
    if learned.memory_source == OUT_OF_MEMORY:
        return memory_mib, f"raised after an end for lack of memory; the class says {guess_mib:,}"
    return memory_mib, f"{_learned(learned.memory_runs)}; the class says {guess_mib:,}"


def _learned(runs: int) -> str:
    """A peak that was passed counts though the run was no whole one."""
    return f"learned from {runs} run{'s' if runs != 1 else ''}" if runs else "seen in a run"


def ticket(
    ticket_id: str,
    asked: JobClass,
    policy: Policy,
    session: str,
    holder: str,
    learned: LearnedCost | None = None,
) -> Ticket:
    """What ``asked`` costs on this machine, under this policy.

    What was learned changes no unit: it was measured under the units of its grants, and would only ever shrink them.
    """
    cost = policy.cost(asked.name, asked.lane)
    least, want = asked.units(policy.base, max(1, cost.want_units))
    if cost.unit_draws:
        least = min(least, policy.lowest_units(cost))
    taken = expected(asked, policy, learned)
    return Ticket(
        id=ticket_id,
        seq=0,
        session=session,
        class_name=asked.tool or asked.name,
        lane=asked.lane,
        min_units=least,
        want_units=max(least, want),
        mem_mib=taken.memory_mib,
        draws=(*cost.draws, *asked.pools),
        unit_draws=cost.unit_draws,
        resizable=asked.resizable,
        expected_s=taken.wall_s,
        volume="work",
        holder=holder,
    )


def drawing(asked: Ticket, draws: Sequence[tuple[str, int]], policy: Policy) -> Ticket:
    """The ticket with these (pool, tokens) as well. Raises NeverPossible where the policy has none, or fewer.

    One entry a pool: each entry is checked by itself, so two of them could pass where their sum does not.
    """
    total = _summed((*asked.draws, *draws))
    for pool, _ in draws:
        if not has_pool(policy, pool):
            raise NeverPossible(
                f"The policy has no pool {pool[:60]!r}.",
                advice=f"contain policy set pools.{pool[:60]} 1 adds it; contain pool lists those that there are.",
            )
        if total[pool] > policy.size(pool):
            raise NeverPossible(
                f"It draws {total[pool]} of {pool}, and the policy has {policy.size(pool)}.",
                advice="Ask for less, or change the policy (contain policy set).",
            )
    return asked.replace(draws=tuple(total.items()))


def _summed(draws: Sequence[tuple[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for pool, n in draws:
        total[pool] = total.get(pool, 0) + n
    return total


def patience_s(asked: JobClass, policy: Policy) -> float | None:
    """How long a command of this class waits by policy; None: for ever."""
    own_s = policy.cost(asked.name, asked.lane).max_wait_s
    return policy.max_wait_s if own_s is None else own_s


def session_of(environ: Mapping[str, str], backend: Backend, asked: str | None = None) -> tuple[str, str]:
    """(session, where that is from): an option, a variable that names one, the terminal's, or the oldest ancestor.

    Never the session id of the kernel alone: agents start each command in one of its own.
    """
    if asked:
        return asked, "--session"
    for name in SESSIONS:
        if value := environ.get(name):
            return f"{name}:{value}"[:200], name
    for fd in (0, 1, 2):
        try:
            return f"terminal:{os.ttyname(fd)}", "terminal"
        except OSError:
            continue
    return f"ancestor:{_oldest_ancestor(backend)}", "ancestor"


def _oldest_ancestor(backend: Backend) -> int:
    """The process below the machine's init, or below whoever is not ours, from which all of this was started."""
    pid, uid = os.getppid(), os.getuid()
    oldest = os.getpid()
    while pid > BELOW_INIT:
        try:
            owner, parent = backend.owner_and_parent(pid)
        except OSError:
            break
        if owner != uid:
            break
        oldest, pid = pid, parent
    return oldest
