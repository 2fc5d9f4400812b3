"""From a command to its ticket: what it is, what it costs here, and whose turn it takes."""

from __future__ import annotations

import os

from contain.budget.arbiter import Ticket, has_pool
from contain.budget.classes import Eyes, classify
from contain.errors import NeverPossible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from contain.budget.classes import JobClass
    from contain.budget.policy import Policy

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


def ticket(ticket_id: str, asked: JobClass, policy: Policy, session: str, holder: str) -> Ticket:
    """What ``asked`` costs on this machine, under this policy."""
    cost = policy.cost(asked.name, asked.lane)
    least, want = asked.units(policy.base, max(1, cost.want_units))
    if cost.unit_draws:
        least = min(least, policy.lowest_units(cost))
    budget_mib = policy.mem_budget_mib
    mem_mib = 0 if budget_mib is None else min(asked.memory_mib, budget_mib)
    return Ticket(
        id=ticket_id,
        seq=0,
        session=session,
        class_name=asked.tool or asked.name,
        lane=asked.lane,
        min_units=least,
        want_units=max(least, want),
        mem_mib=mem_mib,
        draws=(*cost.draws, *asked.pools),
        unit_draws=cost.unit_draws,
        resizable=asked.resizable,
        expected_s=cost.expected_s,
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


def session_of(environ: Mapping[str, str], asked: str | None = None) -> tuple[str, str]:
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
    return f"ancestor:{_oldest_ancestor()}", "ancestor"


def _oldest_ancestor() -> int:
    """The process below the machine's init, or below whoever is not ours, from which all of this was started."""
    pid, uid = os.getppid(), os.getuid()
    oldest = os.getpid()
    while pid > BELOW_INIT:
        try:
            if os.stat(f"/proc/{pid}").st_uid != uid:
                break
            with open(f"/proc/{pid}/stat", "rb") as stat:
                parent = int(stat.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
        oldest, pid = pid, parent
    return oldest
