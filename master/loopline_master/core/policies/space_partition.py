"""Space partitioning (the no-passing paper, section 2.2): workers divided evenly among the jobs.

Whenever jobs or workers change, the workers are divided again: the workers of each type (the paper's PC types: one
processor model, able to run the same jobs) into groups of ceil(workers / jobs), the i-th group for the i-th job by
arrival. A worker serves only its job, so it idles in that job's tail; no task has replicas.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import takewhile

from loopline_master.core.kernel.entities import Worker
from loopline_master.core.policies.policy import Placement, View, WorkerFirst, memo, register


@register("space-partition")
class SpacePartition(WorkerFirst):
    """The first task to start of the job, or session, that owns the worker; nothing is prefetched."""

    prefetches = False

    def next_task(self, view: View, worker: Worker) -> Placement | None:
        turn = memo(view, "partition", partial(_partition, view)).get(worker.name)
        jobs = view.jobs_to_start(worker, after=turn - 1) if turn is not None else iter(())
        for job in takewhile(lambda job: job.turn == turn, jobs):
            task = view.first_startable(job, worker)
            if task is not None:
                return Placement(job.id, task, worker.name)
        return None


def _partition(view: View) -> dict[str, int]:
    """Return the turn that each worker serves: a job's or a session's."""
    types: dict[object, list[Worker]] = defaultdict(list)
    requirements, turn = view.index.requirements, view.index.turn
    for name in sorted(requirements.available):
        worker = requirements.available[name]
        types[worker.facts.model, frozenset(requirements.served_by(name, turn))].append(worker)
    jobs = [job for job in view.index.live.values() if not job.paused and turn in (None, job.owner)]
    owners = {}
    for workers in types.values():
        runnable = sorted({job.turn for job in jobs if requirements.fits(job, workers[0])})
        share = -(-len(workers) // max(1, len(runnable)))
        for place, worker in enumerate(workers):
            if place // share < len(runnable):
                owners[worker.name] = runnable[place // share]
    return owners
