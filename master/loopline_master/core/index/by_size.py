"""Startable tasks of a job by size, to find the largest that is small enough."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from loopline_master.core.index.intervals import IntervalSet

_MICRO = 1e6


class BySize:
    """Tasks are known by their rank among all of the job's tasks; the largest gone first, ranks stay few ranges."""

    def __init__(self, sizes: Sequence[float]) -> None:
        """``sizes`` of tasks 1 to n; none of them is startable yet."""
        self._number = sorted(range(1, len(sizes) + 1), key=lambda number: (sizes[number - 1], number))
        self._sizes = [sizes[number - 1] for number in self._number]
        self._rank = [0] * len(sizes)
        for rank, number in enumerate(self._number):
            self._rank[number - 1] = rank
        self._startable = IntervalSet()
        self._micro = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BySize) and (self._startable, self._micro) == (other._startable, other._micro)

    __hash__ = None  # type: ignore[assignment]

    @property
    def work(self) -> float:
        """Return the work of all startable tasks together, in reference CPU-seconds."""
        return self._micro / _MICRO

    def place(self, number: int, startable: bool) -> None:
        rank = self._rank[number - 1]
        if startable == (rank in self._startable):
            return
        change = round(self._sizes[rank] * _MICRO)
        if startable:
            self._startable.add(rank)
            self._micro += change
        else:
            self._startable.discard(rank)
            self._micro -= change

    def place_all(self, numbers: IntervalSet) -> None:
        """Make these tasks startable, and no others."""
        self._startable = IntervalSet.of(sorted(self._rank[number - 1] for number in numbers))
        self._micro = sum(round(self._sizes[rank] * _MICRO) for rank in self._startable)

    def largest(self, limit: float, but: int | None = None) -> int | None:
        """Return the largest task whose size is at most ``limit``, other than ``but``."""
        rank = self._startable.last_up_to(bisect_right(self._sizes, limit) - 1)
        if rank is not None and self._number[rank] == but:
            rank = self._startable.last_up_to(rank - 1)
        return None if rank is None else self._number[rank]

    def smallest(self, but: int | None = None) -> int | None:
        """Return the smallest task, other than ``but``."""
        rank = self._startable.first_after(-1)
        if rank is not None and self._number[rank] == but:
            rank = self._startable.first_after(rank)
        return None if rank is None else self._number[rank]
