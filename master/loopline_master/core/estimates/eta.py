"""Estimated finish times of jobs, from their courses (course.py), the work ahead of them, slots and guarantee.

Computed on request, never within a step: O(jobs log jobs + attempts under way).

The grid is assumed to stay as it is: no machine or job arrives or leaves. The model is fluid (an amount of work, a
number of slots) with a tail: the last tasks of a job, each possibly long. Its margins are chosen so that, in
simulations, half of the jobs complete before their p50 and nine in ten before their p90 (eta_calibration.py of
benchmarks).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from loopline_master.core.estimates import measure
from loopline_master.core.estimates.course import Course, course_of, under_way_of
from loopline_master.core.estimates.lognormal import Lognormal
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.index.requirement_class import meets, requirement_class_of
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptId, JobState, Order, OrderWithin, SizeSource
from loopline_shared.spec import JobSpec

_Z90 = 1.2816
_SHARING = ("round-robin", "space-partition")
"""Policies under which all jobs progress at once; under the others they are served one after another."""
_MARGIN = 0.1
"""Standard deviation of the logarithm for all effects that the model does not explain."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A forecast of a job's end: quantiles in seconds from now, and the evidence for them."""

    p50_s: float
    p90_s: float
    based_on: str
    by_progress: bool = False  # its running tasks tell their progress, and none has finished


@dataclass(frozen=True, slots=True)
class Unknown:
    """A job without a forecast, and the reason."""

    reason: str


Outlook = Mapping[int, Forecast | Unknown]
"""Forecasts by job, for all jobs in the grid or waiting to enter it."""


def outlook(state: State, progress: Mapping[AttemptId, float] | None = None) -> Outlook:
    """Return a forecast for every job, or the reason why there is none.

    ``progress``: the part that is done of tasks that running attempts tell.
    """
    found: dict[int, Forecast | Unknown] = {}
    courses = _courses(state, found, progress=progress)
    _run(state, courses)
    _leave_out_stuck(state, courses, found)
    told = (course for course in _held(state, courses, found) if course.based_on)
    return found | {
        course.job.id: Forecast(*course.end, course.based_on, by_progress=course.by_progress) for course in told
    }


def _leave_out_stuck(state: State, courses: list[Course], found: dict[int, Forecast | Unknown]) -> None:
    """Drop the forecasts of jobs that only wait for slots of jobs without one."""
    unknown = {course.job.id for course in courses if not course.based_on}
    known: dict[RequirementClass, int | None] = {}
    for course in courses if unknown else ():
        if course.based_on and course.unstarted and not course.under_way:
            if course.key not in known:
                known[course.key] = _blocking(state, course.key, unknown)
            if (job := known[course.key]) is not None:
                reason = f"it waits for slots taken by jobs of which nothing is known yet, such as job {job}"
                course.based_on, found[course.job.id] = "", Unknown(reason)


def _blocking(state: State, key: RequirementClass, unknown: Collection[int]) -> int | None:
    """Return one of the jobs that take all slots of the class; None if another job has a slot, or one is free."""
    attempts, index, job = state.index.attempts, state.index, None
    for name in index.requirements.able.get(key, ()):
        if index.slots.free_slots(state.workers[name]) > 0:
            return None
        for attempt in attempts.seated_on(name) if name in attempts.of_worker else ():
            if attempt.job not in unknown:
                return None
            job = attempt.job if job is None else min(job, attempt.job)
    return job


def preview(state: State, spec: JobSpec) -> Forecast | None:
    """Return the forecast of a job if it were submitted now.

    None if its size or the speed of all workers is unknown, or if no connected worker could run it.
    """
    if spec.known_size is None or not state.grid.measured:
        return None
    job = Job(
        id=state.grid.next_job,
        owner="",
        spec=spec,
        task_count=spec.task_count,
        size=spec.known_size,
        order=state.settings.order_of(spec, spec.task_count),
        within=state.settings.order_within,
        max_attempts=1,
        max_replicas=1,
        arrival=state.grid.sequence + 1,
        turn=state.grid.sequence + 1,
        submitted_at=state.now,
    )
    job.tag = measure.tag_of(state.grid, job)
    found: dict[int, Forecast | Unknown] = {}
    slots = _Slots(state)
    courses = _courses(state, found, slots)
    key = requirement_class_of(spec.requires, spec.nodes, limits=state.index.requirements.units.limits)
    if not slots.of(key)[0]:
        return None
    courses.append(own := course_of(state.grid, job, key, slots.speed(key, job), spec.task_count, []))
    _run(state, courses, slots)
    ends = {course.job.id: course for course in _held(state, courses, found)}
    return Forecast(*ends[job.id].end, own.based_on) if job.id in ends else None


