"""Virtual time of fair sharing (docs/design/fair-hold.md).

Work done is shared equally by the jobs that fair sharing, had it served them from the start, would not have finished
yet: those whose finish tag the clock has not reached.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort


class VirtualTime:
    """Finish tags of the jobs in the grid, by which the clock advances."""

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
        """Return the clock after ``work`` more has been done; it stands still when no tag is ahead of it.

        Each tag that it reaches leaves fewer jobs to share the rest. A job is passed only once: O(log n) amortised.
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
