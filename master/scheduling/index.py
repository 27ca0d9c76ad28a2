"""What the scheduler looks things up in. Every index is a function of the entities as they are, never of how
they came to be so: ``invariants.check`` compares each with one built afresh, and a restart changes nothing.

The pattern is one everywhere: change an entity, then *place* it anew; placing is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sortedcontainers import SortedDict, SortedSet

from master.scheduling import ledger, measure
from master.scheduling.demand import Demand, Key
from master.scheduling.hold import HoldIndex
from master.scheduling.model import LIVE, OCCUPYING, Attempt, Job, ProgramKey, Task, Worker
from master.scheduling.queues import Queues
from master.scheduling.ranges import Ranges
from master.scheduling.tags import Tags
from master.scheduling.waiting import Waiting
from shared.model import AttemptId, JobState, Order, TaskId, TaskState

Rank = TypeVar("Rank", bound=tuple[Any, ...])
Subject = TypeVar("Subject", int, str, ProgramKey)
Looks = tuple[bool | float | None, ...]
Members = TypeVar("Members", Ranges, "SortedSet[tuple[float, int]]")


class Ranking(Generic[Subject, Rank]):
    """Subjects in the order of a key that changes; each stands under one key, or not at all."""

    __slots__ = ("changes", "keys", "order")

    def __init__(self) -> None:
        self.changes = 0  # so many so far: whoever goes through the order sees that it is another one now
        self.order: SortedSet[Rank] = SortedSet()
        self.keys: dict[Subject, Rank] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranking) and self.keys == other.keys and self.order == other.order

    __hash__ = None  # type: ignore[assignment]

    def place(self, subject: Subject, key: Rank | None) -> None:
        old = self.keys.get(subject)
        if old == key:
            return
        self.changes += 1
        if old is not None:
            self.order.remove(old)
            del self.keys[subject]
        if key is not None:
            self.keys[subject] = key
            self.order.add(key)


@dataclass(slots=True)
class Pool:
    """One job's tasks, by what may be done with them. Never-started ones are in State.fresh."""

    waiting: Ranges = field(default_factory=Ranges)  # started once, queued again
    replicable: Ranges = field(default_factory=Ranges)  # running, with room for a replica
    stranded: Ranges = field(default_factory=Ranges)  # of these: all that runs of them is frozen, or asked
    asked: Ranges = field(default_factory=Ranges)  # of these: the job's quorum needs another result
    kept: set[int] = field(default_factory=set)  # all that have a Task in memory
    attempts: int = 0  # in memory


