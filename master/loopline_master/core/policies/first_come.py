"""First come, first served (the no-passing paper, section 2.1): tasks start in the order of submission.

No task has replicas.
"""

from __future__ import annotations

from loopline_master.core.kernel.entities import Worker
from loopline_master.core.policies.policy import Placement, View, WorkerFirst, register


@register("first-come")
class FirstCome(WorkerFirst):
    """The first task to start of the first job."""

    def next_task(self, view: View, worker: Worker) -> Placement | None:
        for job in view.jobs_to_start(worker):
            task = view.first_startable(job, worker)
            if task is not None:
                return Placement(job.id, task, worker.name)
            if not view.is_free(worker):
                return None  # no job passes the first one in a worker's queue
        return None
