"""Max-min fair rates by filling up, without a solver of linear programmes.

All rates rise together. When a direction of a link is full, the pipelines that use it stop, and the others continue.
Pipelines that follow them stop later by their slack. TCP connections of equal round-trip times come close to this. No
receiver starves, but the sum is less than the best.
"""

from __future__ import annotations

from collections import defaultdict
from heapq import heapify, heappop, heappush

from loopline_master.core.wings.transfers.programme import LinearProgramme


def fill(programme: LinearProgramme) -> list[float]:
    """Return max-min fair rates above the floors, in bytes per second. Every pipeline has a constraint."""
    return _Filling(programme).rates()


class _Filling:
    def __init__(self, programme: LinearProgramme) -> None:
        self._floors, self._rows = programme.floors, [row.terms for row in programme.constraints]
        self._left = [
            max(0.0, row.limit - sum(count * programme.floors[number] for number, count in row.terms))
            for row in programme.constraints
        ]
        self._load = [sum(count for _, count in terms) for terms in self._rows]
        self._uses = defaultdict[int, list[tuple[int, int]]](list)  # by pipeline that has not stopped
        for place, terms in enumerate(self._rows):
            for number, count in terms:
                self._uses[number].append((place, count))
        self._followers = defaultdict[int, list[tuple[int, float]]](list)
        for follower, ahead, slack in programme.follows:
            self._followers[ahead].append((follower, slack))
        self._full_at = [(self._left[place] / load, place) for place, load in enumerate(self._load)]

    def rates(self) -> list[float]:
        rates = list(self._floors)
        heapify(self._full_at)
        while self._full_at:  # the level of all rates when the next constraint is full
            level, place = heappop(self._full_at)
            if not self._load[place]:
                continue
            if (risen := self._left[place] / self._load[place]) > level:  # some of its pipelines have stopped since
                heappush(self._full_at, (risen, place))
                continue
            for number, _ in self._rows[place]:
                if number in self._uses:
                    rates[number] = self._floors[number] + level
                    self._stop(number, level)
        return rates

    def _stop(self, number: int, level: float) -> None:
        """Stop a pipeline at this level; its followers may rise by their slack, which is a constraint on each."""
        for other, count in self._uses.pop(number):
            self._left[other] -= level * count
            self._load[other] -= count
        for follower, slack in self._followers[number]:
            if follower in self._uses:
                self._uses[follower].append((len(self._rows), 1))
                self._rows.append(((follower, 1),))
                self._left.append(self._floors[number] + level + slack - self._floors[follower])
                self._load.append(1)
                heappush(self._full_at, (self._left[-1], len(self._rows) - 1))
