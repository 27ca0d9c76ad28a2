"""The scheduler's memory: entities, their index, and the effects being gathered. Every change of an entity ends
in one of the ``save_*`` methods, which note its row for the store; ``settle`` then places anew, once, all that an
event or a wish has changed. Attempts alone are placed at once: the verbs of lifecycle.py look them up.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from loopline_master.core.effects import Effects
from loopline_master.core.entities import Attempt, Grid, Job, Program, Task, Worker
from loopline_master.core.estimates.program_key import ProgramKey
from loopline_master.core.events import SchedulerSettings
from loopline_master.core.index.index import Index
from loopline_master.core.index.intervals import Ranges
from loopline_master.core.index.ready_set import Pool
from loopline_master.core.snapshot import Snapshot
from loopline_shared.model import AttemptId, TaskId


class PolicyIndex(Protocol):
    """A policy's own index, made from a View for what is not in Index, and told of the workers placed anew."""

    def place_worker(self, worker: Worker) -> None: ...


@runtime_checkable
class JobIndex(PolicyIndex, Protocol):
    """One that is told of tasks and jobs, too."""

    def place_task(self, task: Task) -> None: ...
    def place_job(self, job: Job) -> None: ...


class State:
    """Holds no decision: it keeps memory, index and effects in step with one another."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.settings = SchedulerSettings()
        self.ahead_s = 0.0  # expected work that may wait at a worker, for each of its slots
        self.grid: Grid = snapshot.grid
        self.workers: dict[str, Worker] = {worker.name: worker for worker in snapshot.workers}
        self.jobs: dict[int, Job] = {job.id: job for job in snapshot.jobs}
        self.tasks: dict[TaskId, Task] = {task.id: task for task in snapshot.tasks}
        self.programs: dict[ProgramKey, Program] = {program.key: program for program in snapshot.programs}
        self.attempts: dict[AttemptId, Attempt] = {attempt.id: attempt for attempt in snapshot.attempts}
        self.fresh: dict[int, Ranges] = {  # by job: the tasks never started
            job.id: _complement(Ranges(snapshot.started.get(job.id, ())), job.task_count) for job in snapshot.jobs
        }
        self.index = self.rebuilt_index()
        self.effects = Effects(self.grid)
        self.own: PolicyIndex | None = None  # of the policy in force, if it needs one
        self.own_of_jobs: JobIndex | None = None  # ... the same, where jobs matter to it
        self.remembered: dict[str, object] = {}  # what policies worked out from who is there (View.remember)
        self.is_due = False  # a job's last task is over: to be settled before anything else is taken in
        self._moved_workers: dict[str, Worker] = {}  # saved, but not yet placed anew in the index
        self._busied: dict[str, Worker] = {}  # ... or others, as to what they have in hand and could take
        self._queueing: dict[str, Worker] = {}  # of all these, whose queue may stand elsewhere
        self._moved_jobs: dict[int, Job] = {}
        self._moved_tasks: dict[TaskId, Task] = {}

    def rebuilt_index(self) -> Index:
        """The index as it must be for the entities as they are."""
        index = Index.build(
            self.workers.values(), self.jobs.values(), self.tasks.values(), self.attempts.values(), self.fresh
        )
        for program in self.programs.values():
            index.programs.place(program.key, (program.used_at, program.key))
        return index

    def govern(self, own: PolicyIndex | None) -> None:
        """A policy comes into force, and its index."""
        self.own, self.own_of_jobs = own, own if isinstance(own, JobIndex) else None

    @property
    def now(self) -> float:
        return self.grid.now

    def next_sequence(self) -> int:
        self.grid.sequence += 1
        return self.grid.sequence

    def save_worker(self, worker: Worker) -> None:
        self.workers[worker.name] = worker
        self.effects.workers[worker.name] = worker
        self._moved_workers[worker.name] = worker
        if not self.index.demand.knows(worker):
            self.remembered.clear()
        for key in self.index.demand.place_worker(worker):
            for job_id in sorted(self.index.demand.jobs[key]):
                self._starve_or_feed(self.jobs[job_id])

    def note_load(self, worker: Worker) -> None:
        """What it says of itself, or has shown, is all that has changed of it."""
        self.effects.workers[worker.name] = worker
        self._busied[worker.name] = worker

    def save_job(self, job: Job) -> None:
        self.effects.jobs[job.id] = self._moved_jobs[job.id] = job
        if job.succeeded + job.failed == job.task_count:
            self.is_due = True

    def count_job(self, job: Job) -> None:
        """That one more of its tasks has begun is all that has changed of it: it stands where it stood, but near its
        beginning and its end. (A policy's own index may look at anything; replicas use up a budget.)
        """
        self.effects.jobs[job.id] = job
        is_watched = self.own_of_jobs is not None or job.budget_s is not None
        if is_watched or job.running <= 1 or self.fresh[job.id].count <= 1:
            self.save_job(job)

    def save_task(self, task: Task) -> None:
        self.tasks[task.id] = self.effects.tasks[task.id] = self._moved_tasks[task.id] = task

    def save_attempt(self, attempt: Attempt) -> None:
        """Also has its task placed anew, which it may have made one to replicate, or no longer."""
        number, worker = attempt.id, self.workers[attempt.worker]
        self.effects.attempts[number] = attempt
        if attempt.ended_at is None:
            self.attempts[number] = attempt
        else:
            self.attempts.pop(number, None)
        if self.index.attempts.place(attempt):
            self._moved_tasks[attempt.task_id] = self.tasks[attempt.task_id]
        if worker.session is None:  # whether it has a lease may depend on what it has in hand
            self._moved_workers[worker.name] = worker
        else:
            self._busied[worker.name] = worker

    def save_program(self, program: Program) -> None:
        """Also forgets those that were used longest ago, where there are too many."""
        key, ranking = program.key, self.index.programs
        self.programs[key] = self.effects.programs[key] = program
        ranking.place(key, (program.used_at, key))
        order = ranking.order
        while len(ranking.keys) > self.settings.max_programs:
            oldest = order[0][1]
            self.index.programs.place(oldest, None)
            self.effects.programs.pop(oldest, None)
            self.effects.forgotten.append(oldest)
            del self.programs[oldest]

    def admit(self, job: Job, started: Ranges | None = None) -> None:
        """A job enters (or enters again), the grid or a chain. ``started``: tasks that are not fresh."""
        self.jobs[job.id] = job
        self.fresh[job.id] = _complement(started or Ranges(), job.task_count)
        self.index.pools[job.id] = Pool()
        self.save_job(job)
        if job.is_live:
            self.index.demand.add_job(job)
            self._starve_or_feed(job)

    def settle(self) -> None:
        """Place anew, once, whatever was saved since the last time: what comes next finds it in the index."""
        if self._moved_workers:
            for worker in self._moved_workers.values():
                self.index.place_worker(worker)
            self._busied |= self._moved_workers
            self._moved_workers.clear()
        if self._busied:
            self._place_slots()
        if self._moved_tasks:
            self._place_tasks()
        self.is_due = False
        while self._moved_jobs:
            moved, self._moved_jobs = self._moved_jobs, {}
            for job in moved.values():
                if job.id in self.jobs:  # not one that was forgotten meanwhile
                    self._place_job(job)

    def settle_queues(self) -> None:
        """The same for what waits at workers; apart, because who ends a task mostly has another one by then."""
        for worker in self._queueing.values():
            self.index.room.place_queue(worker, self.index.attempts)
        self._queueing.clear()

    def gather(self) -> Effects:
        """The effects so far; a new gathering begins."""
        gathered, self.effects = self.effects, Effects(self.grid)
        return gathered

    def _place_slots(self) -> None:
        room, attempts, own = self.index.room, self.index.attempts, self.own
        for worker in self._busied.values():
            room.place_slots(worker, attempts)
            if own is not None:
                own.place_worker(worker)
        self._queueing |= self._busied
        self._busied.clear()

    def _place_tasks(self) -> None:
        index, own = self.index, self.own_of_jobs
        for task in self._moved_tasks.values():
            job, pool = self.jobs[task.job], index.pools[task.job]
            if pool.place(task, job, index.attempts) or own is not None or job.budget_s is not None:
                self._moved_jobs[job.id] = job
            if task.votes or index.voters:
                index.place_voters(task)
                if task.votes and job.is_live:
                    self._starve_or_feed(job)
            if own is not None:
                own.place_task(task)
            if task.number not in pool.kept:
                self.tasks.pop(task.id, None)
        self._moved_tasks.clear()

    def _place_job(self, job: Job) -> None:
        """Also lets those go, or keeps those back, whom the job now holds no longer, or again."""
        standing = self.index.standing.get(job.id)
        is_elsewhere = self.index.place_job(job, self.fresh[job.id])
        if self.own_of_jobs is not None:
            self.own_of_jobs.place_job(job)
        if not is_elsewhere and job.departure is None:
            return
        was_exempt = standing is not None and standing[1]
        if standing != self.index.standing.get(job.id):
            self.remembered.clear()
        if self.index.is_held(job) and job.held_at is None:
            job.held_at = self.now
            self.effects.jobs[job.id] = job
        if not job.is_live or job.is_exempt:
            for watcher in sorted(self.index.watchers.get(job.arrival, ())):
                self._moved_jobs[watcher] = self.jobs[watcher]
        elif was_exempt:
            for arrival in self.index.let_go.irange(job.arrival, inclusive=(False, False)):
                later = self.index.live[arrival]
                self._moved_jobs[later.id] = later
        self._forget_if_over(job)

    def _starve_or_feed(self, job: Job) -> None:
        """Note since when no available worker could run the job, or that one can again."""
        starved = self.index.demand.is_starved(job) or self.index.is_stuck(job, self.fresh[job.id])
        if starved != (job.starved_since is not None):
            job.starved_since = self.now if starved else None
            job.stalled = False
            self.save_job(job)

    def _forget_if_over(self, job: Job) -> None:
        """An ended job stays only until its last attempt has been cancelled."""
        if job.is_over and job.id in self.jobs and not self.index.pools[job.id].kept:
            del self.jobs[job.id], self.fresh[job.id], self.index.pools[job.id]


def _complement(started: Ranges, task_count: int) -> Ranges:
    """The tasks 1 to ``task_count`` that are not in ``started``."""
    edges = [1, *(edge for pair in started.pairs() for edge in pair), task_count + 1]
    return Ranges(zip(edges[::2], edges[1::2], strict=True))
