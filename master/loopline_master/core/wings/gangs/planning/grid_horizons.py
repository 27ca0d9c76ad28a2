"""Horizons of the grid's workers, and the end of the work that a gang waits for, read from the entities.

Each is a function of stored rows and the time alone, so that a restart reads the same. Therefore forecasts of run
times are those of the attempt's dispatch (``expected_s``), with a usual spread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from loopline_master.core.estimates import eta, measure
from loopline_master.core.kernel.entities import SEATED, Attempt, Job, Worker
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.gangs.planning.horizon import (
    MARGIN_S,
    PREPARE_S,
    START_S,
    Busy,
    Horizon,
    end_by_limit,
    rounded,
)
from loopline_master.core.wings.gangs.planning.plan import Plan, steps_of
from loopline_master.core.wings.gangs.planning.pool import MOST_SLOTS
from loopline_shared.model import Facts

P90 = math.exp(1.2816 * 0.5)
"""p90 of a lognormal run time against its median, with the usual spread of tasks (estimates/eta.py)."""
_LIMIT_OF_FORECAST = 1.5
"""Without a limit, a gang's place is kept for this multiple of the p90 of its run time."""
_SWITCH = "switch."
"""Prefix of a worker's label that names the switch to which it is connected."""
_UNKNOWN_S = 60.0
_FARTHEST_S = 30 * 86400.0
"""Planning looks no farther ahead: longer limits and forecasts count as this long."""


def limit_of(state: State, job: Job, number: int) -> tuple[float, bool]:
    """Return the seconds for which a task's place is kept, and True if its user gave that limit."""
    if job.spec.timeout_s is not None:
        return min(job.spec.timeout_s, _FARTHEST_S), True
    return min(
        _FARTHEST_S, _LIMIT_OF_FORECAST * P90 * max(1.0, measure.work_of(state.grid, job, number) / job.nodes)
    ), False


def switch_of(facts: Facts) -> str:
    """Return the switch of a computer: as a label names it, else its subnet (/24, or /64 of IPv6); "" if unknown."""
    for label in facts.labels:
        if label.startswith(_SWITCH):
            return label
    separator, kept = (":", 4) if ":" in facts.address else (".", 3)
    parts = facts.address.split(separator)
    return separator.join(parts[:kept]) if len(parts) > kept else ""


def horizon_of(state: State, worker: Worker) -> Horizon:
    """Return the worker's free slots over time. A silent worker keeps its plans until its lease ends."""
    name, busy = worker.name, _busy_on(state, worker.name)
    if worker.session is None or not worker.reported:
        if worker.lease_until > state.now:
            return Horizon(min(worker.facts.slots, MOST_SLOTS), is_open=False, busy=busy)
        return Horizon(0, is_open=False, busy=busy, why=f"{name} was lost")
    if worker.draining:
        why = f" ({worker.drain_reason})" if worker.drain_reason else ""
        return Horizon(0, is_open=False, busy=busy, why=f"{name} is being drained{why}")
    why = f"the owner of {name} has claimed it" if worker.offered < worker.facts.slots else ""
    if worker.quarantined_until is not None:  # it still gets jobs that no other could run (RequirementIndex)
        why = f"{name} is in quarantine"
    is_open = worker.offered > 0 and not (worker.half_open and state.index.attempts.in_hand(name))
    return Horizon(min(worker.offered, MOST_SLOTS), is_open=is_open, busy=busy, why=why)


def busy_of(state: State, attempt: Attempt) -> Busy:
    """Return the slots and end of an attempt: by its limit, else by the forecast made at its dispatch."""
    job, now = state.jobs[attempt.job], int(state.now)
    began = attempt.started_at or attempt.dispatched_at
    frozen_s = sum(until - since for since, until in attempt.freezes if until is not None)
    name, limit_s = f"job {attempt.job}", job.spec.timeout_s
    if limit_s is None:
        expected_s = min(attempt.expected_s, _FARTHEST_S)
        half = _beyond(math.ceil(began + frozen_s + expected_s), now)
        end = _beyond(rounded(began + frozen_s, P90 * expected_s), now)
        return Busy(attempt.slots, end, min(half, end), is_limited=False, name=name)
    end = _beyond(_end_by_limit(attempt, job, min(limit_s, _FARTHEST_S) + frozen_s), now)
    return Busy(attempt.slots, end, end, is_limited=True, name=name)


