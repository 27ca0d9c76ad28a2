"""The order of jobs: the hold, the virtual time of fair sharing, and dependencies.

**The hold** guarantees the order (the no-passing paper, section 3). The last never-started task of job J is kept back
while a *predecessor* is in the grid: a job that was there when J came, has a size, and is not larger. So J, lacking
that task, cannot complete first, however the machines behave. Arrivals are numbered, so a predecessor is a live job
with a smaller arrival and a size of at most J's weight (docs/design/hold.md).

**Virtual time** is the clock of fair sharing (docs/design/fair-hold.md). Work done is shared equally by the jobs that
fair sharing, had it served them from the start, would not have finished yet: the clock has not reached their finish
tags.

**Dependents** wait outside the grid for the jobs that must succeed before them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

_VACANT = math.inf
_SMALLEST = 16
_FEW, _MANY = 4, 12
"""A tree is built for more than ``_MANY`` jobs, and dropped when fewer than ``_FEW`` are left."""


class HoldIndex:
    """The jobs that hold others, by arrival and weight: a segment tree of least weights once they are many.

    Each query and each change costs O(log n). Leaves are in order of arrival. The leaf of a job that has ceased to
    hold others stays vacant until the tree is rebuilt. The last leaf is always vacant. Without a tree, the few jobs
    are scanned.
    """

    def __init__(self) -> None:
        self._weights: dict[int, float] = {}  # by arrival
        self._leaves = 0  # number of leaves of the tree; 0: no tree
        self._arrivals: list[int] = []  # of the leaves
        self._least: list[float] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HoldIndex) and self._weights == other._weights

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return bool(self._weights)

    def put(self, arrival: int, weight: float) -> None:
        """Enter a job that holds all later jobs of at least its weight."""
        if self._weights.get(arrival) == weight:
            return
        self._weights[arrival] = weight
        if self._leaves:
            self._graft(arrival, weight)
        elif len(self._weights) > _MANY:
            self._plant()

    def drop(self, arrival: int) -> None:
        """Drop a job that no longer holds others."""
        if self._weights.pop(arrival, None) is None or not self._leaves:
            return
        if len(self._weights) < _FEW:
            self._leaves = 0
        else:
            self._set(bisect_left(self._arrivals, arrival), _VACANT)

    def blocker(self, arrival: int, weight: float) -> int | None:
        """Return the arrival of the latest job that holds a job of this arrival and weight; None if it is free.

        The hold lasts at least as long as this blocker: no check is needed before it has gone.
        """
        if not self._leaves:
            return max(self._holders(arrival, weight), default=None)
        node = self._leaves + bisect_left(self._arrivals, arrival)
        while node > 1:
            is_right = node % 2 == 1
            if is_right and self._least[node - 1] <= weight:
                return self._arrivals[self._last_leaf(node - 1, weight)]
            node //= 2
        return None

    def first(self, arrival: int, weight: float) -> int | None:
        """Return the arrival of the earliest job that holds a job of this arrival and weight; None if it is free."""
        if not self._leaves:
            return min(self._holders(arrival, weight), default=None)
        node = 1
        while node < self._leaves:
            node = 2 * node + (self._least[2 * node] > weight)
        leaf = node - self._leaves
        found = leaf < len(self._arrivals) and self._least[node] <= weight and self._arrivals[leaf] < arrival
        return self._arrivals[leaf] if found else None

    def predecessors(self, arrival: int, weight: float) -> list[int]:
        """Return the arrivals of all jobs that hold it, for display to users. Costs O(n)."""
        return sorted(self._holders(arrival, weight))

    def _holders(self, arrival: int, weight: float) -> list[int]:
        return [one for one, least in self._weights.items() if one < arrival and least <= weight]

    def _graft(self, arrival: int, weight: float) -> None:
        leaf = bisect_left(self._arrivals, arrival)
        if leaf < len(self._arrivals) and self._arrivals[leaf] == arrival:
            self._set(leaf, weight)
        elif leaf == len(self._arrivals) < self._leaves - 1:
            self._arrivals.append(arrival)
            self._set(leaf, weight)
        else:
            self._plant()

    def _last_leaf(self, node: int, weight: float) -> int:
        while node < self._leaves:
            node = 2 * node + (self._least[2 * node + 1] <= weight)
        return node - self._leaves

    def _set(self, leaf: int, weight: float) -> None:
        node = self._leaves + leaf
        self._least[node] = weight
        while node > 1:
            node //= 2
            self._least[node] = min(self._least[2 * node], self._least[2 * node + 1])

    def _plant(self) -> None:
        self._arrivals = sorted(self._weights)
        self._leaves = max(_SMALLEST, 1 << (2 * len(self._arrivals)).bit_length())
        filled = [self._weights[arrival] for arrival in self._arrivals]
        self._least = [_VACANT] * self._leaves + filled + [_VACANT] * (self._leaves - len(filled))
        for node in range(self._leaves - 1, 0, -1):
            self._least[node] = min(self._least[2 * node], self._least[2 * node + 1])


class VirtualTime:
    """Clock of fair sharing, advanced by the finish tags of the jobs in the grid."""

    def __init__(self) -> None:
        self._order: list[float] = []
        self._of: dict[int, float] = {}  # by job

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VirtualTime) and self._of == other._of

    __hash__ = None  # type: ignore[assignment]

    def put(self, job: int, tag: float) -> None:
        self.drop(job)
        self._of[job] = tag
        insort(self._order, tag)

    def drop(self, job: int) -> None:
        tag = self._of.pop(job, None)
        if tag is not None:
            del self._order[bisect_left(self._order, tag)]

    def after(self, clock: float, work: float) -> float:
        """Return the clock after ``work`` more has been done; it stops when no tag is ahead of it.

        Each tag reached leaves fewer jobs to share the rest. A job is passed only once: O(log n) amortised.
        """
        order = self._order
        at = bisect_right(order, clock)
        while work > 0 and at < len(order):
            sharers, ahead = len(order) - at, order[at] - clock
            if work < ahead * sharers:
                return clock + work / sharers
            work -= ahead * sharers
            clock = order[at]
            at = bisect_right(order, clock)
        return clock


class Dependents:
    """Waiting jobs and their dependencies, a function of the former alone: the latter may have left memory."""

    def __init__(self) -> None:
        self.jobs: dict[int, tuple[int, ...]] = {}  # waiting job: the jobs that it waits for
        self._followers: dict[int, set[int]] = {}  # the reverse

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dependents) and self.jobs == other.jobs

    __hash__ = None  # type: ignore[assignment]

    def place(self, job: int, waits_for: tuple[int, ...]) -> None:
        """Enter a job as it is now; it leaves if ``waits_for`` is empty."""
        before = self.jobs.get(job, ())
        if before == waits_for:
            return
        self._drop(job, set(before).difference(waits_for))
        for one in set(waits_for).difference(before):
            self._followers.setdefault(one, set()).add(job)
        if waits_for:
            self.jobs[job] = waits_for
        else:
            del self.jobs[job]

    def followers(self, job: int) -> list[int]:
        """Return the jobs that wait for this one, in the order of their submission."""
        return sorted(self._followers.get(job, ()))

    def each(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return all waiting jobs in the order of their submission, each with the jobs it waits for."""
        return sorted(self.jobs.items())

    def _drop(self, job: int, leaders: Iterable[int]) -> None:
        for one in leaders:
            self._followers[one].discard(job)
            if not self._followers[one]:
                del self._followers[one]
