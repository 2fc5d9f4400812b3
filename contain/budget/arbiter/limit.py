"""The limit in force and its steps, in closed form: nobody need tick, and an idle machine never shrinks."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contain.budget.arbiter.facts import LimitState
    from contain.budget.policy import Policy


def step(state: LimitState, policy: Policy, now_s: float, *, pressed: bool, ours: bool) -> LimitState:
    """The limit at ``now_s`` (awake). It falls by a quarter while our own work presses, and rises one at a time.

    ``ours``: what we granted keeps at least half of the busy cores busy. Work of others never shrinks our limit:
    that would not make the machine any calmer.
    """
    limit = min(max(state.limit, policy.floor), policy.base)
    changed_at_s, pressed_at_s = state.changed_at_s, state.pressed_at_s
    if pressed:
        pressed_at_s = now_s
        lower = max(policy.floor, limit - max(1, limit // 4))
        if ours and lower < limit and now_s - changed_at_s >= policy.step_s:
            limit, changed_at_s = lower, now_s
    elif limit < policy.base:
        since_s = max(changed_at_s, pressed_at_s + policy.calm_s)
        if since_s == float("-inf"):
            # A policy with a larger base has come: nothing ever pressed.
            limit, changed_at_s = policy.base, now_s
        elif (steps := int((now_s - since_s) // policy.step_s)) > 0:
            limit, changed_at_s = min(policy.base, limit + steps), since_s + steps * policy.step_s
    if (limit, changed_at_s, pressed_at_s) == (state.limit, state.changed_at_s, state.pressed_at_s):
        return state
    return state.replace(limit=limit, changed_at_s=changed_at_s, pressed_at_s=pressed_at_s)
