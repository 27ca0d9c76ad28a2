"""The expected course of a job: its remaining tasks, and the expected duration of each.

A task's duration is lognormal. Its law follows from finished and running tasks, from a given size, from the progress
that programs tell, or from earlier runs of the program.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import pstdev

from loopline_master.core.estimates import measure
from loopline_master.core.estimates.lognormal import MOST_LOG, Lognormal, fitted
from loopline_master.core.kernel.entities import LIVE, Grid, Job
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.kernel.state import State
from loopline_shared.model import AttemptId, SizeSource

_PRIOR = 1.0
"""A given size counts as this many finished tasks that took exactly as long."""
_PRIOR_SIGMA, _LEAST_SIGMA = 0.5, 0.05
_LEAST_WORK = 1e-6
_P10_TO_P90 = 2.563  # standard deviations between the two
_EARLY = 1.0
"""Correction for the first finished tasks of a job, which are short ones: a shift of the logarithm, divided by their
number plus one."""
_SAMPLE = 20
_LEAST_PROGRESS = 0.01
"""Progress of a task below this says nothing about its end."""
_VOID = 8.0
"""A given size tells nothing once a task has run for this many times as long, and none has finished."""
_UnderWay = tuple[float, float, int]
"""A running task: its progress (0: unknown), its age in seconds, and its number."""


@dataclass(frozen=True, slots=True)
class _Running:
    """A task under way. Times are seconds on its worker."""

    age: float  # the time in its checkpoint included
    size: float
    progress: float  # as its program tells it; 0: unknown

    @property
    def total(self) -> float | None:
        """Return the time that the whole task takes by its progress; None if that is unknown."""
        return self.age / self.progress if self.age and self.progress >= _LEAST_PROGRESS else None

    def law(self, law: Lognormal) -> tuple[Lognormal, float]:
        """Return the law of its time, and its age. ``law``: of all tasks, relative to their sizes."""
        if self.total is None:
            return law.scaled(self.size), self.age
        left, sigma = self.total - self.age, _PRIOR_SIGMA * (1 - self.progress)
        return Lognormal(math.log(max(left, _LEAST_WORK)), max(_LEAST_SIGMA, sigma)), 0.0


@dataclass(slots=True)
class Course:
    """The expected course of a job."""

    job: Job
    key: RequirementClass
    based_on: str  # empty: a guess, good enough for the jobs behind it
    law: Lognormal  # of a task's seconds on a slot, relative to its size
    size: float  # mean size of an unstarted task, in those seconds; for a gang, of each member
    spread: float  # of their sizes, as a standard deviation of the logarithm
    unstarted: int
    under_way: list[_Running]
    by_progress: bool = False  # ``law`` follows from the progress of running tasks
    left_s: float = 0.0  # slot-seconds, in all
    ahead_s: float = 0.0  # slot-seconds before its last task starts, its own included
    end: tuple[float, float] = (0.0, 0.0)  # p50, p90

    def __post_init__(self) -> None:
        self.left_s = self.unstarted * self.size * self.law.mean
        self.left_s += sum(law.mean_left(age) for law, age in self.laws)
        self.left_s *= self.job.nodes

    @property
    def laws(self) -> Iterable[tuple[Lognormal, float]]:
        """Return law and age of each task under way."""
        return (one.law(self.law) for one in self.under_way)

    @property
    def variance(self) -> float:
        """Return the variance of the logarithm of ``left_s``.

        It adds the uncertainty of the mean to that of the sum of the tasks, which is assumed to be lognormal again
        (Fenton and Wilkinson).
        """
        known = self.job.succeeded + (_PRIOR if self.job.size_source is SizeSource.GIVEN else 0.0)
        one = math.expm1(min(MOST_LOG, self.law.sigma**2 + self.spread**2))
        every = math.log1p(one / max(1, self.unstarted + len(self.under_way)))
        return self.law.sigma**2 / max(_PRIOR, known) + every


def course_of(
    grid: Grid, job: Job, key: RequirementClass, speed: float, unstarted: int, under_way: list[_UnderWay]
) -> Course:
    """Return the course of a job. ``speed``: mean speed of the slots it may use."""
    speed *= job.nodes  # the size of a gang is that of all members together
    saved, numbers = job.saved or {}, {number for *_, number in under_way}
    stopped = [(saved[number][1], saved[number][0] / speed, number) for number in saved.keys() - numbers]
    running, waiting = (
        [_Running(age, (job.sweep.size_at(number) or 1.0) / speed, progress) for progress, age, number in tasks]
        for tasks in (under_way, sorted(stopped))
    )
    given = job.size if job.size_source is SizeSource.GIVEN else None
    told = None
    is_void = bool(job.longest) or any(one.age > _VOID * one.size for one in running)
    if not job.succeeded and (given is None or is_void):
        told = _by_progress(running, waiting)
        law, based_on = told or _expected(grid, job)
    else:
        law = _law(job, [one.age / one.size for one in running])
        based_on = (
            f"{job.succeeded} finished task{'' if job.succeeded == 1 else 's'}" if job.succeeded else "its size"
        )
        based_on = based_on if job.succeeded or grid.measured else ""
    size, spread = 1.0 / speed, 0.0
    if given is not None:
        left = given - job.work_done - speed * sum(one.size for one in running)
        size, spread = max(left / max(1, unstarted), 1e-3 * given / job.task_count) / speed, _spread(job)
    if waiting and unstarted:
        size = max(size - sum(one.age for one in waiting) / (unstarted * law.mean), 1e-3 * size)
    return Course(
        job=job,
        key=key,
        based_on=based_on,
        law=law,
        size=size,
        spread=spread,
        unstarted=unstarted * (job.quorum or 1),
        under_way=running,
        by_progress=told is not None,
    )


def _by_progress(running: Iterable[_Running], waiting: Iterable[_Running]) -> tuple[Lognormal, str] | None:
    """Return the law of a task's duration by progress: of running tasks, else of waiting ones with a checkpoint."""
    for tasks, kind in ((running, "running task"), (waiting, "stopped task")):
        if totals := [one.total / one.size for one in tasks if one.total is not None]:
            mu, number = sum(map(math.log, totals)) / len(totals), len(totals)
            return Lognormal(mu, _PRIOR_SIGMA), f"the progress of {number} {kind}{'' if number == 1 else 's'}"
    return None


