"""Explanations of units: use of limits and resources by user, and jobs that wait for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import inf

from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.index.attempts import may_be_running
from loopline_master.core.kernel.index.requirement_class import limits_of
from loopline_master.core.kernel.index.units import RequirementClass
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.reservations.reservation_wing import Reservations
from loopline_master.core.wings.resources.counted_units import CountedUnits
from loopline_master.core.wings.resources.limit import EACH_USER, WHOLE_GRID
from loopline_shared.protocol.gpus import COMPUTER, GPU
from loopline_shared.rest.bodies import GpuUse, LimitsView, LimitView, Reason


def limits_view(state: State) -> LimitsView:
    """Return all limits, in the order of their names."""
    counts = state.own(CountedUnits)
    return LimitsView(
        limits=[
            LimitView(
                name=name,
                user=None if user in (WHOLE_GRID, EACH_USER) else user,
                per_user=user == EACH_USER,
                units=units,
                used=_used_by(counts, name),
            )
            for name, allowed in sorted(counts.allowed.items())
            for user, units in sorted(allowed.items())
        ]
    )


def units_used_up(state: State, job: Job) -> list[Reason]:
    """Return the reasons that units are used up which the job's tasks need; empty otherwise."""
    limits, reasons = state.own(CountedUnits).limits, limits_used_up(state, job)
    for name, units in job.needs:
        if name not in limits:
            reasons += _resource_used_up(state, job, name, units)
    return reasons


def limits_used_up(state: State, job: Job) -> list[Reason]:
    """Return the reasons among these that another worker could not change."""
    if not (job.holds_units or job.never_twice):
        return []
    counts, reasons = state.own(CountedUnits), list[Reason]()
    wait_s = (state.grid.units_withheld_until or 0.0) - state.now
    if wait_s > 0:
        detail = f"the database was restored: unknown tasks may still run, and it waits {wait_s:.0f} s for their end"
        reasons.append(Reason(code="restored", count=1, detail=detail))
    for name, units in job.needs:
        if name in counts.limits:
            reasons += _limit_used_up(state, job, name, job.nodes * units)
    if job.max_running is not None and (running := counts.running[job.id]) >= job.max_running:
        detail = f"{running} of its tasks may be running, and its own limit is {job.max_running}"
        reasons.append(Reason(code="max_running", count=running, detail=detail))
    return reasons


def _limit_used_up(state: State, job: Job, name: str, units: int) -> list[Reason]:
    counts, owner, key = state.own(CountedUnits), job.owner, state.index.requirements.key_of(job)
    exceeded = counts.used_up(name, owner, units)
    if exceeded is None:
        return _set_aside(state, name, key) if counts.used_up(name, owner, units, key) else []
    whom, allowed = exceeded
    used, needed = counts.used[name, whom], "" if units == 1 else f" ({units} are needed)"
    if units > allowed:
        needed = f" (a task needs {units}, which is more than the limit)"
    if whom == WHOLE_GRID:
        users = ", by " + ", ".join(f"{user} ({n})" for user, n in _used_by(counts, name).items()) if used else ""
        detail = f"{used} of {allowed} {name} in use{users}{needed}"
    else:
        detail = f"{owner} has {used} of the {allowed} {name} that one user may have at once{needed}"
    waiting = len(state.fresh[job.id]) + len(state.index.ready_sets[job.id].to_retry)
    return [Reason(code="limit", count=waiting, detail=detail)]


def _set_aside(state: State, name: str, key: RequirementClass) -> list[Reason]:
    """Return the reason that units of a limit are set aside for a job of another class."""
    theirs = state.own(CountedUnits).aside_for(name)
    if theirs is None or theirs == key:
        return []
    units, jobs = dict(limits_of(theirs))[name], state.index.requirements.jobs.get(theirs, ())
    detail = f"{units} {name} {'is' if units == 1 else 'are'} set aside for job "
    numbers = (number for number in jobs if state.jobs[number].reserved)
    return [Reason(code="set_aside", count=units, detail=f"{detail}{number}") for number in numbers]


def reserved_worker(state: State, job: Job) -> list[Reason]:
    """Return the reason that a worker is reserved for the job, with the time when it is expected to have room."""
    if not job.reserved:
        return []
    detail = f"{job.reserved} is reserved for its next task, and takes no others that would delay it"
    if (left_s := state.wings[Reservations].free_in_s(job)) < inf:
        detail += f"; room there is expected in {left_s:.0f} s"
    return [Reason(code="reserved", count=1, detail=detail)]


def _resource_used_up(state: State, job: Job, name: str, units: int) -> list[Reason]:
    """Return the reason that every worker with the resource has too little of it left."""
    counts, requirements = state.own(CountedUnits), state.index.requirements
    key = requirements.key_of(job)
    able = requirements.able[key]
    if not able or sum(not counts.is_short(worker, key) for worker in able) >= job.nodes:
        return []
    used = sum(counts.in_use(worker, name) for worker in able)
    offered = sum(one.units for worker in able for one in state.workers[worker].facts.resources if one.name == name)
    if name == COMPUTER:
        detail = f"none of the {len(able)} workers that could run it is idle, with all of its slots offered"
        if job.nodes > 1:
            able_words = f"of the {len(able)} workers that could run a member"
            detail = f"fewer than {job.nodes} {able_words} are idle, with all of their slots offered"
        return [Reason(code="resource", count=len(able), detail=detail)]
    on = "one of them" if job.nodes == 1 else f"each of {job.nodes}"
    needed = "" if units == job.nodes == 1 else f" ({units} {'is' if units == 1 else 'are'} needed on {on})"
    workers = f"{len(able)} worker{'' if len(able) == 1 else 's'}"
    detail = f"{used} of {offered} {name} in use on {workers}{_withheld(state, able) if name == GPU else ''}{needed}"
    return [Reason(code="resource", count=used, detail=detail)]


def _withheld(state: State, workers: Iterable[str]) -> str:
    """Return the number of GPUs that these workers do not offer now, with the reasons."""
    counts = state.own(CountedUnits)
    reasons = Counter(reason for worker in sorted(workers) for reason in counts.withheld_on(worker).values())
    return "".join(f", {count} not offered: {reason}" for reason, count in reasons.items())


def gpus_used(state: State, worker: str) -> dict[str, list[GpuUse]]:
    """Return the GPUs of a worker that its attempts hold, by id, with those attempts."""
    attempts, roles = state.index.attempts.of_worker.get(worker, {}), state.index.attempts.roles
    used = dict[str, list[GpuUse]]()
    for attempt in attempts.values():
        for gpu in attempt.gpus or () if may_be_running(roles.get(attempt.id, 0)) else ():
            used.setdefault(gpu, []).append(GpuUse(attempt=attempt.id, user=state.jobs[attempt.job].owner))
    return used


def _used_by(counts: CountedUnits, name: str) -> dict[str, int]:
    """Return the units of a limit in use, by user."""
    return {user: used for (of, user), used in sorted(counts.used.items()) if of == name and user != WHOLE_GRID}
