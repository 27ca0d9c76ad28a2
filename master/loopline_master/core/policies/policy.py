"""Policy: the scheduler's source of proposals; with the View that it queries, and its first kind, WorkerFirst.

The View answers the queries of policies from the scheduler's indexes, each in logarithmic time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from loopline_master.core.kernel import eligibility
from loopline_master.core.kernel.door.mechanism import DataPlaces
from loopline_master.core.kernel.eligibility import Prefetch
from loopline_master.core.kernel.entities import Grid, Job, Program, Task, Worker
from loopline_master.core.kernel.index.attempts import Attempts, ReadySet, Slots
from loopline_master.core.kernel.index.job_sessions import JobSession, JobSessions
from loopline_master.core.kernel.index.policy_index import PolicyIndex
from loopline_master.core.kernel.index.requirements import RequirementClass, RequirementIndex
from loopline_master.core.kernel.index.sorted_collections import IntervalSet, first_after
from loopline_master.core.kernel.runs import ProgramKey
from loopline_master.core.kernel.state import State
from loopline_shared.model import MAX_ID, TaskId

Thing = TypeVar("Thing")
FEW = 8
"""Up to this number of requirement classes, each is asked for its first job."""
_LOOK_AT = 64
"""Limit of the tasks that are skipped because they have failed on a worker."""


class PolicyIndexes(Protocol):
    """Indexes of the scheduler that policies may read; the others are private to it."""

    @property
    def live(self) -> Mapping[int, Job]:
        """Live jobs by arrival, in this order."""

    @property
    def turn(self) -> str | None:
        """The user whose jobs alone the View shows now. None: it shows the jobs of all users."""

    @property
    def sessions(self) -> JobSessions:
        """Sessions with a live job: their jobs share one turn."""

    @property
    def ready(self) -> Mapping[RequirementClass, IntervalSet]:
        """Turns of jobs with a task to start: a job's arrival, or the turn of its session."""

    @property
    def open(self) -> Mapping[RequirementClass, IntervalSet]:
        """Turns of jobs with a task to start or to replicate."""

    @property
    def ready_sets(self) -> Mapping[int, ReadySet]:
        """By job: its started tasks that may get another attempt."""

    @property
    def programs(self) -> Mapping[ProgramKey, Program]:
        """Sums over the runs of each program, by its key."""

    @property
    def attempts(self) -> Attempts:
        """Attempts by task and by worker."""

    @property
    def slots(self) -> Slots:
        """Free slots and backlogs of workers."""

    @property
    def requirements(self) -> RequirementIndex:
        """Matching of jobs and workers."""

    def first_of_many(
        self,
        family: Mapping[RequirementClass, IntervalSet],
        takes: Callable[[RequirementClass], bool],
        served: Callable[[], Iterable[RequirementClass]] | None,
        after: int,
    ) -> int | None:
        """Return the first turn after ``after`` in a family of many classes, with a class that ``takes`` accepts."""

    def is_ready(self, job: Job) -> bool:
        """True if the job has a task to start."""

    def is_held(self, job: Job) -> bool:
        """True if the job's last fresh task, or its delivery, is held."""

    def may_replicate(self, job: Job) -> bool:
        """True if the job's budget for replicas is not spent."""

    def to_replicate(self, job: Job) -> IntervalSet:
        """Return the job's tasks that may get one more replica."""

    def needs_replica(self, job: Job) -> IntervalSet:
        """Return its tasks that need a replica: all their attempts are frozen, or a quorum needs another result."""

    def on_worker(self, task: TaskId, worker: str) -> bool:
        """True if an attempt of the task is on this worker, or has voted there."""