class _Slots:
    """Slots and mean speeds of the available workers, by requirement class and the share that a task wants."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[tuple[RequirementClass, float], tuple[int, float]] = {}

    def of(self, key: RequirementClass, wants: float = 1.0) -> tuple[int, float]:
        """Return the number of slots and their mean speed."""
        if (key, wants) not in self._known:
            self._known[key, wants] = self._counted(key, wants)
        return self._known[key, wants]

    def speed(self, key: RequirementClass, job: Job) -> float:
        """Return the mean speed of the slots for a job of that class."""
        return self.of(key, measure.share_wanted(job, self._state.programs))[1]

    def _counted(self, key: RequirementClass, wants: float) -> tuple[int, float]:
        suitable = [one for one in self._state.index.requirements.available.values() if meets(one.facts, key)]
        slots = sum(worker.offered for worker in suitable)
        work = math.fsum(worker.offered * measure.speed_now(worker, wants) for worker in suitable)
        return slots, work / slots if slots else 1.0


def _courses(
    state: State,
    found: dict[int, Forecast | Unknown],
    slots: _Slots | None = None,
    progress: Mapping[AttemptId, float] | None = None,
) -> list[Course]:
    """Return the courses of the jobs that can make progress; ``found`` takes the reasons of the others."""
    slots, queued = slots or _Slots(state), state.index.attempts.queues.of_job
    under_way = under_way_of(state, progress or {})
    courses = []
    for job in state.jobs.values():
        if job.is_over:
            continue
        ready_set = state.index.ready_sets[job.id]
        unstarted = (
            len(state.fresh[job.id]) + len(ready_set.to_retry) + len(ready_set.delayed) + queued.get(job.id, 0)
        )
        unstarted += len(ready_set.under_replicated) if job.quorum else 0
        reason = _why_unknown(state, slots, job)
        if reason:
            found[job.id] = Unknown(reason)
        else:
            key = state.index.requirements.key_of(job)
            course = course_of(state.grid, job, key, slots.speed(key, job), unstarted, under_way.get(job.id, []))
            if not course.based_on:
                is_void = job.size_source is SizeSource.GIVEN and state.grid.measured
                longer = "it takes longer than its size says, and " if is_void else ""
                found[job.id] = Unknown(f"{longer}no task of it has finished yet")
            courses.append(course)
    return courses


def _why_unknown(state: State, slots: _Slots, job: Job) -> str:
    if job.state is JobState.WAITING:
        return "it waits for other jobs, and is not yet in the grid"
    if job.paused:
        return "it is paused"
    return "" if slots.of(state.index.requirements.key_of(job))[0] else "no connected worker offers it a slot"


def _run(state: State, courses: list[Course], slots: _Slots | None = None) -> None:
    """Set the end of each job as if no other held it. A job with only a held task left takes no slots yet."""
    slots, working = slots or _Slots(state), []
    for course in courses:
        if course.unstarted == 1 and not course.under_way and state.index.is_held(course.job):
            course.ahead_s = course.left_s
        else:
            working.append(course)
    if state.settings.policy in _SHARING:
        _share(working)
    else:
        _queue(working, by_tag=state.settings.policy == "fair")
    for course in courses:
        course.end = _end(course, slots.of(course.key)[0] / course.job.slots)


def _queue(courses: list[Course], *, by_tag: bool) -> None:
    """Put the jobs one after another: each starts its last task after all work before it."""
    ahead = 0.0
    for course in sorted(courses, key=lambda c: (c.job.tag if by_tag else 0.0, c.job.arrival)):
        ahead += course.left_s
        course.ahead_s = ahead


def _share(courses: list[Course]) -> None:
    """Share the slots equally: by the end of a job, every other job has had as much work, or all it had left.

    The jobs of a session share as one job, and are served one after the other.
    """
    turns: dict[int, list[Course]] = defaultdict(list)
    for course in sorted(courses, key=lambda c: c.job.arrival):
        turns[course.job.turn].append(course)
    lefts = sorted(sum(course.left_s for course in turn) for turn in turns.values())
    sums = [0.0, *accumulate(lefts)]
    for turn in turns.values():
        served = 0.0
        for course in turn:
            served += course.left_s
            ended = bisect_right(lefts, served)
            course.ahead_s = sums[ended] + served * (len(lefts) - ended)


def _end(course: Course, slots: float) -> tuple[float, float]:
    """Return p50 and p90 of a job's end: when its last tasks start and their duration, by law."""
    nodes = course.job.nodes
    last = max(1.0, min(float(course.unstarted + len(course.under_way)), slots / nodes))
    half, most = (share ** (1 / last) for share in (0.5, 0.9))
    own = [max((law.left(age, q) for law, age in course.laws), default=0.0) for q in (half, most)]
    if not course.unstarted:
        return own[0], own[1]
    law = Lognormal(course.law.mu + math.log(course.size), math.hypot(course.law.sigma, course.spread))
    start = max(0.0, course.ahead_s - nodes * law.mean * (1 + last / 2)) / slots
    margin = math.exp(_Z90 * math.sqrt(course.variance + _MARGIN**2))
    return max(start + law.left(0.0, half), own[0]), max(start * margin + law.left(0.0, most), own[1])


