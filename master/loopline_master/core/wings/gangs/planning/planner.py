"""The planner: gives every job a place and a start, the first that a scan finds.

A scan asks the ground at each time of the lattice until the job fits from then on for as long as its limit. Calls are
counted as in the rack paper, one for each time of the lattice. Fewer are computed: a job that does not fit still does
not until cells are freed, and the results of the previous scan remain valid until then.

The times of the lattice are counted from now, or from the earliest possible start of the job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from loopline_master.core.wings.gangs.planning.ground import CellsT, Ground, JobT, PieceT, PlaceT, Planned
from loopline_master.core.wings.gangs.planning.profile import Profile
from loopline_master.core.wings.gangs.planning.rack import doublings
from loopline_master.core.wings.gangs.planning.scans.lattice import Lattice

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


@dataclass(frozen=True, slots=True)
class Slot(Generic[PlaceT]):
    """Place and start that a planner gives a job."""

    start: int
    place: PlaceT


class Planner(Generic[JobT, PlaceT, PieceT, CellsT]):
    """Planner that keeps the profile of all running and planned jobs."""

    def __init__(self, ground: Ground[JobT, PlaceT, PieceT, CellsT], start: int = 0) -> None:
        self.calls = 0  # of the ground, as the paper counts them
        self.needed = 0  # calls whose answer was unknown
        self.profile = Profile[PieceT, CellsT](ground, start)
        self.memory = ScanMemory()
        self._ground = ground

    def plan(self, job: JobT, now: int, lattice: Lattice, earliest: int = 0) -> Slot[PlaceT] | None:
        """Plan a job that has just arrived; None if it would never fit, even once all work has ended."""
        self.profile.forget(now)
        origin = max(now, earliest)
        horizon = origin - now + lattice.not_before(max(0, self.profile.last - origin)) + 1
        found = self._scan(job, now, lattice, (origin - now, horizon), 0)
        if found is not None:
            self.reserve(job, found)
        return found

    def begin_pass(self, now: int) -> None:
        """Begin a pass over the waiting jobs, or continue one at another time."""
        self.profile.forget(now)
        self.memory.begin_pass(now)

    def move_forward(
        self, job: JobT, slot: Slot[PlaceT], now: int, lattice: Lattice, earliest: int = 0
    ) -> Slot[PlaceT]:
        """Return an earlier slot for a waiting job, or its present one."""
        known, horizon, ahead = self.memory.still_known(job), slot.start - now, max(0, earliest - now)
        if ahead >= horizon:
            return slot
        if not lattice.before(horizon - ahead) << ahead & ~known:
            self.calls += lattice.index(horizon - ahead)
            self.memory.remember(job, now, known)
            return slot
        saved = self.profile.saved()
        self.lift(job, slot, now)
        found = self._scan(job, now, lattice, (ahead, horizon), known)
        if found is None:
            self.profile.restore(saved)
            return slot
        self.memory.free(slot.start, slot.start + job.limit)
        self.reserve(job, found)
        return found

    def start(self, job: JobT) -> None:
        """Forget the scan results of the job, which starts now or no longer waits."""
        self.memory.drop(job.number)

    def end(self, job: JobT, slot: Slot[PlaceT], now: int) -> None:
        """End the job, and free its cells if it ended before its limit."""
        end = slot.start + job.limit
        if now < end:
            self.profile.free(now, end, self._ground.cells(job, slot.place))
            self.memory.free(now, end)

    def fits(self, job: JobT, start: int) -> PlaceT | None:
        """Return the place where the job would fit from ``start`` on; None if there is none."""
        return self._ground.place(self.profile.over(start, start + job.limit), job, start)

    def reserve(self, job: JobT, slot: Slot[PlaceT]) -> None:
        """Enter a planned slot into the profile."""
        self.profile.occupy(slot.start, slot.start + job.limit, self._ground.cells(job, slot.place))

    def lift(self, job: JobT, slot: Slot[PlaceT], now: int) -> None:
        """Remove a planned slot from the profile, from ``now`` on."""
        start, end = max(slot.start, now), slot.start + job.limit
        if start < end:
            self.profile.free(start, end, self._ground.cells(job, slot.place))

    def _scan(
        self, job: JobT, now: int, lattice: Lattice, between: tuple[int, int], known: Times
    ) -> Slot[PlaceT] | None:
        """Return the first time of the lattice when the job fits, with its place.

        ``between``: the offsets of the lattice's origin and of the scan's end.
        """
        origin, horizon = between
        untried, found, offset = lattice.before(horizon - origin) << origin & ~known, None, 0
        while untried and found is None:
            offset = (untried & -untried).bit_length() - 1
            self.needed += 1
            found = self.fits(job, now + offset)
            if found is None and now + offset >= self.profile.last:
                untried = 0  # the profile no longer changes: it never fits
            elif found is None:
                until = self.profile.next_release(now + offset) - now
                known |= (1 << until) - (1 << offset)
                untried = untried >> until << until
        self.calls += lattice.index((horizon if found is None else offset + 1) - origin)
        self.memory.remember(job, now, known)
        return None if found is None else Slot(now + offset, found)