class View:
    """The grid at this moment: an accepted placement shows at once. Read only."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._slots = state.index.slots
        self.grid: Grid = state.grid
        """Facts about the whole grid: the time, the job and the worker with the last turn, virtual time."""
        self.workers: Mapping[str, Worker] = state.workers
        """All known workers by name, including absent ones."""
        self.jobs: Mapping[int, Job] = state.jobs
        """All jobs in memory by number, some of them over; ``index.live`` has the live ones by arrival."""
        self.tasks: Mapping[TaskId, Task] = state.tasks
        """All tasks in memory: started and not over."""
        self.index: PolicyIndexes = state.index
        """Indexes, for queries that the methods below do not cover and for a policy's own index."""
        self.prefetch = Prefetch(state)
        """The room of busy workers, and the tasks that may wait there."""

    @property
    def data(self) -> DataPlaces:
        """Places of large files, and their expected time to another worker."""
        return self._state.data

    # --- workers --------------------------------------------------------------------------------------------

    def is_free(self, worker: Worker) -> bool:
        """True if the worker has a free slot; for a busy one, a policy chooses a task that waits there."""
        return worker.name in self._slots.idle.keys

    # --- jobs -----------------------------------------------------------------------------------------------

    def jobs_to_start(self, worker: Worker, after: int = 0) -> Iterator[Job]:
        """Return jobs with a task to start that fits this worker, from the turn just after ``after`` once round.

        The jobs of a session share a turn, so a session has one in each round.
        """
        return self._round(after, self.index.ready, worker)

    def jobs_in_turn(self, worker: Worker, after: int) -> Iterator[Job]:
        """Return jobs with a task to start or replicate that fits this worker, in the order of ``jobs_to_start``."""
        return self._round(after, self.index.open, worker)

    # --- tasks ----------------------------------------------------------------------------------------------

    def fresh(self, job: Job) -> IntervalSet:
        """Tasks of the job that were never started, including the held one."""
        return self._state.fresh[job.id]

    def first_startable(self, job: Job, worker: Worker, after: int = 0) -> int | None:
        """Return the job's next task after ``after`` (else its first) that may start, or wait, on this worker."""
        is_free = self.is_free(worker)
        if not is_free and self.prefetch.is_too_long(job, worker):
            return None
        fresh = None if self.index.is_held(job) else self.fresh(job)
        found = None
        for start in (after, 0) if after else (0,):
            first = fresh.first_after(start) if fresh is not None else None
            found = _least(self._first_waiting(job, worker, start), first)
            if found is not None:
                break
        found = _least(found, self.first_stalled(job, worker)) if is_free else found
        return found if worker.facts.until is None else self._in_time(job, found, worker)

    def first_stalled(self, job: Job, worker: Worker) -> int | None:
        """Return the job's first task that needs another attempt, and may have it on this worker.

        All its attempts are frozen, or the job's quorum needs one more result.
        """
        stalled = self.index.needs_replica(job)
        return self._first_elsewhere(stalled, job, worker, 0) if stalled.starts else None

    def next_in_queue(self, job: Job, worker: Worker, after: int) -> int | None:
        """Return the task after ``after`` in the job's queue (the paper's Figure 1), held and started ones included.

        The queue is kept as a circle: taking a task from the head and putting it back at the tail is moving the
        cursor. None if no task of the job could have an attempt on this worker.
        """
        fresh = self._state.fresh[job.id]
        if after + 1 in fresh and worker.facts.until is None:
            return after + 1  # the usual case: no other task could come first
        ready_set, others = self.index.ready_sets[job.id], eligibility.replicable(self._state, job, worker)
        for start in (after, 0):
            found = fresh.first_after(start)
            if ready_set.to_retry.starts:
                found = _least(found, self._first_waiting(job, worker, start))
            if others.starts:
                found = _least(found, self._first_elsewhere(others, job, worker, start))
            if found is not None:
                return self._in_time(job, found, worker)
        return None

    def accepts(self, job: Job, task: int, worker: Worker) -> bool:
        """True if the scheduler would accept this placement now, to start at once or to wait at a busy worker."""
        if self.is_free(worker):
            is_fresh = task in self._state.fresh[job.id]
            found = eligibility.may_start(self._state, job, task, worker, is_fresh=is_fresh)
        else:
            found = self.prefetch.may_wait(job, task, worker)
        if found:
            self._state.accepted = job.id, task, worker.name
        return found

    def should_go_elsewhere(self, job: Job, task: int, worker: Worker) -> bool:
        """True if the task failed on this unhealthy worker or took it down, and another one is a candidate for it."""
        return eligibility.should_go_elsewhere(self._state, job, task, worker)

    def _in_time(self, job: Job, task: int | None, worker: Worker) -> int | None:
        """Return the task; None if it would not end before the worker must."""
        if task is None or worker.facts.until is None or self.prefetch.ends_in_time(job, task, worker):
            return task
        return None

    # --- looking them up ------------------------------------------------------------------------------------

    def _first_waiting(self, job: Job, worker: Worker, after: int) -> int | None:
        """Return the job's first task to start again, skipping tasks that should go elsewhere."""
        waiting, number = self.index.ready_sets[job.id].to_retry, after
        if not waiting.starts:
            return None
        for _ in range(_LOOK_AT):
            found = waiting.first_after(number)
            if found is None or not self.should_go_elsewhere(job, found, worker):
                return found
            number = found
        return None

    def _first_elsewhere(self, numbers: IntervalSet, job: Job, worker: Worker, after: int) -> int | None:
        """Return the first of these tasks that is not on this worker, nor should go elsewhere."""
        number = numbers.first_after(after)
        while number is not None and (
            self.index.on_worker(job.task_id(number), worker.name) or self.should_go_elsewhere(job, number, worker)
        ):
            number = numbers.first_after(number)
        return number

    def _round(self, after: int, family: Mapping[RequirementClass, IntervalSet], worker: Worker) -> Iterator[Job]:
        """Return jobs of the family for this worker, looked up one by one, since a placement changes them."""
        slots = self._slots.free_slots(worker) or 1
        if len(family) <= FEW:
            served = self.index.requirements.served_in(slots, worker.name, self.index.turn)
            first_after = first_of([family[key] for key in family.keys() & served])
        else:
            takes = self.index.requirements.taken_by(worker.name, slots, self.index.turn)
            all_served = partial(self.index.requirements.served_in, slots, worker.name, self.index.turn)
            first_after = partial(self.index.first_of_many, family, takes, all_served)
        sessions = self.index.sessions.at
        for low, high in ((after, MAX_ID), (-1, after)):
            at = first_after(low)
            while at is not None and at <= high:
                if at in sessions:
                    yield from self._of_session(sessions[at], family, worker)
                else:
                    yield self.index.live[at]
                at = first_after(at)

    def _of_session(
        self, session: JobSession, family: Mapping[RequirementClass, IntervalSet], worker: Worker
    ) -> Iterator[Job]:
        slots = self._slots.free_slots(worker) or 1
        takes = self.index.requirements.taken_by(worker.name, slots, self.index.turn)
        arrivals = session.in_turn(takes, with_replicas=family is self.index.open)
        return (self.index.live[arrival] for arrival in arrivals)


