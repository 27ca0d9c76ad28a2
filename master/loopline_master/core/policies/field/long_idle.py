"""LongIdle (Anglano and Canonico, 2008): the job whose task has been without any attempt for longest.

A task that was never started has been idle since its job arrived. So while tasks wait, jobs are served by arrival.
When none waits, the job is chosen by its tasks' waiting time: the job whose running task was idle for longest before
its first start is given a replica. The paper also counts the time between a task's attempts. Rows do not record it,
so here a lost task counts as idle since its job arrived, which puts it first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_master.core.kernel.entities import Job, Task, Worker
from loopline_master.core.kernel.index.sorted_collections import LongRanking
from loopline_master.core.policies.field.wqr import first_start
from loopline_master.core.policies.policy import Placement, View, WorkerFirst, register
from loopline_shared.model import TaskId

_Waited = tuple[float, TaskId]
"""(seconds before its first start, negated; task)."""


@register("long-idle", live=False)
class LongIdle(WorkerFirst):
    """The waiting task of the job that arrived first; else a replica of the running task that waited longest."""

    replicates = True

    def __init__(self, view: View) -> None:
        self.index: LongIdleIndex = LongIdleIndex(view)

    def next_task(self, view: View, worker: Worker) -> Placement | None:
        return first_start(view, worker) or (self._replica(view, worker) if view.is_free(worker) else None)

    def _replica(self, view: View, worker: Worker) -> Placement | None:
        for _, task in self.index.waited.order:
            if view.accepts(view.jobs[task.job], task.task, worker):
                return Placement(task.job, task.task, worker.name)
        return None


@dataclass(slots=True)
class LongIdleIndex:
    """Running tasks with room for a replica, by the wait before their first start, the longest first."""

    view: View = field(compare=False, repr=False)
    waited: LongRanking[TaskId, _Waited] = field(default_factory=LongRanking)

    def __post_init__(self) -> None:
        for task in self.view.tasks.values():
            self.place_task(task)

    def place_worker(self, worker: Worker) -> None:
        """Change nothing: a task's waiting time is the same for all workers."""

    def place_task(self, task: Task) -> bool:
        job = self.view.jobs[task.job]
        may_be_replicated = job.is_live and task.number in self.view.index.ready_sets[job.id].replicable
        waited_s = (task.started_at or 0.0) - (job.entered_at or job.submitted_at)
        self.waited.place(task.id, (-waited_s, task.id) if may_be_replicated else None)
        return False

    def place_job(self, job: Job) -> None:
        """Forget the tasks of a job that is over."""
        if not job.is_live:
            for number in range(1, job.task_count + 1):
                self.waited.place(job.task_id(number), None)
