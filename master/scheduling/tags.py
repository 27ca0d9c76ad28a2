"""The clock of fair sharing (fair-hold.md): work done is shared equally by the jobs that fair sharing, had it
served them from the start, would not have finished yet: those whose tag the clock has not reached.
"""

from __future__ import annotations

from sortedcontainers import SortedList


class Tags:
    """The tags of the jobs in the grid."""

    def __init__(self) -> None:
        self._order: SortedList[float] = SortedList()
        self._of: dict[int, float] = {}  # by job

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tags) and self._of == other._of

    __hash__ = None  # type: ignore[assignment]

    def put(self, job: int, tag: float) -> None:
        self.drop(job)
        self._of[job] = tag
        self._order.add(tag)

    def drop(self, job: int) -> None:
        tag = self._of.pop(job, None)
        if tag is not None:
            self._order.remove(tag)

    def after(self, clock: float, work: float) -> float:
        """Where the clock stands when ``work`` more has been done; it waits where no tag is ahead of it.

        Each tag that it reaches leaves fewer to share the rest, hence a job is passed but once: O(log n) amortised.
        """
        at = self._order.bisect_right(clock)
        while work > 0 and at < len(self._order):
            sharers = len(self._order) - at
            ahead = self._order[at] - clock
            if work < ahead * sharers:
                return clock + work / sharers
            work -= ahead * sharers
            clock = self._order[at]
            at = self._order.bisect_right(clock)
        return clock
