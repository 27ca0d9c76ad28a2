"""Explanation of a plan: when a gang is planned to start, where, of which kind that plan is, and what moved it."""

from __future__ import annotations

from loopline_master.core.entities import Job
from loopline_master.core.estimates import eta
from loopline_master.core.planning.grid_horizons import order_of
from loopline_master.core.planning.plan import Plan
from loopline_master.core.state import State
from loopline_shared.rest.bodies import Reason

_SHOWN = 4


def explain_start(state: State, job: Job) -> list[Reason]:
    """Return when a job's gang is to start, if it has one that waits: by its plan, or by what is ahead of it."""
    plan = state.plans.get(job.id)
    if plan is not None:
        return [explain_plan(plan, state.now)]
    if job.nodes == 1 or job.is_computed or not state.index.is_held(job):
        return []
    return [_outlook(state, job)]


def _outlook(state: State, job: Job) -> Reason:
    """Return when the jobs ahead of a held gang that has no plan are over, by their forecasts."""
    detail = "no workers are planned for it before all tasks of the jobs ahead of it have begun"
    arrivals, forecasts = state.index.hold_over(job).predecessors(job.arrival, job.weight), eta.outlook(state)
    found = [forecasts.get(state.index.live[arrival].id) for arrival in arrivals]
    unknown = [one for one in found if not isinstance(one, eta.Forecast)]
    if unknown:
        why = f": {unknown[0].reason}" if unknown[0] else ""
        return Reason(code="outlook", count=1, detail=f"{detail}; when that will be is unknown{why}")
    p90, half, _ = order_of(state, job, state.plans)
    likely, late = _when(half, state.now), _when(p90, state.now)
    detail += f"; those are 50 % likely to be over {likely}, and 90 % likely {late}"
    return Reason(code="outlook", count=1, detail=detail)


def explain_plan(plan: Plan, now: float) -> Reason:
    """Return the reason for a gang's wait: its plan."""
    if plan.start is None:
        return Reason(code="plan", count=1, detail=f"no start is planned: {plan.reason}")
    kind = "it is promised to start" if plan.is_promise else "it is estimated to start"
    machines = ", ".join(plan.machines[:_SHOWN]) + (", ..." if len(plan.machines) > _SHOWN else "")
    detail = f"{kind} {_when(plan.start, now)} on {machines}"
    if plan.p50 is not None:
        detail += f", and is 50 % likely to start {_when(plan.p50, now)}"
    if not plan.is_given:
        detail += f"; its limit of {plan.limit_s:.0f} s is predicted"
    if plan.delays:
        detail += f"; earlier work took longer than expected {_times(plan.delays)}"
    if plan.broken:
        detail += f"; an earlier promise was broken because {plan.broken_reason}"
    elif plan.reason:
        detail += f"; moved because {plan.reason}"
    return Reason(code="plan", count=1, detail=detail)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _when(at: float, now: float) -> str:
    return "now" if at <= now else f"in {at - now:.0f} s"
