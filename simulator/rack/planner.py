"""The plan: for every job a place and a time to start, the first that a scan finds (the paper's section on
scheduling: Bottom-Left at each time of the lattice until the job fits from then on for as long as its limit).

Only at a time by which cells become free can a job fit that did not fit at the time before: what is between two of
these is counted but not computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.rack.lattice import Lattice
from simulator.rack.rack import Place, Rack
from simulator.rack.timetable import Timetable
from simulator.rack.workload import Job


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a job is to start, and when."""

    start: int
    place: Place


@dataclass(slots=True)
class Planner:
    """Keeps the timetable of all that runs or is planned, and counts calls of Bottom-Left."""

    rack: Rack
    thrifty: bool
    timetable: Timetable
    calls: int = 0  # as the paper counts: one a time of the lattice; of a thrifty algorithm, those that were made

    def plan(self, job: Job, now: int, lattice: Lattice) -> Plan:
        """Of a job that has just come."""
        found = self._scan(job, now, lattice, None)
        assert found is not None  # once all has ended, every job fits
        self._take(job, found)
        return found

    def move_forward(self, job: Job, plan: Plan, now: int, lattice: Lattice) -> Plan:
        """A better plan of a waiting job, or the one that it has."""
        if plan.start == now:
            return plan
        self.timetable.give_back(plan.start, plan.start + job.limit, self._cells(job, plan))
        found = self._scan(job, now, lattice, plan.start) or plan
        self._take(job, found)
        return found

    def cut(self, job: Job, plan: Plan, now: int) -> None:
        """The job has ended before its limit."""
        if now < plan.start + job.limit:
            self.timetable.give_back(now, plan.start + job.limit, self._cells(job, plan))

    def _scan(self, job: Job, now: int, lattice: Lattice, before: int | None) -> Plan | None:
        """The first time of the lattice (before ``before``) at which the job fits, and where."""
        tried = 0
        for index in self._worth_trying(now, lattice, before):
            tried += 1
            start = now + lattice.offset(index)
            place = self.rack.bottom_left(self.timetable.taken(start, start + job.limit), job.width, job.height)
            if place is not None:
                self.calls += tried if self.thrifty else index + 1
                return Plan(start, place)
        assert before is not None
        self.calls += tried if self.thrifty else lattice.index(before - now)
        return None

    def _worth_trying(self, now: int, lattice: Lattice, before: int | None) -> Iterator[int]:
        """Times of the lattice, by index: now, and the first after each release."""
        yield 0
        last, end = 0, None if before is None else lattice.index(before - now)
        for release in self.timetable.releases(now):
            index = lattice.index(release - now)
            if end is not None and index >= end:
                return
            if index != last:
                yield index
                last = index

    def _take(self, job: Job, plan: Plan) -> None:
        self.timetable.take(plan.start, plan.start + job.limit, self._cells(job, plan))

    def _cells(self, job: Job, plan: Plan) -> int:
        return self.rack.rectangle(plan.place, job.width, job.height)
