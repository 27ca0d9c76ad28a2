"""Explanation of a plan: start, workers and kind of a gang's plan, and the reason of its last move."""

from __future__ import annotations

from statistics import fmean

from loopline_master.core.estimates import eta, measure
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.gang_memory import GangMemory
from loopline_master.core.wings.gangs.planning.grid_horizons import limit_of, order_of
from loopline_master.core.wings.gangs.planning.plan import Plan, PlanKind
from loopline_shared.rest.bodies import PlanView, Reason

_SHOWN = 4
_BEHIND = "no workers are planned for it before all tasks of the jobs ahead of it have begun"


def explain_start(state: State, job: Job) -> list[Reason]:
    """Return the start of a waiting gang of the job, if there is one: by its plan, or by the jobs ahead of it."""
    plan = state.own(GangMemory).plans.get(job.id)
    if plan is not None:
        return [explain_plan(plan, state.now)]
    if not _is_behind(state, job):
        return []
    told = estimated_start(state, job, eta.outlook(state))
    return [Reason(code="outlook", count=1, detail=f"{_BEHIND}; {_likely(told, state.now)}")]


def estimated_start(state: State, job: Job, outlook: eta.Outlook) -> PlanView | str | None:
    """Return the estimated start of a held gang without a plan, by the forecasts of the jobs ahead of it.

    Return the reason if one of those has no forecast; None if the job has a plan, or no such gang.
    """
    if not _is_behind(state, job):
        return None
    arrivals = state.index.hold_over(job).predecessors(job.arrival, job.weight)
    unknown = [one for one in (outlook.get(state.index.live[arrival].id) for arrival in arrivals) if not _known(one)]
    if unknown:
        return unknown[0].reason if isinstance(unknown[0], eta.Unknown) else "nothing is known of it yet"
    number = state.index.ready_sets[job.id].to_retry.first_after(0) or state.fresh[job.id].first_after(0)
    if number is None:
        return None
    p90, half, _ = order_of(state, job, state.own(GangMemory).plans, outlook)
    own = outlook.get(job.id)
    if isinstance(own, eta.Forecast):  # its workers must also end other work
        able = [state.workers[name] for name in state.index.requirements.serving(job)]
        speed = fmean(measure.speed_for(worker, job, state.programs) for worker in able) if able else 1.0
        lasts_s = measure.work_of(state.grid, job, number) / job.nodes / speed
        p90, half = max(p90, state.now + own.p90_s - lasts_s), max(half, state.now + own.p50_s - lasts_s)
    limit_s, is_given = limit_of(state, job, number)
    return PlanView(
        task=number,
        kind=PlanKind.ESTIMATE,
        start_at=p90,
        p50_at=min(half, p90),
        p90_at=p90,
        machines=[],
        slots=job.slots,
        limit_s=limit_s,
        limit_is_given=is_given,
        told_at=state.now,
        first_start_at=None,
        reason=_BEHIND,
    )


def latest_end(state: State, job: Job) -> str:
    """Return the end of a one-gang job by its promised start and its given limit, in words; empty without these."""
    plan = state.own(GangMemory).plans.get(job.id)
    if plan is None or plan.start is None or not (plan.is_promise and plan.is_given) or job.task_count > 1:
        return ""
    end = _when(plan.start + plan.limit_s, state.now)
    return f"by its promised start and its limit it would be over {end} at the latest"


def _is_behind(state: State, job: Job) -> bool:
    """True if the job is a held gang that has no plan."""
    return (
        job.is_live
        and job.nodes > 1
        and not job.is_computed
        and job.id not in state.own(GangMemory).plans
        and state.index.is_held(job)
    )


def _known(found: eta.Forecast | eta.Unknown | None) -> bool:
    return isinstance(found, eta.Forecast)


def _likely(told: PlanView | str | None, now: float) -> str:
    """Return the likely start of a held gang in words, or the reason why it is unknown."""
    if not isinstance(told, PlanView) or told.p50_at is None or told.p90_at is None:
        return f"when that will be is unknown: {told}" if told else "when that will be is unknown"
    return f"it is 50 % likely to start {_when(told.p50_at, now)}, and 90 % likely {_when(told.p90_at, now)}"


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