def memo(view: View, name: str, compute: Callable[[], Thing]) -> Thing:
    """Return a result computed from available workers and live jobs, cached until these change."""
    memos, key = view._state.memos, (name, view.index.turn)
    if key not in memos:
        memos[key] = compute()
    return memos[key]  # type: ignore[return-value]


def first_of(members: list[IntervalSet]) -> Callable[[int], int | None]:
    """Return a function that finds the smallest member of any set that is greater than a number."""
    return members[0].first_after if len(members) == 1 else partial(first_after, members)


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or (other is not None and other < one):
        return other
    return one


@dataclass(slots=True)  # not frozen: one is made for each attempt
class Placement:
    """A proposal: an attempt at this task on this worker; it is prefetched if all slots there are busy."""

    job: int
    task: int
    worker: str
    spent: tuple[Placement, ...] = ()
    """Placements of held tasks whose jobs spend their turn, just before this one."""
    keeps_place: bool = False
    """The task replaces the task whose turn it is, which keeps its place in the job's queue."""


@dataclass(frozen=True, slots=True)
class Later:
    """An answer: nothing now, ask again at this time (or earlier, after an event)."""

    at: float


Proposal = Placement | Later


class Policy(ABC):
    """Either kind of policy, created whenever it comes into force. It decides from rows alone."""

    replicates = False
    """True if a worker is offered even without a task to start, because there may be one to replicate."""
    prefetches = True
    """Tasks may wait at busy workers, as far as the settings allow any."""
    prefetch_s: float | None = None
    """Seconds of expected work that may wait for each slot; None: as the settings say. A setting of 0 forbids any."""
    index: PolicyIndex | None
    """The policy's own index, if it needs one, made from the View."""

    def __init__(self, view: View) -> None:
        """Create the policy's own index; a policy without one leaves this as it is."""
        self.index = None

    @abstractmethod
    def plan(self, view: View) -> Iterator[Proposal]:
        """Return proposals for free workers. Each is accepted or refused before the next is drawn."""

    @abstractmethod
    def prefetch(self, view: View) -> Iterator[Proposal]:
        """Return proposals for busy workers with room, asked after those for free workers."""


