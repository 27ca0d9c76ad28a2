"""Explanation of a plan: when a gang is planned to start, where, of which kind that plan is, and what moved it."""

from __future__ import annotations

from loopline_master.core.planning.plan import Plan
from loopline_shared.rest.bodies import Reason

_SHOWN = 4


def explain_plan(plan: Plan, now: float) -> Reason:
    """Return the reason for a gang's wait: its plan."""
    if plan.start is None:
        return Reason(code="plan", count=1, detail=f"no start is planned: {plan.reason}")
    kind = "it is promised to start" if plan.is_promise else "it is estimated to start"
    machines = ", ".join(plan.machines[:_SHOWN]) + (", ..." if len(plan.machines) > _SHOWN else "")
    detail = f"{kind} {_when(plan.start, now)} on {machines}"
    if plan.p50 is not None:
        detail += f", as likely as not {_when(plan.p50, now)}"
    if not plan.is_given:
        detail += f"; its limit of {plan.limit_s:.0f} s is predicted"
    if plan.delays:
        detail += f"; what goes before it took longer than was thought {_times(plan.delays)}"
    if plan.broken:
        detail += f"; an earlier promise was broken because {plan.broken_reason}"
    elif plan.reason:
        detail += f"; moved because {plan.reason}"
    return Reason(code="plan", count=1, detail=detail)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _when(at: float, now: float) -> str:
    return "now" if at <= now else f"in {at - now:.0f} s"
