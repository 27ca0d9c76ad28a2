"""Idle budgets: limits of the time that a job may hold others without progress, beside a slot that is free for them.

A job that holds others is charged for the time in which it makes no progress while a free slot could run a task of a
held job and none of its own. Only growth of its measured work beyond the former maximum counts as progress. It covers
the time that the work takes on the slowest worker, and it refills the budget second for second. The budget is
``idle_budget_s``, or the job's size if that is more. A job that has spent it is *stalled*.

Of a chain of jobs that hold one another, only the first is charged. A gang is not charged before its promised start.
docs/design/hold.md derives the bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from loopline_master.core.chance import draw
from loopline_master.core.estimates import measure
from loopline_master.core.kernel.door.wing import Wing
from loopline_master.core.kernel.eligibility import fits
from loopline_master.core.kernel.entities import Job
from loopline_master.core.kernel.state import State
from loopline_master.core.wings.exemptions.overdrawn import LOOK_EVERY_S, first_holders, used_now, workers_of

_MOST_CLASSES = 8
"""Limit for one job: the different requirements of held jobs that are checked."""
_LEAST_SPEED = 0.05


def budget_s(state: State, job: Job) -> float:
    """Return the job's idle budget in seconds."""
    return max(state.settings.idle_budget_s, job.size or 0.0)


class IdleExemptions(Wing):
    """Marks jobs as stalled when their idle budget is spent. Awake if there is such a budget."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._spent: set[int] = set()  # live jobs that are stalled because of it

    @property
    def is_awake(self) -> bool:
        return self.state.settings.idle_budget_s > 0

    def settings_change(self) -> None:
        self._spent = {job.id for job in self.state.index.live.values() if job.stalled and self._is_spent(job)}
        self.state.wings.arrange()

    def due_at(self) -> float | None:
        has_holders = self.state.index.blocked or (self._spent and self._spent_arrivals())
        return self._next_check_at() if has_holders else None

    def _next_check_at(self) -> float:
        """Return the time of the next check. It is irregular, so that no user can fill the free slot just then."""
        looked_at = self.state.grid.idle_looked_at
        return looked_at + LOOK_EVERY_S * (1 + draw(int(1e6 * looked_at))) / 2

    def expire(self) -> None:
        state = self.state
        looked_at = state.grid.idle_looked_at
        if state.now < self._next_check_at():
            return
        holders, spent, slowest = first_holders(state), self._spent_arrivals(), self._slowest()
        known = dict[tuple[Any, Any], bool]()
        if holders or spent:
            state.grid.idle_looked_at = state.now
        for arrival in sorted({*holders, *spent}):
            job = state.index.live[arrival]
            growth = max(0.0, used_now(state, job) - job.most_used)
            held = holders.get(arrival, [])
            since = max(looked_at, min((one.held_at or state.now for one in held), default=state.now))
            idle_s = min(state.now - since, LOOK_EVERY_S) if self._is_idle(job, held, known) else 0.0
            job.most_used += growth
            job.idle_s = max(0.0, job.idle_s + max(0.0, idle_s - growth / slowest) - growth)
            self._mark(job)
            state.put(job)  # even if unchanged: a step without effects is not in the log

    def workers_to_hear(self, now: float) -> Iterable[str]:
        """Return the workers whose last Reports decide how much progress the next check counts."""
        if not self.is_awake or now < (self.due_at() or now + 1.0):
            return ()
        return workers_of(self.state, {*first_holders(self.state), *self._spent_arrivals()})

    def _spent_arrivals(self) -> set[int]:
        """Return the arrivals of stalled jobs that are still live."""
        jobs = {number: self.state.jobs.get(number) for number in self._spent}
        here = {number: job.arrival for number, job in jobs.items() if job is not None and job.is_live}
        self._spent = {*here}
        return {*here.values()}

    def _mark(self, job: Job) -> None:
        if self._is_spent(job):
            job.stalled = True
            self._spent.add(job.id)
        elif job.id in self._spent:
            self._spent.discard(job.id)
            job.stalled = False  # if it starves, StallExemptions will mark it

    def _is_spent(self, job: Job) -> bool:
        return job.idle_s >= budget_s(self.state, job)

    def _is_idle(self, job: Job, held: Iterable[Job], known: dict[tuple[Any, Any], bool]) -> bool:
        """True if free slots could run a task of a held job, and none of this job.

        ``known``: answers for other jobs with the same requirements.
        """
        state, key_of = self.state, self.state.index.requirements.key_of
        if any(excuses(job) for excuses in state.wings.excuses):
            return False
        own = key_of(job) if job.id in state.index.places else None
        for key, other in islice({key_of(one): one for one in held}.items(), _MOST_CLASSES):
            if (own, key) not in known:
                usable = set() if own is None else self._idle_for(job)
                known[own, key] = len(self._idle_for(other) - usable) >= other.nodes
            if known[own, key]:
                return True
        return False

    def _idle_for(self, job: Job) -> set[str]:
        """Return the workers with free slots for a task of the job; none if they are too few for a gang."""
        state = self.state
        names = {entry[-1] for entry in state.index.slots.idle.order if fits(state, job, state.workers[entry[-1]])}
        return names if len(names) >= job.nodes else set()

    def _slowest(self) -> float:
        """Return the speed of the slowest connected worker, at most 1."""
        speeds = (measure.speed_now(one) for one in self.state.workers.values() if one.is_available)
        return max(_LEAST_SPEED, min((1.0, *speeds)))