def _expected(grid: Grid, job: Job) -> tuple[Lognormal, str]:
    """Return the law of a task's duration before any has finished: from earlier runs of the program, or a guess."""
    if job.predicted is None:
        return Lognormal(math.log(measure.work_of(grid, job, 1)), _PRIOR_SIGMA), ""
    low, middle, high = (
        max(work, _LEAST_WORK) for work in (job.predicted.p10, job.predicted.work, job.predicted.p90)
    )
    sigma = max(_LEAST_SIGMA, (math.log(high) - math.log(low)) / _P10_TO_P90)
    runs = f"{job.predicted.runs} earlier run{'' if job.predicted.runs == 1 else 's'} of its program"
    return Lognormal(math.log(middle), sigma), runs


def _spread(job: Job) -> float:
    """Return the standard deviation of the logarithm of the given sizes, from a sample of the tasks."""
    if job.spec.tasks is None:
        return 0.0
    every = -(-job.task_count // _SAMPLE)
    sizes = [job.sweep.size_at(number) for number in range(1, job.task_count + 1, every)]
    return pstdev(math.log(size) for size in sizes if size is not None) if any(sizes) else 0.0


def _law(job: Job, ages: list[float]) -> Lognormal:
    """Return the law of a task's duration, from the finished tasks; a given size counts like ``_PRIOR`` of them."""
    prior = _PRIOR if job.size_source is SizeSource.GIVEN else 0.0
    count = job.succeeded + prior
    mean = job.log_mean + (0.0 if prior else _EARLY / (1 + job.succeeded))
    squares = job.log_m2 + _PRIOR_SIGMA**2
    return fitted(count, mean, squares, _LEAST_SIGMA, ages)


def under_way_of(state: State, progress: Mapping[AttemptId, float]) -> dict[int, list[_UnderWay]]:
    """Return the running tasks by job, each as its furthest attempt.

    Time counts until a disconnected worker's last Report, and not while an attempt was frozen.
    """
    furthest: dict[tuple[int, int], tuple[float, float]] = {}
    for attempt in state.attempts.values():
        if attempt.state in LIVE and not attempt.is_queued:
            worker = state.workers[attempt.worker]
            until = state.now if worker.session is not None else worker.reported_at or attempt.since
            age = measure.worked_s(attempt, until)
            if attempt.done_before:
                age += attempt.done_before / measure.speed_of(worker)
            at = progress.get(attempt.id, 0.0), age
            furthest[attempt.task_id] = max(at, furthest.get(attempt.task_id, at))
    found: dict[int, list[_UnderWay]] = defaultdict(list)
    for (job, number), at in sorted(furthest.items()):  # sums depend on it, and a restart must have the same
        found[job].append((*at, number))
    return found