@dataclass(slots=True)
class Index:
    live: SortedDict[int, Job] = field(default_factory=SortedDict)  # by arrival
    standing: dict[int, tuple[int, bool]] = field(default_factory=dict)  # live job: arrival, whether it is exempt
    pools: dict[int, Pool] = field(default_factory=dict)  # by job
    ready: dict[Key, Ranges] = field(default_factory=dict)  # arrivals of jobs with a task to start
    replicable: dict[Key, Ranges] = field(default_factory=dict)  # ... with a task to replicate
    looks: dict[int, Looks] = field(default_factory=dict)  # ... and what else its places depend on
    hold: HoldIndex = field(default_factory=HoldIndex)
    tags: Tags = field(default_factory=Tags)
    exempt: SortedSet[int] = field(default_factory=SortedSet)  # arrivals of live jobs that hold nobody
    witness: dict[int, int] = field(default_factory=dict)  # held job: arrival of one that holds it, whichever
    watchers: dict[int, set[int]] = field(default_factory=dict)  # the reverse
    let_go: SortedSet[int] = field(default_factory=SortedSet)  # arrivals of jobs that are at last, and not held
    complete: SortedSet[int] = field(default_factory=SortedSet)  # arrivals of computed jobs that nobody holds
    of_task: dict[TaskId, dict[AttemptId, Attempt]] = field(default_factory=dict)
    of_worker: dict[str, dict[AttemptId, Attempt]] = field(default_factory=dict)
    breathing: set[AttemptId] = field(default_factory=set)  # attempts that are alive
    alive: dict[TaskId, int] = field(default_factory=dict)  # ... how many, by task
    frozen: dict[TaskId, int] = field(default_factory=dict)  # ... of them frozen
    frozen_on: dict[str, int] = field(default_factory=dict)  # ... by worker
    standing_still: set[AttemptId] = field(default_factory=set)
    places: set[tuple[TaskId, str]] = field(default_factory=set)  # which task occupies slots of which worker
    voters: dict[TaskId, frozenset[str]] = field(default_factory=dict)  # by open task: who has brought a result
    reserved_ms: dict[int, int] = field(default_factory=dict)  # by job: what replicas at work are expected to take
    seated: set[AttemptId] = field(default_factory=set)  # attempts that take up slots
    used: dict[str, int] = field(default_factory=dict)  # slots, by worker
    occupied: int = 0  # slots, in all
    idle: Ranking[str, tuple[int, int, str]] = field(default_factory=Ranking)  # (-free slots, -merit, worker)
    queues: Queues = field(default_factory=Queues)  # attempts that wait at workers for a slot
    full: Ranking[str, tuple[int, str]] = field(default_factory=Ranking)
    """Workers that are at work in all their slots: (milliseconds of work that waits there, a slot; worker)."""
    laden: Ranking[str, tuple[int, str]] = field(default_factory=Ranking)  # the same, < 0, of those with a queue
    leases: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)  # (until, worker)
    starving: Ranking[int, tuple[float, int]] = field(default_factory=Ranking)  # (since, job), not yet stalled
    probations: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)  # (until, worker)
    programs: Ranking[ProgramKey, tuple[float, ProgramKey]] = field(default_factory=Ranking)  # longest unused first
    demand: Demand = field(default_factory=Demand)
    waiting: Waiting = field(default_factory=Waiting)  # outside the grid, for other jobs to succeed

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
            index.place_worker(worker)
        for attempt in attempts:
            index.place_attempt(attempt)
            index.place_worker(by_name[attempt.worker])
        for task in tasks:
            index.place_task(task, by_id[task.job])
        for job in sorted(by_id.values(), key=lambda job: job.arrival):
            index.place_job(job, fresh[job.id])
        return index

    def place_job(self, job: Job, fresh: Ranges) -> None:
        """Enter a job as it is now; one that is over leaves everything but its pool."""
        self.waiting.place(job.id, job.waiting_for if job.state is JobState.WAITING else ())
        standing = (job.arrival, job.is_exempt) if job.is_live else None
        looks, at_last = self._looks_of(job, fresh), job.is_live and _is_at_last(job, fresh)
        stands = standing == self.standing.get(job.id)
        if stands and looks == self.looks.get(job.id) and not at_last:
            return  # as most often: one task more, one task less
        if not stands:
            self._place_standing(job, standing)
        if standing is not None:
            self.looks[job.id] = looks
        self._place_witness(job, at_last)
        self._place_startable(job, fresh)
        starving = job.starved_since is not None and job.is_live and not (job.running or job.is_computed)
        since = (job.starved_since or 0.0, job.id)
        self.starving.place(job.id, since if starving and not job.stalled else None)

    def place_task(self, task: Task, job: Job) -> None:
        """Enter a task as it is now. One with votes waits among those to replicate: who has voted is barred. One that
        has failed too often is only waited for: were it copied on and on, it would never end.
        """
        pool, quorum = self.pools[task.job], job.spec.quorum
        alive, frozen = self.alive.get(task.id, 0), self.frozen.get(task.id, 0)
        is_queued = task.state is TaskState.QUEUED and task.started
        is_begun = task.state is TaskState.RUNNING or (is_queued and bool(task.votes))
        has_room = job.max_replicas is None or alive < job.max_replicas
        can_replicate = is_begun and has_room and task.setbacks < job.max_attempts
        is_asked = can_replicate and quorum is not None and task.agreeing + alive - frozen < quorum
        _toggle(pool.kept, task.number, task.is_open or task.id in self.of_task)
        _toggle(pool.waiting, task.number, is_queued and not task.votes)
        _toggle(pool.replicable, task.number, can_replicate)
        _toggle(pool.stranded, task.number, is_asked or (can_replicate and 0 < alive == frozen))
        _toggle(pool.asked, task.number, is_asked)
        if task.is_open and task.votes:
            self.voters[task.id] = frozenset(vote.worker for vote in task.votes)
        else:
            self.voters.pop(task.id, None)

    def place_attempt(self, attempt: Attempt) -> None:
        """Enter an attempt as it is now; one that is over leaves. (Its worker is to be placed, too.)"""
        tasks = self.of_task.setdefault(attempt.task_id, {})
        held = self.of_worker.setdefault(attempt.worker, {})
        self.pools[attempt.job].attempts += (not attempt.is_over) - (attempt.id in tasks)
        if attempt.is_over:
            tasks.pop(attempt.id, None)
            held.pop(attempt.id, None)
        else:
            tasks[attempt.id] = held[attempt.id] = attempt
        if not tasks:
            del self.of_task[attempt.task_id]
        if not held:
            del self.of_worker[attempt.worker]
        self._occupy(attempt)

    def _occupy(self, attempt: Attempt) -> None:
        """It takes up its slots, or leaves them; it counts as alive, or no longer."""
        key, task = (attempt.task_id, attempt.worker), attempt.task_id
        if (attempt.state in OCCUPYING) != (key in self.places):
            self.places ^= {key}
        if attempt.is_seated != (attempt.id in self.seated):
            sign = -1 if attempt.id in self.seated else 1
            self.seated ^= {attempt.id}
            _count(self.used, attempt.worker, sign * attempt.slots)
            self.occupied += sign * attempt.slots
            _count(self.reserved_ms, attempt.job, sign * ledger.expected_ms(attempt))
        self.queues.place(attempt)
        if (attempt.state in LIVE) != (attempt.id in self.breathing):
            _count(self.alive, task, -1 if attempt.id in self.breathing else 1)
            self.breathing ^= {attempt.id}
        stands_still = attempt.frozen and attempt.state in LIVE
        if stands_still != (attempt.id in self.standing_still):
            sign = -1 if attempt.id in self.standing_still else 1
            _count(self.frozen, task, sign)
            _count(self.frozen_on, attempt.worker, sign)
            self.standing_still ^= {attempt.id}

    def place_worker(self, worker: Worker) -> None:
        """Enter a worker as it is now (Demand is placed apart: it answers what that changed)."""
        name, free = worker.name, self._unclaimed(worker)
        is_idle, is_bound = free > 0 and worker.is_available, worker.on_trial or worker.probation_until is not None
        self.idle.place(name, (-free, -measure.merit(worker), name) if is_idle else None)
        is_full = worker.is_available and free <= 0 < worker.offered and name not in self.frozen_on and not is_bound
        wait_ms = self.queues.work_ms.get(name, 0) // max(1, worker.offered)
        self.full.place(name, (wait_ms, name) if is_full else None)
        is_laden = worker.session is not None and name in self.queues.of_worker
        self.laden.place(name, (-wait_ms, name) if is_laden else None)
        until = worker.probation_until
        self.probations.place(name, (until, name) if until is not None else None)
        at_work = worker.session is not None or self.used.get(worker.name, 0) > 0
        self.leases.place(worker.name, (worker.lease_until, worker.name) if at_work else None)

    def is_held(self, job: Job) -> bool:
        """Its last never-started task is kept back, or its delivery."""
        return job.id in self.witness

    def on_worker(self, task: TaskId, worker: str) -> bool:
        """An attempt of the task is on this worker, or has voted there. (What a lost one is, its first Report will
        have said.)
        """
        return (task, worker) in self.places or worker in self.voters.get(task, ())

    def is_stuck(self, job: Job, fresh: Ranges) -> bool:
        """All that it could do next is to ask for results from others than those who are there."""
        pool = self.pools[job.id]
        if job.running or fresh or pool.waiting or not pool.asked:
            return False
        able = self.demand.able[self.demand.key_of(job)]
        return all(able <= self.voters.get(TaskId(job.id, number), frozenset()) for number in pool.asked)

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
        return ledger.budget_left(job, self.reserved_ms.get(job.id, 0))

    def free_slots(self, worker: Worker) -> int:
        return self._unclaimed(worker) if worker.is_available else 0

    def _unclaimed(self, worker: Worker) -> int:
        """Slots that neither an attempt takes up, nor one that waits there will take as soon as it can."""
        if worker.on_trial and (worker.name in self.used or worker.name in self.queues.of_worker):
            return 0  # one attempt at a time
        return worker.offered - self.used.get(worker.name, 0) - len(self.queues.of_worker.get(worker.name, ()))

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
        """All that places depend on, unless the job is at last: then they depend on other jobs, too."""
        pool, is_computed = self.pools[job.id], job.is_computed
        extra = (len(self.to_shadow(job)) > 0, len(self.to_replicate(job)) > 0)
        pools = (len(fresh) > 0, len(pool.waiting) > 0, *extra)
        return (job.paused, job.stalled, job.starved_since, job.running > 0, is_computed, *pools)

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
        toggle_under(self.ready, key, job.arrival, may_run and startable, Ranges)
        toggle_under(self.replicable, key, job.arrival, may_run and len(self.to_replicate(job)) > 0, Ranges)


def _is_at_last(job: Job, fresh: Ranges) -> bool:
    """What would complete it is what its order keeps back: its last task's start, or its delivery."""
    match job.order:
        case Order.HOLD:
            return len(fresh) == 1
        case Order.DELIVER:
            return job.is_computed
        case Order.NONE:
            return False


def _count(counts: dict[Any, int], of: object, change: int) -> None:
    """A count of none is not kept."""
    new = counts.pop(of, 0) + change
    if new:
        counts[of] = new


def _toggle(members: SortedSet[int] | set[int] | Ranges, member: int, present: bool) -> None:
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
