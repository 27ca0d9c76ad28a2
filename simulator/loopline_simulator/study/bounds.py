"""Least mean total times: a lower bound for every schedule, and the times of a schedule that knows the future.

``fluid`` is a bound: all machines as one with the sum of their speeds, which serves the job with the least work left
(shortest remaining processing time). No schedule completes more jobs by any time, with or without the hold: of two
jobs that the hold orders, the later one never has less work left.

``clairvoyant`` is a schedule under the hold, for equal jobs: jobs by arrival; each task, largest first, goes to the
machine that will finish it first; the last task of a job begins when the job before it has ended. The least possible
mean lies between the two, so their difference limits the error of the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from heapq import heappop, heappush
from statistics import fmean

from loopline_simulator.fast.hosts import Speed
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.workload import Workload
from loopline_simulator.fast.world import Arrival

_CLOSELY = 1e-4
"""Relative error of the times that are searched."""


class Bound(StrEnum):
    """A kind of bound, as the module says."""

    FLUID = "fluid"
    CLAIRVOYANT = "clairvoyant"


@dataclass(frozen=True, slots=True)
class BoundCase:
    seed: int
    bound: Bound
    workload: Workload
    park: Park


@dataclass(frozen=True, slots=True)
class BoundedJob:
    """A job: when it came, and the sizes of its tasks."""

    arrival: float
    sizes: list[float]


def mean_total(case: BoundCase) -> float:
    """Return the mean time from a job's submission to its end, in seconds, that the case bounds or reaches."""
    speeds = [host.speed for host in case.park.hosts(case.seed)]
    jobs = [BoundedJob(arrival.at, _sizes(arrival)) for arrival in case.workload.of(case.seed)]
    ends = clairvoyant(speeds, jobs) if case.bound is Bound.CLAIRVOYANT else fluid(speeds, jobs)
    return fmean(ends) - fmean(job.arrival for job in jobs)


def _sizes(arrival: Arrival) -> list[float]:
    return [task.size or 0.0 for task in arrival.spec.tasks or ()]


def fluid(speeds: Sequence[Speed], jobs: Sequence[BoundedJob]) -> list[float]:
    """Return the times of completion, in their order, of all jobs on the machines as one."""
    done_by = _total_work(speeds)
    left: list[float] = []  # a heap of the work left of each job
    done, ends = 0.0, []
    for job, until in zip(jobs, [*(job.arrival for job in jobs[1:]), math.inf], strict=True):
        done = max(done, done_by(job.arrival))
        heappush(left, sum(job.sizes))
        limit = done_by(until) if until < math.inf else math.inf
        while left and done + left[0] <= limit:
            done += heappop(left)
            ends.append(_first_time(partial(_is_done, done_by, done), job.arrival))
        if left and limit < math.inf:
            heappush(left, heappop(left) - (limit - done))
            done = limit
    return ends


def _total_work(speeds: Sequence[Speed]) -> Callable[[float], float]:
    return lambda time: sum(speed.work_between(0.0, time) for speed in speeds)


def _is_done(done_by: Callable[[float], float], work: float, time: float) -> bool:
    return done_by(time) >= work


def _first_time(holds: Callable[[float], bool], after: float) -> float:
    """Return the first time when a condition holds; it must hold from then on."""
    step = 1.0
    while not holds(after + step):
        step *= 2
    low, high = after + step / 2 if step > 1 else after, after + step
    while high - low > _CLOSELY * max(1.0, high - after):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low  # a bound must not be above


def clairvoyant(speeds: Sequence[Speed], jobs: Sequence[BoundedJob]) -> list[float]:
    """Return the ends of the jobs under the hold, by arrival, where every machine's future is known."""
    free = [0.0] * len(speeds)
    ends: list[float] = []
    for job in jobs:
        *others, last = sorted(job.sizes, reverse=True)
        end = max((_place(speeds, free, size, job.arrival) for size in others), default=0.0)
        held_until = ends[-1] if ends else 0.0
        ends.append(max(end, _place(speeds, free, last, max(job.arrival, held_until))))
    return ends


def _place(speeds: Sequence[Speed], free: list[float], size: float, earliest: float) -> float:
    """Give a task to the machine that ends it first, not before a time; return its end."""
    options = ((speed.end_of(max(free[place], earliest), size), place) for place, speed in enumerate(speeds))
    end, place = min(options)
    free[place] = end
    return end