REGISTRY: dict[str, type[Policy]] = {}
"""The policies of a live grid by name. Filled by ``loopline_master.core.policies``."""
COMPARED: dict[str, type[Policy]] = {}
"""Policies for comparison only, by name: a simulator runs them, a master refuses them."""
Registered = TypeVar("Registered", bound=type[Policy])


def register(name: str, *, live: bool = True) -> Callable[[Registered], Registered]:
    """Return a decorator that registers a policy under this name; not ``live``: for comparison only."""

    def enter(policy: Registered) -> Registered:
        taken = REGISTRY.get(name) or COMPARED.get(name)
        if taken is not None:
            raise ValueError(f"two policies are called {name}: {taken.__module__} and {policy.__module__}")
        (REGISTRY if live else COMPARED)[name] = policy
        return policy

    return enter


def policy_named(name: str) -> type[Policy]:
    """Return the policy, even if for comparison only. Raises KeyError if there is none."""
    return REGISTRY[name] if name in REGISTRY else COMPARED[name]


class WorkerFirst(Policy):
    """Workers ask one after the other; a worker asks again until it is given nothing."""

    @abstractmethod
    def next_task(self, view: View, worker: Worker) -> Proposal | None:
        """Return the placement that this worker should have next, Later, or None for nothing.

        The scheduler also asks for busy workers (``view.is_free`` tells which): the proposed task then waits there. A
        policy should propose the very task that the worker would be given next. If that task may not wait, none may:
        shorter tasks that passed it would prevent a slot from becoming free for it.
        """

    def free_workers(self, view: View) -> Iterator[Worker]:
        """Return free workers in the order of their asking, once a step: here most free slots first.

        It ends when there is nothing to start (or to replicate). A worker is not offered again
        if no proposal for it was accepted.
        """
        idle, requirements, passed_over = view.index.slots.idle, view.index.requirements, None
        family = view.index.open if self.replicates else view.index.ready
        serving: list[tuple[int, int, str]] | None = None  # idle workers with a class of the family, if they are few
        listed_at = -1
        while (entry := idle.next_after(passed_over)) is not None:
            changes = idle.changes
            serves = requirements.serves_any(family, -entry[0], entry[-1], view.index.turn)
            if not serves and listed_at != changes:
                serving = requirements.idle_that_serve(family, view.index.turn, idle.keys)
                listed_at = changes
            if not serves and serving is not None:
                at = bisect_left(serving, entry)
                if at == len(serving):
                    return
                serves, entry = True, serving[at]
            if serves:
                yield view.workers[entry[-1]]
            if changes == idle.changes:
                passed_over = entry

    def plan(self, view: View) -> Iterator[Proposal]:
        """Ask for every free worker."""
        is_known = view.data.is_known
        for worker in self.free_workers(view):
            answer = self.next_task(view, worker)
            if answer is not None:
                yield _nearer(view, answer) if is_known else answer

    def prefetch(self, view: View) -> Iterator[Proposal]:
        """Ask for every busy worker that may have one more task prefetched."""
        is_known = view.data.is_known
        for worker in view.prefetch.workers_with_room():
            answer = self.next_task(view, worker)
            if answer is not None:
                yield _nearer(view, answer) if is_known else answer


def _nearer(view: View, answer: Proposal) -> Proposal:
    """Return the proposal, with another task of the same job if that task's data is at the worker."""
    if not isinstance(answer, Placement) or answer.spent:
        return answer
    task = view.data.nearer_task(view.jobs[answer.job], answer.task, answer.worker)
    return answer if task == answer.task else replace(answer, task=task, keeps_place=True)
