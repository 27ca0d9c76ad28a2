"""Horizons of all workers, as a plan book enters them into the profile of its plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from loopline_master.core.wings.gangs.planning.horizon import AWAY, Horizon, differences
from loopline_master.core.wings.gangs.planning.pool import Piece, Pool, Share, Workers
from loopline_master.core.wings.gangs.planning.profile import Profile

Change = tuple[int, int | None, int]
"""Start, end (None: for ever), and change of a worker's free slots between them."""


class Horizons:
    """Horizons by worker. Times are whole seconds."""

    def __init__(self, pool: Pool, profile: Profile[Piece, Share]) -> None:
        self.of: dict[str, Horizon] = {}
        self.open: Workers = 0  # new plans may use them
        self._pool, self._profile = pool, profile
        self._ends: list[tuple[int, str]] = []  # a heap: medians and ends of the work on a worker

    def enter(self, workers: Iterable[tuple[str, Horizon, str]], now: int) -> None:
        """Enter all workers of an empty book: their names, horizons and switches.

        The result is as if they were entered one by one, but takes a single pass over the times when slots become
        free.
        """
        freed: dict[tuple[int, int], list[str]] = {}
        for name, horizon, switch in workers:
            bit, before = self._pool.enter(name, switch), 0
            self.of[name] = horizon
            self.open |= bit if horizon.is_open else 0
            self._ends += [(over, name) for one in horizon.busy for over in {one.half, one.end}]
            for at, free in horizon.steps():
                if free > before:
                    freed.setdefault((max(at, now), free - before), []).append(name)
                before = free
        heapify(self._ends)
        self._profile.free_all((at, (self._pool.of(names), slots)) for (at, slots), names in sorted(freed.items()))

    def note(self, name: str, horizon: Horizon, switch: str, now: int) -> tuple[Workers, list[Change]]:
        """Note a worker's new horizon. Return the worker as a set, and the changes to enter into the profile."""
        old = self.of.get(name, AWAY)
        self.of[name] = horizon
        for over in {over for one in horizon.busy for over in (one.half, one.end)}:
            heappush(self._ends, (over, name))
        bit = self._pool.enter(name, switch)
        self.open = self.open | bit if horizon.is_open else self.open & ~bit
        return bit, list(differences(old.steps(), horizon.steps(), now))

    def has_room(self, bit: Workers, changes: Sequence[Change]) -> bool:
        """True if the slots that the worker no longer offers are free there beside its plans."""
        over, holds = self._profile.over, self._pool.holds
        return all(change > 0 or holds(over(start, end), (bit, -change)) for start, end, change in changes)

    def change(self, bit: Workers, change: Change) -> None:
        """Enter a change of a worker's free slots into the profile."""
        start, end, more = change
        if more > 0:
            self._profile.free(start, end, (bit, more))
        else:
            self._profile.occupy(start, end, (bit, -more))

    def overdue(self, now: int) -> set[str]:
        """Return the workers where some work should be over by now; each is returned once for each such end."""
        found = set()
        while self._ends and self._ends[0][0] <= now:
            found.add(heappop(self._ends)[1])
        return found
