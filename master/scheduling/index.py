"""What the scheduler looks things up in. Every index is a function of the entities as they are, never of how
they came to be so: ``invariants.check`` compares each with one built afresh, and a restart changes nothing.

The pattern is one everywhere: change an entity, then *place* it anew; placing is idempotent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sortedcontainers import SortedDict, SortedList, SortedSet

from master.scheduling import ledger, measure
from master.scheduling.demand import Demand, Key
from master.scheduling.hold import HoldIndex
from master.scheduling.model import LIVE, OCCUPYING, Attempt, Job, Task, Worker
from master.scheduling.naming import ProgramKey
from master.scheduling.queues import Queues
from master.scheduling.ranges import Ranges
from master.scheduling.tags import Tags
from master.scheduling.waiting import Waiting
from shared.model import AttemptId, JobState, Order, TaskId, TaskState

Rank = TypeVar("Rank", bound=tuple[Any, ...])
Subject = TypeVar("Subject", int, str, ProgramKey)
Looks = tuple[bool | float | tuple[bool, ...] | None, ...]
Members = TypeVar("Members", Ranges, "SortedSet[tuple[float, int]]")


class Ranking(Generic[Subject, Rank]):
    """Subjects in the order of a key that changes; each stands under one key, or not at all."""

    __slots__ = ("changes", "keys", "order")

    def __init__(self) -> None:
        self.changes = 0  # so many so far: whoever goes through the order sees that it is another one now
        self.order: SortedList[Rank] = SortedList()
        self.keys: dict[Subject, Rank] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ranking) and self.keys == other.keys and list(self.order) == list(other.order)

    __hash__ = None  # type: ignore[assignment]

    def next_after(self, key: Rank | None) -> Rank | None:
        """The first in the order; after this key."""
        if key is None:
            return self.order[0] if self.keys else None
        return next(self.order.irange(key, inclusive=(False, True)), None)

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
    kept: dict[int, int] = field(default_factory=dict)  # all that have a Task in memory, and where each stands
    attempts: int = 0  # in memory


@dataclass(slots=True)
class Index:
    live: SortedDict[int, Job] = field(default_factory=SortedDict)  # by arrival
    standing: dict[int, tuple[int, bool]] = field(default_factory=dict)  # live job: arrival, whether it is exempt
    pools: dict[int, Pool] = field(default_factory=dict)  # by job
    ready: dict[Key, Ranges] = field(default_factory=dict)  # arrivals of jobs with a task to start
    replicable: dict[Key, Ranges] = field(default_factory=dict)  # ... with a task to replicate
    open: dict[Key, Ranges] = field(default_factory=dict)  # ... with either
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
    roles: dict[AttemptId, int] = field(default_factory=dict)  # what each attempt counts as
    alive: dict[TaskId, int] = field(default_factory=dict)  # attempts that are, by task
    frozen: dict[TaskId, int] = field(default_factory=dict)  # ... of them frozen
    frozen_on: dict[str, int] = field(default_factory=dict)  # ... by worker
    places: set[tuple[TaskId, str]] = field(default_factory=set)  # which task occupies slots of which worker
    voters: dict[TaskId, frozenset[str]] = field(default_factory=dict)  # by open task: who has brought a result
    reserved_ms: dict[int, int] = field(default_factory=dict)  # by job: what replicas at work are expected to take
    used: dict[str, int] = field(default_factory=dict)  # slots, by worker
    occupied: int = 0  # slots, in all
    idle: Ranking[str, tuple[int, int, str]] = field(default_factory=Ranking)  # (-free slots, -merit, worker)
    queues: Queues = field(default_factory=Queues)  # attempts that wait at workers for a slot
    full: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)
    """Workers that are at work in all their slots: (milliseconds of work that waits there, a slot; worker)."""
    laden: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)  # the same, < 0, of those with a queue
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
        for attempt in attempts:
            index.place_attempt(attempt)
        for worker in by_name.values():
            index.place_worker(worker)
            index.place_slots(worker)
            index.place_queue(worker)
        for task in tasks:
            index.place_task(task, by_id[task.job])
        for job in sorted(by_id.values(), key=lambda job: job.arrival):
            index.place_job(job, fresh[job.id])
        return index

    def place_job(self, job: Job, fresh: Ranges) -> bool:
        """Enter a job as it is now; one that is over leaves everything but its pool. Whether it may stand anywhere
        else than before.
        """
        if job.waiting_for or job.id in self.waiting:
            self.waiting.place(job.id, job.waiting_for if job.state is JobState.WAITING else ())
        standing = (job.arrival, job.is_exempt) if job.is_live else None
        looks, at_last = self._looks_of(job, fresh), job.is_live and _is_at_last(job, fresh)
        stands = standing == self.standing.get(job.id)
        if stands and looks == self.looks.get(job.id) and not at_last:
            return False  # as most often: one task more, one task less
        if not stands:
            self._place_standing(job, standing)
        if standing is not None:
            self.looks[job.id] = looks
        self._place_witness(job, at_last)
        self._place_startable(job, fresh)
        starving = job.starved_since is not None and job.is_live and not (job.running or job.is_computed)
        since = (job.starved_since or 0.0, job.id)
        self.starving.place(job.id, since if starving and not job.stalled else None)
        return True

    def place_task(self, task: Task, job: Job) -> bool:
        """Enter a task as it is now. One with votes waits among those to replicate: who has voted is barred. One that
        has failed too often is only waited for: were it copied on and on, it would never end. Whether it is kept.
        """
        pool, number = self.pools[task.job], task.number
        stands = self._stands(task, job)
        changed = stands ^ pool.kept.get(number, 0)
        if changed:
            if stands:
                pool.kept[number] = stands
            else:
                del pool.kept[number]
            if changed & _REPLICABLE:
                _toggle(pool.replicable, number, stands & _REPLICABLE)
            if changed & _RARELY:
                _toggle(pool.waiting, number, stands & _WAITING)
                _toggle(pool.stranded, number, stands & _STRANDED)
                _toggle(pool.asked, number, stands & _ASKED)
        if self.voters or task.votes:
            self._place_voters(task)
        return stands > 0

    def _place_voters(self, task: Task) -> None:
        if task.votes and task.is_open:
            self.voters[task.id] = frozenset(vote.worker for vote in task.votes)
        else:
            self.voters.pop(task.id, None)

    def _stands(self, task: Task, job: Job) -> int:
        """In which of the pool's sets the task belongs; 0: it is forgotten."""
        if task.state is not _RUNNING:
            if task.state is not _QUEUED:
                return _KEPT if task.id in self.of_task else 0
            if not (task.started and task.votes):
                return _KEPT | _WAITING if task.started else _KEPT
        alive, limit = self.alive.get(task.id, 0), job.max_replicas
        if limit is not None and alive >= limit:
            return _KEPT
        if (task.failures or task.votes) and task.setbacks >= job.max_attempts:
            return _KEPT
        frozen, quorum = self.frozen.get(task.id, 0) if self.frozen else 0, job.spec.quorum
        if quorum is not None and task.agreeing + alive - frozen < quorum:
            return _KEPT | _REPLICABLE | _STRANDED | _ASKED
        return _KEPT | _REPLICABLE | _STRANDED if 0 < alive == frozen else _KEPT | _REPLICABLE

    def place_attempt(self, attempt: Attempt) -> bool:
        """Enter an attempt as it is now; one that is over leaves. Whether it counts as anything else than before:
        then its task is to be placed, too. (Its worker in any case.)
        """
        number, roles = attempt.id, _roles(attempt)
        changed = roles ^ self.roles.get(number, 0)
        if not changed:
            return False
        task, name = attempt.task_id, attempt.worker
        if changed & _KEPT:
            self._keep(attempt, roles & _KEPT)
        if roles:
            self.roles[number] = roles
        if changed & _OCCUPYING:
            _toggle(self.places, (task, name), roles & _OCCUPYING)
        if changed & _SEATED:
            self._seat(attempt, attempt.slots if roles & _SEATED else -attempt.slots)
        if changed & _ALIVE:
            _count(self.alive, task, 1 if roles & _ALIVE else -1)
        if changed & _AHEAD:
            self.queues.toggle(attempt, roles & _AHEAD)
        if changed & _FROZEN:
            self._freeze(attempt, 1 if roles & _FROZEN else -1)
        return True

    def _keep(self, attempt: Attempt, present: int) -> None:
        task, name, number = attempt.task_id, attempt.worker, attempt.id
        of_task, of_worker = self.of_task.get(task), self.of_worker.get(name)
        if present:
            self.pools[attempt.job].attempts += 1
            if of_task is None:
                self.of_task[task] = {number: attempt}
            else:
                of_task[number] = attempt
            if of_worker is None:
                self.of_worker[name] = {number: attempt}
            else:
                of_worker[number] = attempt
            return
        assert of_task is not None, f"attempt {number} is not known by its task"
        assert of_worker is not None, f"attempt {number} is not known by its worker"
        self.pools[attempt.job].attempts -= 1
        del of_task[number], of_worker[number], self.roles[number]
        if not of_task:
            del self.of_task[task]
        if not of_worker:
            del self.of_worker[name]

    def _freeze(self, attempt: Attempt, change: int) -> None:
        _count(self.frozen, attempt.task_id, change)
        _count(self.frozen_on, attempt.worker, change)

    def _seat(self, attempt: Attempt, slots: int) -> None:
        """So many slots more are taken up, or fewer."""
        self.occupied += slots
        _count(self.used, attempt.worker, slots)
        if attempt.replica:
            expected_ms = ledger.expected_ms(attempt)
            _count(self.reserved_ms, attempt.job, expected_ms if slots > 0 else -expected_ms)

    def place_worker(self, worker: Worker) -> None:
        """Enter a worker as it is now (Demand is placed apart: it answers what that changed)."""
        name, until = worker.name, worker.probation_until
        self.probations.place(name, (until, name) if until is not None else None)
        at_work = worker.session is not None or name in self.used
        self.leases.place(name, (worker.lease_until, name) if at_work else None)

    def place_slots(self, worker: Worker) -> None:
        """Enter whether it could take more, as it is now."""
        name, free = worker.name, self._unclaimed(worker)
        if free > 0 and worker.is_available:
            self.idle.place(name, (-free, -measure.merit(worker), name))
        elif name in self.idle.keys:
            self.idle.place(name, None)

    def place_queue(self, worker: Worker) -> None:
        """Enter what waits there, as it is now."""
        name, wait_ms = worker.name, self.queues.work_ms.get(worker.name, 0) / max(1, worker.offered)
        self.full.place(name, (wait_ms, name) if self.is_full(worker) else None)
        is_laden = name in self.queues.of_worker and worker.session is not None
        if is_laden or name in self.laden.keys:
            self.laden.place(name, (-wait_ms, name) if is_laden else None)

    def is_full(self, worker: Worker) -> bool:
        """It is at work in all its slots, and more may wait there."""
        if worker.offered <= 0 or self._unclaimed(worker) > 0 or not worker.is_available:
            return False
        return not worker.on_trial and worker.probation_until is None and worker.name not in self.frozen_on

    def is_held(self, job: Job) -> bool:
        """Its last never-started task is kept back, or its delivery."""
        return job.id in self.witness

    def on_worker(self, task: TaskId, worker: str) -> bool:
        """An attempt of the task is on this worker, or has voted there. (What a lost one is, its first Report will
        have said.)
        """
        return (task, worker) in self.places or (task in self.voters and worker in self.voters[task])

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

    def seated_on(self, worker: str) -> Iterator[Attempt]:
        """Attempts in its slots; they came first, as a rule, so that what waits there is hardly looked at."""
        left = self.used.get(worker, 0)
        for attempt in self.of_worker[worker].values() if left else ():
            if attempt.is_seated:
                yield attempt
                left -= attempt.slots
                if left <= 0:
                    return

    def free_slots(self, worker: Worker) -> int:
        """As placed: what it could take now."""
        key = self.idle.keys.get(worker.name)
        return 0 if key is None else -key[0]

    def _unclaimed(self, worker: Worker) -> int:
        """Slots that neither an attempt takes up, nor one that waits there will take as soon as it can."""
        name, queues = worker.name, self.queues.of_worker
        free = worker.offered - self.used.get(name, 0)
        if name in queues:
            free -= len(queues[name])
        if worker.on_trial and (name in self.used or name in queues):
            return 0  # one attempt at a time
        return free

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
        pool = self.pools[job.id]
        may_replicate = job.spec.replica_budget_s is None or self.may_replicate(job)
        stranded, replicable = (pool.stranded, pool.replicable) if may_replicate else (pool.asked, pool.asked)
        is_computed, starved_since = job.succeeded + job.failed == job.task_count, job.starved_since
        pools = (not fresh, not pool.waiting, not stranded, not replicable)
        return (job.paused, job.stalled, starved_since, job.running > 0, is_computed, pools)

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
        toggle_under(self.replicable, key, job.arrival, may_run and replicable, Ranges)
        toggle_under(self.open, key, job.arrival, may_run and (startable or replicable), Ranges)


