"""Results of earlier scans: times at which a waiting job does not fit, valid until cells are freed then.

Times are bits, counted from the moment of the last pass. Taking cells leaves the results valid; cells freed from a to
b invalidate the starts after a - limit and before b. Each waiting job is scanned in each pass, so it must learn of
the cells freed after it in the last pass, and before it in this one.
"""

from __future__ import annotations

from loopline_simulator.papers.rack.rack import doublings
from loopline_simulator.papers.rack.workload import RackJob

Times = int
"""A set of times, one bit each."""


class Memory:
    __slots__ = ("_freed", "_known", "_later", "_now", "_so_far")

    def __init__(self) -> None:
        self._now = 0
        self._freed: list[tuple[int, int]] = []  # since the last pass began
        self._later: list[Times] = [0]  # before it: all from the first, from the second, ... on
        self._so_far: Times = 0  # in this pass
        self._known: dict[int, tuple[int, Times, int]] = {}  # time, result, and number of freed intervals then

    def begin_pass(self, now: int) -> None:
        self._now, self._so_far = now, 0
        self._later = [0]
        for start, end in reversed(self._freed):
            self._later.append(self._later[-1] | self._times(start, end))
        self._later.reverse()
        self._freed = []

    def free(self, start: int, end: int) -> None:
        self._freed.append((start, end))
        self._so_far |= self._times(start, end)

    def recall(self, job: RackJob) -> Times:
        """Return the times at which the job cannot start, counted from the moment of this pass."""
        when, known, mark = self._known[job.number]
        doubtful = self._later[mark] | self._so_far
        for step in doublings(job.limit):
            doubtful |= doubtful >> step
        return (known >> (self._now - when)) & ~doubtful

    def remember(self, job: RackJob, now: int, known: Times) -> None:
        self._known[job.number] = (now, known, len(self._freed))

    def drop(self, job: RackJob) -> None:
        del self._known[job.number]

    def _times(self, start: int, end: int) -> Times:
        first = max(0, start - self._now)
        return ((1 << max(first, end - self._now)) - 1) >> first << first
