"""The planner: gives every job a place and a start, the first that a scan finds.

A scan tries Bottom-Left at each time of the lattice until the job fits from then on for as long as its limit. Calls
are counted as in the paper, one for each time of the lattice. Fewer are computed: a job that does not fit still does
not until cells are freed, and the results of the scan before remain valid until then.
"""

from __future__ import annotations

from dataclasses import dataclass

from loopline_simulator.papers.rack.lattice import Lattice
from loopline_simulator.papers.rack.memory import Memory, Times
from loopline_simulator.papers.rack.rack import Place, Rack
from loopline_simulator.papers.rack.timetable import Timetable
from loopline_simulator.papers.rack.workload import RackJob


@dataclass(frozen=True, slots=True)
class Plan:
    """Place and start of a job."""

    start: int
    place: Place


class Planner:
    """Planner that keeps the timetable of all running and planned jobs."""

    def __init__(self, rack: Rack) -> None:
        self.calls = 0  # of Bottom-Left, as the paper counts them
        self.needed = 0  # of these, those whose answer was unknown
        self._rack = rack
        self._timetable = Timetable()
        self._memory = Memory()

    def plan(self, job: RackJob, now: int, lattice: Lattice) -> Plan:
        """Return the plan of a job that has just arrived."""
        self._timetable.forget(now)
        horizon = lattice.not_before(max(0, self._timetable.last - now)) + 1
        found = self._scan(job, now, lattice, horizon, 0)
        assert found is not None  # once all has ended, every job fits
        self._take(job, found)
        return found

    def begin_pass(self, now: int) -> None:
        self._timetable.forget(now)
        self._memory.begin_pass(now)

    def move_forward(self, job: RackJob, plan: Plan, now: int, lattice: Lattice) -> Plan:
        """Return a better plan of a waiting job, or the plan that it has."""
        known, horizon = self._memory.recall(job), plan.start - now
        if not lattice.before(horizon) & ~known:
            self.calls += lattice.index(horizon)
            self._memory.remember(job, now, known)
            return plan
        self._timetable.free(plan.start, plan.start + job.limit, self._cells(job, plan))
        found = self._scan(job, now, lattice, horizon, known)
        if found is not None:
            self._memory.free(plan.start, plan.start + job.limit)
        self._take(job, found or plan)
        return found or plan

    def start(self, job: RackJob) -> None:
        """Forget what scans found for the job, which starts now."""
        self._memory.drop(job)

    def end(self, job: RackJob, plan: Plan, now: int) -> None:
        """End the job, and free its cells if it ended before its limit."""
        if now < plan.start + job.limit:
            self._timetable.free(now, plan.start + job.limit, self._cells(job, plan))
            self._memory.free(now, plan.start + job.limit)

    def _scan(self, job: RackJob, now: int, lattice: Lattice, horizon: int, known: Times) -> Plan | None:
        """Return the first time of the lattice before now + ``horizon`` at which the job fits, with its place."""
        untried, found = lattice.before(horizon) & ~known, None
        while untried and found is None:
            offset = (untried & -untried).bit_length() - 1
            self.needed += 1
            found = self._fit(job, now + offset)
            if found is None:
                until = self._timetable.next_release(now + offset) - now
                known |= (1 << until) - (1 << offset)
                untried = untried >> until << until
        self.calls += lattice.index(horizon if found is None else offset + 1)
        self._memory.remember(job, now, known)
        return found

    def _fit(self, job: RackJob, start: int) -> Plan | None:
        taken = self._timetable.taken(start, start + job.limit)
        place = self._rack.bottom_left(taken, job.width, job.height)
        return None if place is None else Plan(start, place)

    def _take(self, job: RackJob, plan: Plan) -> None:
        self._timetable.take(plan.start, plan.start + job.limit, self._cells(job, plan))

    def _cells(self, job: RackJob, plan: Plan) -> int:
        return self._rack.rectangle(plan.place, job.width, job.height)
