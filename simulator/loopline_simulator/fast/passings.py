"""Passings of jobs, counted from sizes, arrivals and completions alone, independently of the scheduler.

Job B passes job A when A was in the grid at the moment B was submitted, A has a size, B is not smaller, and B
completes before A. Without a size, B has the size measured on its tasks, or is larger than any other. The pairs that
meet all but the last condition are passable.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobSpan:
    """Times and size of a job, as far as passings depend on them. A job that never completes ends at infinity."""

    submitted: float
    size: float | None  # None: it has none, so that others may pass it
    completed: float
    shown: float | None = None  # of a job without a size: its weight when it was released


@dataclass(frozen=True, slots=True)
class PassingCount:
    passed: int  # pairs
    passable: int


def count(jobs: Sequence[JobSpan]) -> PassingCount:
    """Count passings of ``jobs``, which are in the order of their submission. Takes O(n log n)."""
    return PassingCount(_passed(jobs), _passable(jobs))


_Role = tuple[float, float]
"""A size, and the time of completion."""


class _Counter:
    """Counter of taken places before a given one (a Fenwick tree)."""

    def __init__(self, places: int) -> None:
        self._sums = [0] * (places + 1)

    def add(self, place: int, change: int = 1) -> None:
        place += 1
        while place < len(self._sums):
            self._sums[place] += change
            place += place & -place

    def before(self, place: int) -> int:
        total = 0
        while place:
            total += self._sums[place]
            place &= place - 1
        return total


def _passable(jobs: Sequence[JobSpan]) -> int:
    """Count, at each submission, the jobs present that have a size and are at most as large."""
    sizes = sorted(job.size for job in jobs if job.size is not None)
    present, leaving, total = _Counter(len(jobs)), 0, 0
    by_completion = sorted(range(len(jobs)), key=lambda number: jobs[number].completed)
    for number, job in enumerate(jobs):
        while jobs[by_completion[leaving]].completed <= job.submitted and by_completion[leaving] < number:
            left = jobs[by_completion[leaving]].size
            if left is not None:
                present.add(bisect_left(sizes, left), -1)
            leaving += 1
        total += present.before(bisect_right(sizes, _weight(job)))
        if job.size is not None:
            present.add(bisect_left(sizes, job.size))
    return total


def _passed(jobs: Sequence[JobSpan]) -> int:
    """Count, for each job, the later, no smaller jobs that complete before it."""
    return _passed_among(jobs)[0]


def _passed_among(jobs: Sequence[JobSpan]) -> tuple[int, list[_Role], list[_Role]]:
    """Return the count, the jobs that may be passed, and all jobs as passing ones; both in order of size.

    Pairs of the two halves are counted in a sweep over sizes: of the earlier jobs up to a size, how many end later?
    """
    if len(jobs) <= 1:
        may_be_passed = [(job.size, job.completed) for job in jobs if job.size is not None]
        return 0, may_be_passed, [(_weight(job), job.completed) for job in jobs]
    half = len(jobs) // 2
    earlier, passed, weighed = _passed_among(jobs[:half])
    later, passed_too, passing = _passed_among(jobs[half:])
    total, ends, place = earlier + later, list[float](), 0
    for weight, completed in passing:
        while place < len(passed) and passed[place][0] <= weight:
            insort(ends, passed[place][1])
            place += 1
        total += len(ends) - bisect_right(ends, completed)
    return total, sorted(passed + passed_too), sorted(weighed + passing)


def _weight(job: JobSpan) -> float:
    if job.size is not None:
        return job.size
    return math.inf if job.shown is None else job.shown
