"""Index: the lookups of the scheduler and its policies.

Every index is a function of the current entities, not of their history: ``invariants.check`` compares each with one
rebuilt from scratch, and a restart changes nothing. The pattern is the same everywhere: change an entity, then
*place* it; placing is idempotent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from sortedcontainers import SortedSet

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import Attempt, Job, Program, SessionKey, Task, Worker
from loopline_master.core.kernel.index.attempts import Attempts, ReadySet, Slots, SpeedOctaves
from loopline_master.core.kernel.index.job_order import Dependents, HoldIndex, VirtualTime
from loopline_master.core.kernel.index.job_sessions import JobSessions
from loopline_master.core.kernel.index.requirements import RequirementClass, RequirementIndex
from loopline_master.core.kernel.index.sorted_collections import IntervalSet, Ranking, first_after
from loopline_master.core.kernel.index.units import NO_UNITS, Units
from loopline_master.core.kernel.runs import ProgramKey
from loopline_shared.model import JobState, Order, OrderWithin, TaskId

Standing = tuple[bool, bool, float | None, bool]
"""A job's ``paused``, ``stalled``, ``starved_since`` and ``overdrawn``."""
Signature = tuple[Standing | bool | float | None, ...]

_HOLD, _GRID = Order.HOLD, OrderWithin.GRID
_NOBODY = HoldIndex()
_READY, _OPEN = 1, 2
"""Bits of a job's places: in ``ready`` and its companions, and in ``open`` and ``runnable``."""


@dataclass(slots=True)
class UserJobs:
    """Unfinished jobs by user, including jobs outside the grid: users have limits of unfinished work."""

    counts: dict[str, tuple[int, int, int]] = field(default_factory=dict)  # of jobs, tasks, and bytes of specs
    entered: set[int] = field(default_factory=set)  # numbers of the counted jobs
    sessions: Counter[SessionKey] = field(default_factory=Counter)  # number of their jobs; a session counts as one

    def place(self, job: Job) -> None:
        """Enter a job as it is now; a job that is over leaves."""
        number = job.id
        if (number in self.entered) is not job.is_over:  # the usual case: it was entered, and is not over
            return
        sign = -1 if job.is_over else 1
        if job.is_over:
            self.entered.discard(number)
        else:
            self.entered.add(number)
        jobs = sign if job.session is None else self._count_in_session(job.session, sign)
        all_jobs, all_tasks, all_bytes = self.of(job.owner)
        if all_tasks + sign * job.task_count:
            more = sign * job.task_count, sign * job.spec_bytes
            self.counts[job.owner] = all_jobs + jobs, all_tasks + more[0], all_bytes + more[1]
        else:
            del self.counts[job.owner]

    def _count_in_session(self, session: SessionKey, sign: int) -> int:
        """Count a job of a session; return the change in its user's number of jobs, where a session counts as one."""
        self.sessions[session] += sign
        if self.sessions[session] == 0:
            del self.sessions[session]
            return -1
        return int(sign > 0 and self.sessions[session] == 1)

    def of(self, owner: str) -> tuple[int, int, int]:
        """Return the user's number of jobs, of tasks, and of bytes of specs."""
        return self.counts.get(owner, (0, 0, 0))


