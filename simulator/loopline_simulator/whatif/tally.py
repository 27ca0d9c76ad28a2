"""Fate of the jobs, collected from a scheduler's effects: the same for a recording and for a replay."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import UNRELEASED, Attempt, Job
from loopline_master.core.wings.exemptions.exemption import Exemption
from loopline_shared.model import AttemptId, AttemptState, JobState, Order

COMPLETED = (JobState.SUCCEEDED, JobState.FAILED)


@dataclass(slots=True)
class Tally:
    """Observer of every step's effects that collects each job's last row and the computing time."""

    jobs: dict[int, Job] = field(default_factory=dict)
    exempt: dict[int, dict[float, Exemption]] = field(default_factory=dict)  # by job: its times, by their begin
    used_s: float = 0.0  # slot-seconds of attempts whose result was accepted
    _lost: dict[AttemptId, float] = field(default_factory=dict)

    def __call__(self, effects: Effects) -> None:
        self.jobs |= effects.jobs
        for exemption in effects.told(Exemption):
            self.exempt.setdefault(exemption.job, {})[exemption.since] = exemption
        for attempt in effects.attempts.values():
            self._count(attempt, effects.grid.now)
        for _, result in effects.late:
            if result.attempt in self._lost:
                self._lost[result.attempt] = result.wall_s

    def is_excused(self, later: int, earlier: int) -> bool:
        """True if a job that keeps an order was released while an earlier one held no other back."""
        job = self.jobs[later]
        if job.order is Order.NONE or not job.is_ordered_after(self.jobs[earlier]):
            return False
        return any(one.covers(job) for one in self.exempt.get(earlier, {}).values())

    @property
    def lost_s(self) -> float:
        """Slot-seconds of attempts that were cancelled, failed or lost."""
        return sum(self._lost.values())

    def _count(self, attempt: Attempt, now: float) -> None:
        if attempt.accepted:
            self.used_s += attempt.wall_s * attempt.slots
            self._lost.pop(attempt.id, None)
        elif attempt.state is AttemptState.LOST:
            self._lost.setdefault(attempt.id, (now - attempt.dispatched_at) * attempt.slots)
        elif attempt.is_over:
            self._lost[attempt.id] = attempt.wall_s * attempt.slots
        else:
            self._lost.pop(attempt.id, None)


@dataclass(frozen=True, slots=True)
class Passings:
    """Pairs of jobs that completed out of order: the earlier one was unfinished, has a size, and is not larger."""

    count: int
    excused: int  # of those, pairs whose earlier job was paused or stalled


def passings(tally: Tally) -> Passings:
    counted = [job for job in tally.jobs.values() if job.arrival != UNRELEASED and job.session is None]
    ordered = sorted(counted, key=lambda job: job.arrival)
    leaving = sorted((job for job in ordered if job.departure is not None), key=lambda job: job.departure or 0)
    present = {job.arrival: job for job in ordered}
    passed: list[tuple[int, int]] = []
    for job in leaving:
        del present[job.arrival]
        if job.state in COMPLETED:
            passed += [(job.id, other.id) for other in _earlier(present, job) if job.is_no_smaller(other)]
    return Passings(len(passed), sum(tally.is_excused(*pair) for pair in passed))


def _earlier(present: dict[int, Job], job: Job) -> Iterable[Job]:
    return takewhile(lambda other: other.arrival < job.arrival, present.values())  # in order of arrival
