"""Space partitioning (the no-passing paper, section 2.2): workers divided evenly among the jobs, no replicas.

Whoever comes or goes has the workers cut anew: those of each type (the paper's PC types: one processor model, able
to run the same jobs) into groups of ceil(workers / jobs), the i-th group for the i-th job by arrival. A worker
serves only its owner, so it idles in its owner's tail.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial

from loopline_master.core.entities import Job, Worker
from loopline_master.core.policies.view import Placement, View


def plan(view: View) -> Iterator[Placement]:
    for worker in view.idle_workers(replicas=False):
        owner = view.remember("partition", partial(_partition, view)).get(worker.name)
        task = view.first_startable(owner, worker) if owner is not None else None
        if owner is not None and task is not None and view.fits(owner, worker):
            yield Placement(owner.id, task, worker.name)


def _partition(view: View) -> dict[str, Job]:
    """Which job each worker serves."""
    types: dict[object, list[Worker]] = defaultdict(list)
    for worker in view.workers():
        types[worker.facts.model, view.demands_met(worker)].append(worker)
    jobs = [job for job in view.jobs() if not job.paused]
    owners = {}
    for workers in types.values():
        runnable = [job for job in jobs if view.could_run(job, workers[0])]
        share = -(-len(workers) // max(1, len(runnable)))
        for place, worker in enumerate(workers):
            if place // share < len(runnable):
                owners[worker.name] = runnable[place // share]
    return owners