@dataclass(slots=True)
class Index:
    turn: str | None = None  # user in turn, while a policy plans for this user alone
    live: dict[int, Job] = field(default_factory=dict)  # by arrival, and in this order
    in_grid: dict[int, tuple[int, str]] = field(default_factory=dict)  # live job: arrival, exemption or ""
    ready_sets: dict[int, ReadySet] = field(default_factory=dict)  # by job
    sessions: JobSessions = field(default_factory=JobSessions)
    ready: dict[RequirementClass, IntervalSet] = field(default_factory=dict)  # turns of jobs with a task to start
    open: dict[RequirementClass, IntervalSet] = field(default_factory=dict)  # ... to start or to replicate
    runnable: IntervalSet = field(default_factory=IntervalSet)  # all turns in ``open``
    places: dict[int, int] = field(default_factory=dict)  # by job: bits of the sets above that have it ...
    signatures: dict[int, Signature] = field(default_factory=dict)  # ... and the other inputs of its places
    by_shortest_task: Ranking[int, tuple[float, int]] = field(default_factory=Ranking)
    """Jobs with a task to start: (size of their smallest task, or 0; job)."""
    hold: HoldIndex = field(default_factory=HoldIndex)  # for all jobs
    holds: dict[str, HoldIndex] = field(default_factory=dict)  # by user: for their jobs
    virtual_time: VirtualTime = field(default_factory=VirtualTime)
    blockers: dict[int, int] = field(default_factory=dict)  # held job: arrival of one of its blockers
    blocked: dict[int, set[int]] = field(default_factory=dict)  # the reverse
    released: set[int] = field(default_factory=set)  # arrivals of jobs with only their last step left, not held
    complete: IntervalSet = field(default_factory=IntervalSet)  # arrivals of computed jobs that are not held
    failing: set[int] = field(default_factory=set)  # live jobs that have reached their limit of failed tasks
    attempts: Attempts = field(default_factory=Attempts)
    voters: dict[TaskId, frozenset[str]] = field(default_factory=dict)  # by open task: workers with a result
    slots: Slots = field(init=False)
    octaves: SpeedOctaves = field(default_factory=SpeedOctaves)
    leases: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)  # (until, worker)
    starving: Ranking[int, tuple[float, int]] = field(default_factory=Ranking)  # (since, job), not yet stalled
    programs: Mapping[ProgramKey, Program] = field(default_factory=dict)  # owned by State: past runs
    program_use: Ranking[ProgramKey, tuple[float, ProgramKey]] = field(
        default_factory=Ranking
    )  # longest unused first
    requirements: RequirementIndex = field(default_factory=RequirementIndex)
    parallel: SortedSet[int] = field(default_factory=SortedSet)  # arrivals of jobs with a gang to begin, held or not
    users: UserJobs = field(default_factory=UserJobs)
    delayed: Ranking[TaskId, tuple[float, TaskId]] = field(default_factory=Ranking)  # open tasks with a ``retry_at``
    dependents: Dependents = field(default_factory=Dependents)  # jobs outside the grid, waiting for others

    def __post_init__(self) -> None:
        self.slots = Slots(self.attempts)

    @classmethod
    def build(
        cls,
        workers: Iterable[Worker],
        jobs: Iterable[Job],
        tasks: Iterable[Task],
        attempts: Iterable[Attempt],
        fresh: Mapping[int, IntervalSet],
        units: Units = NO_UNITS,
        reserved: Set[str] = frozenset(),
    ) -> Index:
        """Return the index of these entities, built from scratch. ``reserved``: see ``Slots``."""
        index = cls()
        index.requirements.count_by(units)
        by_id, by_name = {job.id: job for job in jobs}, {worker.name: worker for worker in workers}
        index.ready_sets = {job_id: ReadySet() for job_id in by_id}
        for worker in by_name.values():
            index.requirements.place_worker(worker)
        for attempt in attempts:
            index.attempts.place(attempt)
        index.slots.reserved |= reserved
        for worker in by_name.values():
            index.place_worker(worker)
            index.octaves.place(worker)
            index.slots.place(worker)
        for task in tasks:
            index.ready_sets[task.job].place(task, by_id[task.job], index.attempts)
            index.place_voters(task)
            index.place_delay(task)
        for job in sorted(by_id.values(), key=lambda job: job.arrival):
            index.place_job(job, fresh[job.id])
        return index

    def stays(self, job: Job, fresh: IntervalSet) -> bool:
        """True if a changed job keeps all its places, because only its counts can have changed.

        Several of its tasks run and several are fresh, and it was not paused, resumed or starved since it was placed.
        A job with a budget for replicas or a limit of failures must be placed.
        """
        return (
            job.running > 1
            and fresh.count > 1
            and job.budget_s is None
            and job.most_failed is None
            and self.signatures[job.id][0] == (job.paused, job.stalled, job.starved_since, job.overdrawn)
        )

    def place_job(self, job: Job, fresh: IntervalSet) -> bool:
        """Enter a job as it is now. Return True if its place may have changed.

        A job that is over leaves everything but its ready set.
        """
        entry, at_last = None, False
        if job.is_live:
            signature, at_last = self._signature_of(job, fresh), _is_at_last(job, fresh)
            if signature == self.signatures.get(job.id) and not at_last:
                return False  # the usual case: one task more or less
            entry, self.signatures[job.id] = (job.arrival, job.exempt_reason), signature
        self.users.place(job)
        if job.waiting_for or job.id in self.dependents.jobs:
            self.dependents.place(job.id, job.waiting_for if job.state is JobState.WAITING else ())
        if entry != self.in_grid.get(job.id):
            self._place_in_grid(job, entry)
        self._place_blocker(job, at_last)
        self._place_startable(job, fresh)
        if job.most_failed is not None:
            _toggle(self.failing, job.id, job.is_live and job.is_failing)
        if entry is None and job.session is not None:
            self._drop_from_session(job)
        if job.starved_since is not None or job.id in self.starving.keys:
            starving = job.starved_since is not None and job.is_live and not (job.running or job.is_computed)
            since = (job.starved_since or 0.0, job.id)
            self.starving.place(job.id, since if starving and not job.stalled else None)
        return True

    def rekey(self, jobs: Iterable[tuple[Job, IntervalSet]]) -> None:
        """Enter live jobs, each with its fresh tasks, into their requirement classes as if these were new.

        All of them leave before the first enters again. Otherwise a class could keep outdated counts of units.
        """
        for job, _ in jobs:
            self._enter_places(job, 0)
            self.requirements.drop_job(job)
        for job, fresh in jobs:
            self.requirements.add_job(job)
            self._place_startable(job, fresh)

    def may_complete(self, job: Job) -> bool:
        """Enter a computed job as complete and nowhere else, because it completes before the next lookup.

        False if it is not computed, or may have to wait for its delivery: then it is placed like any other job.
        """
        if job.order is Order.DELIVER or not (job.is_computed and job.is_live and job.id in self.signatures):
            return False
        self.complete.add(job.arrival)
        self.failing.discard(job.id)
        return True

    def place_voters(self, task: Task) -> None:
        """Enter the workers that have brought a result of a task, as it is now."""
        if task.votes and task.is_open:
            self.voters[task.id] = frozenset(vote.worker for vote in task.votes)
        else:
            self.voters.pop(task.id, None)

    def place_delay(self, task: Task) -> None:
        """Enter the time when a task may be tried again, as it is now."""
        self.delayed.place(task.id, (task.retry_at, task.id) if task.retry_at and task.is_open else None)

    @property
    def next_retry_at(self) -> float | None:
        """Earliest time when a delayed task may be tried again; None if no task is delayed."""
        return self.delayed.order[0][0] if self.delayed.order else None

    def place_worker(self, worker: Worker) -> None:
        """Enter a worker as it is now, except into ``requirements``, which reports its changes itself."""
        name = worker.name
        at_work = worker.session is not None or self.attempts.is_occupied(name)
        at_work = at_work or (worker.facts.transient and not self.attempts.is_fenced(name))  # it is to be forgotten
        self.leases.place(name, (worker.given_up_at, name) if at_work else None)

    def drop_worker(self, name: str) -> None:
        """Drop a worker that was entered as away."""
        self.leases.place(name, None)
        self.octaves.drop(name)

    def hold_over(self, job: Job) -> HoldIndex:
        """Return the index of jobs that may hold this job: all jobs, or those of its user."""
        return self.hold if job.within is _GRID else self.holds.get(job.owner, _NOBODY)

    def is_held(self, job: Job) -> bool:
        """True if the job's last fresh task, or its delivery, is held."""
        return job.id in self.blockers

    def is_ready(self, job: Job) -> bool:
        """True if the job has a task to start."""
        return self.places.get(job.id, 0) & _READY != 0

    def first_of_many(
        self,
        family: Mapping[RequirementClass, IntervalSet],
        takes: Callable[[RequirementClass], bool],
        served: Callable[[], Iterable[RequirementClass]] | None,
        after: int,
    ) -> int | None:
        """Return the first turn after ``after`` of a family with many classes, with a class that ``takes`` accepts.

        ``served``: returns all classes that it accepts; None if each must be asked.

        Jobs are checked in their order, because where many different jobs wait, the next match is usually among the
        first. If it is not, each class is asked, which takes about as long as checking a quarter as many jobs.
        """
        keys, place, turn = self.requirements.keys, _READY if family is self.ready else _OPEN, after
        for found in islice(self.runnable.after(after), len(family) // 4 + 1):
            turn = found
            if found in self.sessions.at:
                session = self.sessions.at[found]
                if any(takes(key) for key in (session.ready if place is _READY else session.open)):
                    return found
                continue
            job = self.live[found].id
            if self.places[job] & place and takes(keys[job]):
                return found
        if not self.runnable.starts or turn >= self.runnable.stops[-1] - 1:
            return None
        wanted = (
            [key for key in family if takes(key)] if served is None else [key for key in served() if key in family]
        )
        return first_after(map(family.__getitem__, wanted), turn)

    def on_worker(self, task: TaskId, worker: str) -> bool:
        """True if an attempt of the task is on this worker, or has voted there.

        A lost attempt does not count: the worker's first Report says whether it still exists.
        """
        return self.attempts.is_on(task, worker) or (task in self.voters and worker in self.voters[task])

    def is_stuck(self, job: Job, fresh: IntervalSet) -> bool:
        """True if the job needs more votes, but every able worker has already voted on its tasks."""
        ready_set = self.ready_sets[job.id]
        if job.running or fresh or ready_set.to_retry or not ready_set.under_replicated:
            return False
        able = self.requirements.able[self.requirements.key_of(job)]
        return all(able <= self.voters.get(job.task_id(number), frozenset()) for number in ready_set.under_replicated)

    def to_replicate(self, job: Job) -> IntervalSet:
        """Return the job's tasks that may get one more replica."""
        ready_set = self.ready_sets[job.id]
        return ready_set.replicable if self.may_replicate(job) else ready_set.under_replicated

    def needs_replica(self, job: Job) -> IntervalSet:
        """Return its tasks that need a replica: all their attempts are frozen, or a quorum needs another result."""
        ready_set = self.ready_sets[job.id]
        return ready_set.stalled if self.may_replicate(job) else ready_set.under_replicated

    def may_replicate(self, job: Job) -> bool:
        """True if the job's budget for replicas is not spent."""
        if job.budget_s is None:
            return True  # the usual case
        return measure.budget_left(job, *self.attempts.reserved.get(job.id, (0, 0)))

    def _place_in_grid(self, job: Job, entry: tuple[int, str] | None) -> None:
        """Enter a job that comes into the grid, leaves it, or begins or ceases to hold others."""
        if entry is not None:
            self.in_grid[job.id] = entry
            self.live[job.arrival] = job
            if job.session is None:
                self.virtual_time.put(job.id, job.tag)
            else:
                self.virtual_time.put(-job.turn, self.sessions.place(job).last_tag)
            self.requirements.add_job(job)
        else:
            del self.in_grid[job.id], self.signatures[job.id]
            del self.live[job.arrival]
            self.virtual_time.drop(job.id)
            self.requirements.drop_job(job)
        if entry is not None and job.has_claim:
            self.hold.put(job.arrival, job.weight)
            self.holds.setdefault(job.owner, HoldIndex()).put(job.arrival, job.weight)
        else:
            self.hold.drop(job.arrival)
            if (own := self.holds.get(job.owner)) is not None:
                own.drop(job.arrival)
                if not own:
                    del self.holds[job.owner]

    def _drop_from_session(self, job: Job) -> None:
        """Drop a job that has left the grid from its session, which virtual time counts as one job."""
        session = self.sessions.drop(job)
        if session is None:
            self.virtual_time.drop(-job.turn)
        else:
            self.virtual_time.put(-session.turn, session.last_tag)

    def _signature_of(self, job: Job, fresh: IntervalSet) -> Signature:
        """Return the inputs of a live job's places; the first are independent of its tasks.

        Once the job is at its last task, its places depend on other jobs, too.
        """
        ready_set = self.ready_sets[job.id]
        stalled, replicable = ready_set.stalled, ready_set.replicable
        if job.budget_s is not None and not self.may_replicate(job):
            stalled = replicable = ready_set.under_replicated
        return (
            (job.paused, job.stalled, job.starved_since, job.overdrawn), job.arrival, job.departure, job.running > 0,
            job.succeeded + job.failed == job.task_count, job.is_failing,
            not fresh.starts, not ready_set.to_retry.starts, not stalled.starts, not replicable.starts,
        )  # fmt: skip

    def _place_blocker(self, job: Job, at_last: bool) -> None:
        old = self.blockers.pop(job.id, None)
        if old is not None:
            self.blocked[old].discard(job.id)
            if not self.blocked[old]:
                del self.blocked[old]
        arrival, new = job.arrival, self.hold_over(job).blocker(job.arrival, job.weight) if at_last else None
        if at_last and new is None:
            self.released.add(arrival)
        else:
            self.released.discard(arrival)
        if job.is_computed and job.is_live and new is None:
            self.complete.add(arrival)
        elif self.complete.count:
            self.complete.discard(arrival)
        if new is not None:
            self.blockers[job.id] = new
            self.blocked.setdefault(new, set()).add(job.id)

    def _place_startable(self, job: Job, fresh: IntervalSet) -> None:
        """Enter a job into the lookups of jobs with a task to start or to replicate."""
        may_run, ready_set = job.is_live and not job.paused, self.ready_sets[job.id]
        if job.nodes > 1:  # a policy proposes one worker for a task, so gangs are not its concern
            _toggle(self.parallel, job.arrival, may_run and bool(ready_set.to_retry or fresh))
            return
        self._enter_places(job, self._places_of(job, ready_set, fresh) if may_run else 0)

    def _enter_places(self, job: Job, places: int) -> None:
        changed = places ^ self.places.get(job.id, 0)
        if not changed:
            return
        key, turn = self.requirements.key_of(job), job.turn
        if places:
            self.places[job.id] = places
        else:
            del self.places[job.id]
        if changed & _READY:
            self.by_shortest_task.place(job.id, (job.sweep.least, job.id) if places & _READY else None)
        if job.session is not None:
            self._place_in_session(job, key, places, changed)
            return
        if changed & _READY:
            _toggle_under(self.ready, key, turn, places & _READY)
        if changed & _OPEN:
            _toggle_under(self.open, key, turn, places & _OPEN)
            self.runnable.toggle(turn, places & _OPEN)

    def _places_of(self, job: Job, ready_set: ReadySet, fresh: IntervalSet) -> int:
        if ready_set.to_retry.count or self.needs_replica(job).count or (fresh.count and not self.is_held(job)):
            return _READY | _OPEN
        return _OPEN if self.to_replicate(job).count else 0

    def _place_in_session(self, job: Job, key: RequirementClass, places: int, changed: int) -> None:
        """Enter a job into its session's lookups, and the session's turn while it has any such job."""
        session, turn = self.sessions.at[job.turn], job.turn
        if changed & _READY:
            _toggle_under(session.ready, key, job.arrival, places & _READY)
            _toggle_under(self.ready, key, turn, key in session.ready)
        if changed & _OPEN:
            _toggle_under(session.open, key, job.arrival, places & _OPEN)
            _toggle_under(self.open, key, turn, key in session.open)
            self.runnable.toggle(turn, bool(session.open))


def _is_at_last(job: Job, fresh: IntervalSet) -> bool:
    """True if only the held step is left: to start the last task (order hold), or to deliver (order deliver)."""
    if job.order is _HOLD:
        return fresh.count == 1
    return job.order is Order.DELIVER and job.is_computed


def _toggle(members: SortedSet[int] | set[Any] | IntervalSet, member: Any, present: bool | int) -> None:
    if present:
        members.add(member)
    else:
        members.discard(member)


def _toggle_under(
    families: dict[RequirementClass, IntervalSet], key: RequirementClass, arrival: int, present: int
) -> None:
    """Add a job to the family of this key, or drop it; an empty family is removed."""
    family = families.get(key)
    if present:
        if family is None:
            family = families[key] = IntervalSet()
        family.add(arrival)
    elif family is not None:
        family.discard(arrival)
        if not family.starts:
            del families[key]
