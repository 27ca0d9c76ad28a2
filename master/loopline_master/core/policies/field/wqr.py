"""WQR: work queue with replication (Paranhos, Cirne and Brasileiro, 2003; WQR-FT: Anglano and Canonico, 2005).

Tasks start in the order of submission. When none is left to start, running ones are replicated, up to the threshold
(``max_replicas``). It knows neither sizes nor speeds: a task on a slow machine is rescued by its replica.

``start_of`` and ``replica_of`` are its two halves for one job: the policies of this folder that choose among jobs use
them within the chosen job.
"""

from __future__ import annotations

from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.policies.policy import Placement, View, WorkerFirst, register


@register("wqr", live=False)
class WorkQueueReplication(WorkerFirst):
    """The first waiting task of the first job; else the next task to replicate, of the first job."""

    replicates = True

    def next_task(self, view: View, worker: Worker) -> Placement | None:
        return first_start(view, worker) or first_replica(view, worker)


def first_start(view: View, worker: Worker, after: int = 0) -> Placement | None:
    """Return a task to start here, of the first job by arrival from just after ``after`` once round."""
    for job in view.jobs_to_start(worker, after):
        found = start_of(view, job, worker)
        if found is not None:
            return found
        if not view.is_free(worker):
            return None  # no job passes the first one in a worker's queue
    return None


def first_replica(view: View, worker: Worker, after: int = 0) -> Placement | None:
    """Return a task to replicate here, of the first job by arrival from just after ``after`` once round."""
    for job in view.jobs_in_turn(worker, after) if view.is_free(worker) else ():
        found = replica_of(view, job, worker)
        if found is not None:
            return found
    return None


def start_of(view: View, job: Job, worker: Worker) -> Placement | None:
    """Return the job's next waiting task that may start, or wait, at this worker."""
    task = view.first_startable(job, worker)
    return None if task is None else Placement(job.id, task, worker.name)


def replica_of(view: View, job: Job, worker: Worker) -> Placement | None:
    """Return the job's next running task that may have one more attempt, here; a busy worker gets none.

    Tasks take turns, from the one after the job's last (``Job.cursor``): each has a replica before any has two.
    """
    numbers = view.index.to_replicate(job)
    if not view.is_free(worker):
        return None
    for start in (job.cursor, 0):
        number = numbers.first_after(start)
        while number is not None:
            if not view.index.on_worker(job.task_id(number), worker.name):
                return Placement(job.id, number, worker.name)
            number = numbers.first_after(number)
    return None