_KEPT, _OCCUPYING, _SEATED, _ALIVE, _FROZEN, _AHEAD = (1 << bit for bit in range(6))
"""What an attempt counts as: it is in memory, on its worker, in a slot, alive, alive but frozen, sent ahead."""
_WAITING, _REPLICABLE, _STRANDED, _ASKED = (1 << bit for bit in range(1, 5))
"""Where a task that is kept stands in its job's pool."""
_RARELY = _WAITING | _STRANDED | _ASKED
_HOLD = Order.HOLD
_RUNNING, _QUEUED = TaskState.RUNNING, TaskState.QUEUED


def _roles(attempt: Attempt) -> int:
    if attempt.ended_at is not None:
        return 0
    if attempt.state in LIVE:
        roles = _KEPT | _OCCUPYING | _ALIVE | (_AHEAD if attempt.waiting else _SEATED)
        return roles | _FROZEN if attempt.frozen else roles
    if attempt.state not in OCCUPYING:
        return _KEPT
    return _KEPT | _OCCUPYING if attempt.waiting else _KEPT | _OCCUPYING | _SEATED


def _is_at_last(job: Job, fresh: Ranges) -> bool:
    """What would complete it is what its order keeps back: its last task's start, or its delivery."""
    if job.order is _HOLD:
        return len(fresh) == 1
    return job.order is Order.DELIVER and job.is_computed


def _count(counts: dict[Any, int], of: object, change: int) -> None:
    """A count of none is not kept."""
    new = counts.get(of, 0) + change
    if new:
        counts[of] = new
    elif change:
        del counts[of]


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