def _end_by_limit(attempt: Attempt, job: Job, lasts_s: float) -> int:
    """Return the latest end of an attempt with a limit: as expected at its dispatch, unless it began too late."""
    allowed_s = START_S if job.nodes == 1 else PREPARE_S
    began = attempt.dispatched_at
    if attempt.started_at is not None:
        began = max(began, attempt.started_at - allowed_s)
    return end_by_limit(began, lasts_s) if job.nodes == 1 else int(began) + steps_of(lasts_s)


def order_of(
    state: State, job: Job, plans: Mapping[int, Plan], outlook: eta.Outlook | None = None
) -> tuple[float, float, bool]:
    """Return when the jobs that a held job may not pass are over: p90, p50, and True if by their limits.

    Jobs ahead of it that are planned or run by limits end by these; for the others the forecast is used.
    """
    arrivals = state.index.hold_over(job).predecessors(job.arrival, job.weight)
    ends = [_end_of(state, state.index.live[arrival], plans) for arrival in arrivals]
    known = [end for end in ends if end is not None]
    p90, half = max((end for end, _, _ in known), default=0.0), max((half for _, half, _ in known), default=0.0)
    if len(known) == len(ends):
        return p90, half, all(is_bounded for _, _, is_bounded in known)
    outlook = eta.outlook(state) if outlook is None else outlook
    for arrival, end in zip(arrivals, ends, strict=True):
        if end is None:
            found = outlook.get(state.index.live[arrival].id)
            waited = state.now - (job.entered_at or state.now)
            unknown = max(_UNKNOWN_S, waited)
            is_known = isinstance(found, eta.Forecast)
            p90 = max(p90, state.now + (found.p90_s if isinstance(found, eta.Forecast) else unknown))
            half = max(half, state.now + (found.p50_s if is_known and isinstance(found, eta.Forecast) else unknown))
    farthest = state.now + _FARTHEST_S
    return min(p90, farthest), min(half, farthest), False


def is_foreseeable(state: State, job: Job, plans: Mapping[int, Plan]) -> bool:
    """True if running work and plans give the ends of all jobs that a held job may not pass."""
    arrivals = state.index.hold_over(job).predecessors(job.arrival, job.weight)
    return all(_end_of(state, state.index.live[arrival], plans) is not None for arrival in arrivals)


def _end_of(state: State, job: Job, plans: Mapping[int, Plan]) -> tuple[float, float, bool] | None:
    """Return the end of a job by plan and limits, its median, and True if limits alone give it; None if unknown."""
    ready, busy = state.index.ready_sets[job.id], []
    for number in ready.kept:
        attempts = state.index.attempts.of_task.get(job.task_id(number), {})
        busy += [busy_of(state, attempt) for attempt in attempts.values() if attempt.state in SEATED]
    left = len(state.fresh[job.id]) + len(ready.to_retry)
    ends = [(float(one.end), float(one.half), one.is_limited) for one in busy]
    plan = plans.get(job.id)
    if left > 1 or (left and (plan is None or plan.start is None)) or not (left or ends):
        return None
    if left and plan is not None and plan.start is not None:
        half = plan.start if plan.p50 is None else plan.p50
        lasts_s = steps_of(plan.limit_s)
        ends.append((plan.start + lasts_s, half + lasts_s, plan.is_promise and plan.is_given))
    return max(end for end, _, _ in ends), max(half for _, half, _ in ends), all(limited for _, _, limited in ends)


def _busy_on(state: State, name: str) -> tuple[Busy, ...]:
    attempts = state.index.attempts.of_worker.get(name)
    if not attempts:
        return ()
    return tuple(busy_of(state, attempt) for _, attempt in sorted(attempts.items()) if attempt.state in SEATED)


def _beyond(end: int, now: int) -> int:
    """Return the end; if that is past, extend it by ever longer respites."""
    respite = MARGIN_S
    while end <= now:
        end += respite
        respite *= 2
    return end
