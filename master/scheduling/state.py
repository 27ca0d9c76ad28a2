"""The scheduler's memory: entities, their index, and the effects being gathered. Every change of an entity ends
in one of the ``save_*`` methods, which place it anew and note its row for the store.
"""

from __future__ import annotations

from master.scheduling.effects import Effects
from master.scheduling.events import SchedulerSettings
from master.scheduling.index import Index, Pool
from master.scheduling.model import Attempt, Grid, Job, Task, Worker
from master.scheduling.ranges import Ranges
from master.scheduling.snapshot import Snapshot
from shared.model import AttemptId, TaskId


class State:
    """Holds no decision: it keeps memory, index and effects in step with one another."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.settings = SchedulerSettings()
        self.grid: Grid = snapshot.grid
        self.workers: dict[str, Worker] = {worker.name: worker for worker in snapshot.workers}
        self.jobs: dict[int, Job] = {job.id: job for job in snapshot.jobs}
        self.tasks: dict[TaskId, Task] = {task.id: task for task in snapshot.tasks}
        self.attempts: dict[AttemptId, Attempt] = {attempt.id: attempt for attempt in snapshot.attempts}
        self.fresh: dict[int, Ranges] = {  # by job: the tasks never started
            job.id: _complement(Ranges(snapshot.started.get(job.id, ())), job.task_count) for job in snapshot.jobs
        }
        self.index = self.rebuilt_index()
        self.effects = Effects(self.grid)

    def rebuilt_index(self) -> Index:
        """The index as it must be for the entities as they are."""
        return Index.build(
            self.workers.values(), self.jobs.values(), self.tasks.values(), self.attempts.values(), self.fresh
        )

    @property
    def now(self) -> float:
        return self.grid.now

    def next_sequence(self) -> int:
        self.grid.sequence += 1
        return self.grid.sequence

    def save_worker(self, worker: Worker) -> None:
        self.workers[worker.name] = worker
        self.effects.workers[worker.name] = worker
        self.index.place_worker(worker)
        for key in self.index.demand.place_worker(worker):
            for job_id in sorted(self.index.demand.jobs[key]):
                self._starve_or_feed(self.jobs[job_id])

    def save_job(self, job: Job) -> None:
        """Also lets those go, or keeps those back, whom the job now holds no longer, or again."""
        self.effects.jobs[job.id] = job
        was_exempt = job.arrival in self.index.exempt
        self._place_job(job)
        if not job.is_live or job.is_exempt:
            for watcher in sorted(self.index.watchers.get(job.arrival, ())):
                self._place_job(self.jobs[watcher])
        elif was_exempt:
            for arrival in list(self.index.let_go.irange(job.arrival, inclusive=(False, False))):
                self._place_job(self.index.live[arrival])
        self._forget_if_over(job)

    def save_task(self, task: Task) -> None:
        self.tasks[task.id] = task
        self.effects.tasks[task.id] = task
        self._place_task(task)

    def save_attempt(self, attempt: Attempt) -> None:
        """Also places its task, which it may have made one to replicate, or no longer."""
        self.effects.attempts[attempt.id] = attempt
        self._place_attempt(attempt)
        self._place_task(self.tasks[attempt.task_id])

    def save_together(self, job: Job, task: Task, attempt: Attempt) -> None:
        """A change that concerns all three of a live job; each is placed once."""
        self.effects.jobs[job.id] = job
        self.effects.tasks[task.id] = self.tasks[task.id] = task
        self.save_attempt(attempt)

    def admit(self, job: Job, started: Ranges | None = None) -> None:
        """A job enters (or enters again): from now on it counts. ``started``: tasks that are not fresh."""
        self.jobs[job.id] = job
        self.fresh[job.id] = _complement(started or Ranges(), job.task_count)
        self.index.pools[job.id] = Pool()
        self.save_job(job)
        self._starve_or_feed(job)

    def gather(self) -> Effects:
        """The effects so far; a new gathering begins."""
        gathered, self.effects = self.effects, Effects(self.grid)
        return gathered

    def _place_attempt(self, attempt: Attempt) -> None:
        if attempt.is_over:
            self.attempts.pop(attempt.id, None)
        else:
            self.attempts[attempt.id] = attempt
        self.index.place_attempt(attempt, self.workers[attempt.worker])

    def _place_job(self, job: Job) -> None:
        self.index.place_job(job, self.fresh[job.id])
        if self.index.is_held(job) and job.held_at is None:
            job.held_at = self.now
            self.effects.jobs[job.id] = job

    def _place_task(self, task: Task) -> None:
        job = self.jobs[task.job]
        self.index.place_task(task, job.max_replicas)
        self._place_job(job)
        if task.number not in self.index.pools[job.id].kept:
            self.tasks.pop(task.id, None)
        self._forget_if_over(job)

    def _starve_or_feed(self, job: Job) -> None:
        """Note since when no available worker could run the job, or that one can again."""
        starved = self.index.demand.is_starved(job)
        if starved != (job.starved_since is not None):
            job.starved_since = self.now if starved else None
            job.stalled = False
            self.save_job(job)

    def _forget_if_over(self, job: Job) -> None:
        """An ended job stays only until its last attempt has been cancelled."""
        if not job.is_live and job.id in self.jobs and not self.index.pools[job.id].attempts:
            for number in self.index.pools[job.id].kept:
                self.tasks.pop(TaskId(job.id, number), None)
            del self.jobs[job.id], self.fresh[job.id], self.index.pools[job.id]


def _complement(started: Ranges, task_count: int) -> Ranges:
    """The tasks 1 to ``task_count`` that are not in ``started``."""
    edges = [1, *(edge for pair in started.pairs() for edge in pair), task_count + 1]
    return Ranges(zip(edges[::2], edges[1::2], strict=True))
