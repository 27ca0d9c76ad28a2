"""Results of earlier scans: times when a waiting job does not fit, valid until cells are freed then.

Times are bits, counted from the moment of the last pass. Taking cells leaves the results valid; cells freed from a to
b invalidate the starts after a - limit and before b. In a pass, a job considers all cells freed since its last scan:
after it in an earlier pass, and before it in this one. The memory saves calls and changes no plan.
"""

from __future__ import annotations

from loopline_master.core.wings.gangs.planning.ground import Planned
from loopline_master.core.wings.gangs.planning.rack import doublings

Times = int
"""A set of times, one bit each."""


class ScanMemory:
    """Scan results by the jobs' numbers, and the intervals freed since the oldest of them."""

    __slots__ = ("_before", "_freed", "_known", "_later", "_now", "_so_far")

    def __init__(self) -> None:
        self._now = 0
        self._before = 0  # number of freed intervals that were forgotten
        self._freed: list[tuple[int, int]] = []
        self._later: list[Times] = [0]  # freed before this pass: from the first interval on, from the second on, ...
        self._so_far: Times = 0  # in this pass
        self._known: dict[int, tuple[int, Times, int]] = {}  # time, result, and number of freed intervals then

    def begin_pass(self, now: int) -> None:
        self._now, self._so_far = now, 0
        oldest = min((mark for _, _, mark in self._known.values()), default=self._before + len(self._freed))
        del self._freed[: oldest - self._before]
        self._before = oldest
        self._later = [0]
        for start, end in reversed(self._freed):
            self._later.append(self._later[-1] | self._times(start, end))
        self._later.reverse()

    def free(self, start: int, end: int) -> None:
        self._freed.append((start, end))
        self._so_far |= self._times(start, end)

    def still_known(self, job: Planned) -> Times:
        """Return the times when the job cannot start, counted from the moment of this pass."""
        when, known, mark = self._known.get(job.number, (0, 0, 0))
        if not known:
            return 0
        place = mark - self._before
        doubtful = self._so_far | (self._later[place] if place < len(self._later) else 0)
        for step in doublings(job.limit):
            doubtful |= doubtful >> step
        return (known >> (self._now - when)) & ~doubtful

    def remember(self, job: Planned, now: int, known: Times) -> None:
        self._known[job.number] = (now, known, self._before + len(self._freed))

    def drop(self, number: int) -> None:
        self._known.pop(number, None)

    def _times(self, start: int, end: int) -> Times:
        first = max(0, start - self._now)
        return ((1 << max(first, end - self._now)) - 1) >> first << first
