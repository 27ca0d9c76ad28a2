"""What the scheduler looks things up in. Every index is a function of the entities as they are, never of how
they came to be so: ``invariants.check`` compares each with one built afresh, and a restart changes nothing.

The pattern is one everywhere: change an entity, then *place* it anew; placing is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sortedcontainers import SortedDict, SortedSet

from loopline_master.core import accounting
from loopline_master.core.entities import Attempt, Job, Task, Worker
from loopline_master.core.estimates.program_key import ProgramKey
from loopline_master.core.index.attempts import Attempts
from loopline_master.core.index.dependents import Waiting
from loopline_master.core.index.intervals import Ranges
from loopline_master.core.index.ranking import Ranking
from loopline_master.core.index.ready_set import Pool
from loopline_master.core.index.requirements import Demand, Key
from loopline_master.core.index.slots import Room
from loopline_master.core.index.virtual_time import Tags
from loopline_master.core.rules.hold import HoldIndex
from loopline_shared.model import JobState, Order, TaskId

Looks = tuple[bool | float | None, ...]
Members = TypeVar("Members", Ranges, "SortedSet[tuple[float, int]]")

_HOLD = Order.HOLD


@dataclass(slots=True)
class Index:
    live: SortedDict[int, Job] = field(default_factory=SortedDict)  # by arrival
    standing: dict[int, tuple[int, bool]] = field(default_factory=dict)  # live job: arrival, whether it is exempt
    pools: dict[int, Pool] = field(default_factory=dict)  # by job
    ready: dict[Key, Ranges] = field(default_factory=dict)  # arrivals of jobs with a task to start
    replicable: dict[Key, Ranges] = field(default_factory=dict)  # ... with a task to replicate
    open: dict[Key, Ranges] = field(default_factory=dict)  # ... with either
    looks: dict[int, Looks] = field(default_factory=dict)  # ... and what else its places depend on
    brief: Ranking[int, tuple[float, int]] = field(default_factory=Ranking)
    """Jobs with a task to start: (size of their smallest task, or 0; job)."""
    hold: HoldIndex = field(default_factory=HoldIndex)
    tags: Tags = field(default_factory=Tags)
    exempt: SortedSet[int] = field(default_factory=SortedSet)  # arrivals of live jobs that hold nobody
    witness: dict[int, int] = field(default_factory=dict)  # held job: arrival of one that holds it, whichever
    watchers: dict[int, set[int]] = field(default_factory=dict)  # the reverse
    let_go: SortedSet[int] = field(default_factory=SortedSet)  # arrivals of jobs that are at last, and not held
    complete: SortedSet[int] = field(default_factory=SortedSet)  # arrivals of computed jobs that nobody holds
    attempts: Attempts = field(default_factory=Attempts)
    voters: dict[TaskId, frozenset[str]] = field(default_factory=dict)  # by open task: who has brought a result
    room: Room = field(init=False)
    leases: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)  # (until, worker)
    starving: Ranking[int, tuple[float, int]] = field(default_factory=Ranking)  # (since, job), not yet stalled
    probations: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)  # (until, worker)
    programs: Ranking[ProgramKey, tuple[float, ProgramKey]] = field(default_factory=Ranking)  # longest unused first
    demand: Demand = field(default_factory=Demand)
    waiting: Waiting = field(default_factory=Waiting)  # outside the grid, for other jobs to succeed

    def __post_init__(self) -> None:
        self.room = Room(self.attempts)

    @classmethod
    def build(
        cls,
        workers: Iterable[Worker],
        jobs: Iterable[Job],
        tasks: Iterable[Task],
        attempts: Iterable[Attempt],
        fresh: Mapping[int, Ranges],
    ) -> Index:
        """The index of these entities, from nothing."""
        index = cls()
        by_id, by_name = {job.id: job for job in jobs}, {worker.name: worker for worker in workers}
        index.pools = {job_id: Pool() for job_id in by_id}
        for worker in by_name.values():
            index.demand.place_worker(worker)
        for attempt in attempts:
            index.attempts.place(attempt)
        for worker in by_name.values():
            index.place_worker(worker)
            index.room.place(worker)
        for task in tasks:
            index.pools[task.job].place(task, by_id[task.job], index.attempts)
            index.place_voters(task)
        for job in sorted(by_id.values(), key=lambda job: job.arrival):
            index.place_job(job, fresh[job.id])
        return index

    def place_job(self, job: Job, fresh: Ranges) -> bool:
        """Enter a job as it is now; one that is over leaves everything but its pool. Whether it may stand anywhere
        else than before.
        """
        looks, at_last = self._looks_of(job, fresh), _is_at_last(job, fresh)
        if looks == self.looks.get(job.id) and not at_last:
            return False  # as most often: one task more, one task less
        if job.waiting_for or job.id in self.waiting.jobs:
            self.waiting.place(job.id, job.waiting_for if job.state is JobState.WAITING else ())
        standing, at_last = (job.arrival, job.is_exempt) if job.is_live else None, at_last and job.is_live
        if standing != self.standing.get(job.id):
            self._place_standing(job, standing)
        if standing is not None:
            self.looks[job.id] = looks
        self._place_witness(job, at_last)
        self._place_startable(job, fresh)
        starving = job.starved_since is not None and job.is_live and not (job.running or job.is_computed)
        since = (job.starved_since or 0.0, job.id)
        self.starving.place(job.id, since if starving and not job.stalled else None)
        return True

    def place_voters(self, task: Task) -> None:
        """Enter who has brought a result of a task, as it is now."""
        if task.votes and task.is_open:
            self.voters[task.id] = frozenset(vote.worker for vote in task.votes)
        else:
            self.voters.pop(task.id, None)

    def place_worker(self, worker: Worker) -> None:
        """Enter a worker as it is now (Demand is placed apart: it answers what that changed)."""
        name, until = worker.name, worker.probation_until
        self.probations.place(name, (until, name) if until is not None else None)
        at_work = worker.session is not None or name in self.attempts.used
        self.leases.place(name, (worker.lease_until, name) if at_work else None)

    def is_held(self, job: Job) -> bool:
        """Its last never-started task is kept back, or its delivery."""
        return job.id in self.witness

    def on_worker(self, task: TaskId, worker: str) -> bool:
        """An attempt of the task is on this worker, or has voted there. (What a lost one is, its first Report will
        have said.)
        """
        return self.attempts.is_on(task, worker) or (task in self.voters and worker in self.voters[task])

    def is_stuck(self, job: Job, fresh: Ranges) -> bool:
        """All that it could do next is to ask for results from others than those who are there."""
        pool = self.pools[job.id]
        if job.running or fresh or pool.waiting or not pool.asked:
            return False
        able = self.demand.able[self.demand.key_of(job)]
        return all(able <= self.voters.get(job.task_id(number), frozenset()) for number in pool.asked)

    def to_replicate(self, job: Job) -> Ranges:
        """Its tasks that may have another attempt beside those that they have."""
        pool = self.pools[job.id]
        return pool.replicable if self.may_replicate(job) else pool.asked

    def to_shadow(self, job: Job) -> Ranges:
        """... and that should: all that runs of them is frozen, or the job's quorum needs another result."""
        pool = self.pools[job.id]
        return pool.stranded if self.may_replicate(job) else pool.asked

    def may_replicate(self, job: Job) -> bool:
        """Its budget for replicas is not spent."""
        if job.budget_s is None:
            return True  # as most often
        return accounting.budget_left(job, self.attempts.reserved_ms.get(job.id, 0))

    def _place_standing(self, job: Job, standing: tuple[int, bool] | None) -> None:
        """It enters, leaves, begins or ceases to hold others."""
        if standing is not None:
            self.standing[job.id] = standing
            self.live[job.arrival] = job
            self.tags.put(job.id, job.tag)
            self.demand.add_job(job)
        else:
            del self.standing[job.id], self.looks[job.id]
            del self.live[job.arrival]
            self.tags.drop(job.id)
            self.demand.drop_job(job)
        if standing is not None and not job.is_exempt:
            self.hold.put(job.arrival, job.weight)
        else:
            self.hold.drop(job.arrival)
        _toggle(self.exempt, job.arrival, standing is not None and job.is_exempt)

    def _looks_of(self, job: Job, fresh: Ranges) -> Looks:
        """All that places of a live job depend on, unless it is at last: then they depend on other jobs, too."""
        pool = self.pools[job.id]
        stranded, replicable = pool.stranded, pool.replicable
        if job.budget_s is not None and not self.may_replicate(job):
            stranded = replicable = pool.asked
        return (
            job.arrival, job.departure, job.paused, job.stalled, job.starved_since, job.running > 0,
            job.succeeded + job.failed == job.task_count,
            not fresh.starts, not pool.waiting.starts, not stranded.starts, not replicable.starts,
        )  # fmt: skip

    def _place_witness(self, job: Job, at_last: bool) -> None:
        old = self.witness.pop(job.id, None)
        if old is not None:
            self.watchers[old].discard(job.id)
            if not self.watchers[old]:
                del self.watchers[old]
        new = self.hold.witness(job.arrival, job.weight) if at_last else None
        _toggle(self.let_go, job.arrival, at_last and new is None)
        _toggle(self.complete, job.arrival, job.is_live and job.is_computed and new is None)
        if new is not None:
            self.witness[job.id] = new
            self.watchers.setdefault(new, set()).add(job.id)

    def _place_startable(self, job: Job, fresh: Ranges) -> None:
        pool, key = self.pools[job.id], self.demand.key_of(job)
        may_run = job.is_live and not job.paused
        startable = bool(pool.waiting or self.to_shadow(job) or (fresh and not self.is_held(job)))
        replicable = len(self.to_replicate(job)) > 0
        toggle_under(self.ready, key, job.arrival, may_run and startable, Ranges)
        self.brief.place(job.id, (job.sweep.least, job.id) if may_run and startable else None)
        toggle_under(self.replicable, key, job.arrival, may_run and replicable, Ranges)
        toggle_under(self.open, key, job.arrival, may_run and (startable or replicable), Ranges)


def _is_at_last(job: Job, fresh: Ranges) -> bool:
    """What would complete it is what its order keeps back: its last task's start, or its delivery."""
    if job.order is _HOLD:
        return fresh.count == 1
    return job.order is Order.DELIVER and job.is_computed


def _toggle(members: SortedSet[int] | set[Any] | Ranges, member: Any, present: bool | int) -> None:
    if present:
        members.add(member)
    else:
        members.discard(member)


def toggle_under(
    families: dict[Key, Members], key: Key, member: Any, present: bool, make: Callable[[], Members]
) -> None:
    """Toggle a member of the family of this key; an empty family is none."""
    family = families.get(key)
    if present:
        if family is None:
            family = families[key] = make()
        family.add(member)
    elif family is not None:
        family.discard(member)
        if not family:
            del families[key]