def _held(state: State, courses: list[Course], found: dict[int, Forecast | Unknown]) -> Iterable[Course]:
    """Delay each job until the jobs that it may not pass have ended; under *hold*, its last task only starts then."""
    ends = _Ends(state.index.live.values() if courses else ())
    by_id = {course.job.id: course for course in courses}
    new = [course.job for course in courses if course.job.id not in state.jobs]
    for job in (*state.index.live.values(), *new):
        course = by_id.get(job.id)
        first = ends.before(job) if job.order is not Order.NONE else None
        if course is not None and first is not None and job.released_at is None:
            if first[1] == math.inf:
                reason = f"it may not pass job {first[2]}, of which nothing is known yet"
                found[job.id], course = Unknown(reason), None
            else:
                more = (0.5, 0.9) if job.order is Order.HOLD and not job.is_computed else (0.0, 0.0)
                took = [course.size * course.law.left(0.0, share) if share else 0.0 for share in more]
                course.end = (max(course.end[0], first[0] + took[0]), max(course.end[1], first[1] + took[1]))
        if job.has_claim:
            p50, p90 = course.end if course is not None and course.based_on else (math.inf, math.inf)
            ends.add(job, (p50, p90, job.id))
        if course is not None:
            yield course


class _Ends:
    """Ends of jobs that hold others: of all jobs, and of each user's jobs if the guarantee is within users."""

    def __init__(self, jobs: Collection[Job]) -> None:
        self._of_all = _Latest(job.weight for job in jobs)
        weights: dict[str, list[float]] = {}
        for job in jobs if any(job.within is OrderWithin.USER for job in jobs) else ():
            weights.setdefault(job.owner, []).append(job.weight)
        self._of_user = {owner: _Latest(own) for owner, own in weights.items()}

    def add(self, job: Job, end: tuple[float, float, int]) -> None:
        self._of_all.add(job.weight, end)
        if job.owner in self._of_user:
            self._of_user[job.owner].add(job.weight, end)

    def before(self, job: Job) -> tuple[float, float, int] | None:
        """Return the latest end among the jobs that hold this one; None if it is not held."""
        weight = _weight(job)
        if job.within is OrderWithin.GRID:
            return self._of_all.up_to(weight)
        return self._of_user[job.owner].up_to(weight) if job.owner in self._of_user else None


def _weight(job: Job) -> float:
    """Return the expected weight of the job when its last task is held back: it has one only then."""
    shown = measure.weight_shown(job)
    return job.weight if job.size is not None or job.shown is not None or shown is None else shown


@dataclass(slots=True)
class _Latest:
    """The latest end among jobs of at most some weight: a Fenwick tree of maxima over the weights."""

    weights: Iterable[float]
    _sorted: list[float] = field(init=False)
    _tree: list[tuple[float, float, int] | None] = field(init=False)

    def __post_init__(self) -> None:
        self._sorted = sorted(set(self.weights))
        self._tree = [None] * (len(self._sorted) + 1)

    def add(self, weight: float, end: tuple[float, float, int]) -> None:
        at = bisect_right(self._sorted, weight)
        while 0 < at < len(self._tree):
            known = self._tree[at]
            self._tree[at] = end if known is None or known[1] < end[1] else known
            at += at & -at

    def up_to(self, weight: float) -> tuple[float, float, int] | None:
        at, latest = bisect_right(self._sorted, weight), None
        while at > 0:
            known = self._tree[at]
            if known is not None and (latest is None or latest[1] < known[1]):
                latest = known
            at -= at & -at
        return latest
