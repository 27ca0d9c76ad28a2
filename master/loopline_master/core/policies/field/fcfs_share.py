"""FCFS-Share (Anglano and Canonico, 2008): jobs by arrival, each with its replicas before the next has anything."""

from __future__ import annotations

from loopline_master.core.kernel.entities import Worker
from loopline_master.core.policies.field.wqr import first_start, replica_of, start_of
from loopline_master.core.policies.policy import Placement, View, WorkerFirst, register


@register("fcfs-share", live=False)
class FcfsShare(WorkerFirst):
    """A task or a replica of the first job; workers that it cannot use go to the next."""

    replicates = True

    def next_task(self, view: View, worker: Worker) -> Placement | None:
        if not view.is_free(worker):
            return first_start(view, worker)  # replicas do not wait in queues
        for job in view.jobs_in_turn(worker, 0):
            found = start_of(view, job, worker) or replica_of(view, job, worker)
            if found is not None:
                return found
        return None
