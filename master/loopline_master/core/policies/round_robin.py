"""Round robin with task replication, from Figure 1 of the no-passing paper: the default.

Jobs take turns; within a job its tasks take turns. When the round comes back to a task that is still running
somewhere, it is given a replica elsewhere. A job whose turn falls on its held last task has spent its turn.
"""

from __future__ import annotations

from loopline_master.core.kernel.entities import Worker
from loopline_master.core.policies.policy import Placement, View, WorkerFirst, register

_ROUNDS = 2  # a job whose turn was spent on its held task has another one in the next round


@register("round-robin")
class RoundRobin(WorkerFirst):
    """The next task of the job whose turn it is."""

    replicates = True

    def next_task(self, view: View, worker: Worker) -> Placement | None:
        return _next_in_round(view, worker) if view.is_free(worker) else _next_to_wait(view, worker)


def _next_in_round(view: View, worker: Worker) -> Placement | None:
    """Return the first task in the round that may start, and with it the turns that held tasks spent before it.

    If no task may start, no turn is spent: a Report without news changes nothing.
    """
    spent: dict[int, Placement] = {}
    for _ in range(_ROUNDS):
        for job in view.jobs_in_turn(worker, after=view.grid.pointer):
            task = view.next_in_queue(job, worker, after=spent[job.id].task if job.id in spent else job.cursor)
            if task is None:
                continue
            if view.index.is_held(job) and task in view.fresh(job):
                spent[job.id] = Placement(job.id, task, worker.name)
            else:
                return Placement(job.id, task, worker.name, tuple(spent.values()))
        if not spent:
            break
    return None


def _next_to_wait(view: View, worker: Worker) -> Placement | None:
    """Return the next task to start of the first job in the round; None if it may not be prefetched."""
    job = next(view.jobs_to_start(worker, after=view.grid.pointer), None)
    task = view.first_startable(job, worker, after=job.cursor) if job is not None else None
    return Placement(job.id, task, worker.name) if job is not None and task is not None else None
