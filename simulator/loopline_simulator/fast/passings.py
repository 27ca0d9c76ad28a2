"""Passings of jobs, counted from sizes, arrivals and completions alone, independently of the scheduler.

Job B passes job A when A was in the grid at the moment B was submitted, A has a size, B has none or is not smaller,
and B completes before A. The pairs that meet all but the last condition are passable.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobSpan:
    """Times and size of a job, as far as passings depend on them. A job that never completes ends at infinity."""

    submitted: float
    size: float | None  # None: it has none, so that others may pass it
    completed: float


@dataclass(frozen=True, slots=True)
class PassingCount:
    passed: int  # pairs
    passable: int


def count(jobs: Sequence[JobSpan]) -> PassingCount:
    """Count passings of ``jobs``, which are in the order of their submission. Takes O(n log n)."""
    return PassingCount(_passed(jobs), _passable(jobs))


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
        total += present.before(len(sizes) if job.size is None else bisect_right(sizes, job.size))
        if job.size is not None:
            present.add(bisect_left(sizes, job.size))
    return total


def _passed(jobs: Sequence[JobSpan]) -> int:
    """Count pairs in the same order by arrival, by size, and by completion from last to first.

    Two jobs agree in all three pairs of these orders or in exactly one; so counts for two orders give that for three.
    """
    numbers = range(len(jobs))
    by_size = _ranks(sorted(numbers, key=lambda n: _place_by_size(jobs[n].size, n)))
    backwards = _ranks(sorted(numbers, key=lambda n: (jobs[n].completed, n), reverse=True))
    agreeing = _agreeing(by_size) + _agreeing(backwards) + _agreeing(_composed(by_size, backwards))
    return (agreeing - len(jobs) * (len(jobs) - 1) // 2) // 2


def _place_by_size(size: float | None, number: int) -> tuple[float, int]:
    """Return a sort key: sizes ascending, equal ones as they came, then jobs without a size, the last to come first.

    So of two jobs without a size, the later one always precedes the earlier one, and does not count as passing it.
    """
    return (math.inf, -number) if size is None else (size, number)


def _ranks(order: Sequence[int]) -> list[int]:
    ranks = [0] * len(order)
    for rank, number in enumerate(order):
        ranks[number] = rank
    return ranks


def _composed(first: Sequence[int], second: Sequence[int]) -> list[int]:
    """Return the second order's ranks, listed in the first order."""
    listed = [0] * len(first)
    for one, other in zip(first, second, strict=True):
        listed[one] = other
    return listed


def _agreeing(ranks: Sequence[int]) -> int:
    """Count pairs of places whose ranks are in the places' order."""
    seen, total = _Counter(len(ranks)), 0
    for rank in ranks:
        total += seen.before(rank)
        seen.add(rank)
    return total
