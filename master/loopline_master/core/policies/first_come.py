"""First come, first served (the no-passing paper, section 2.1): tasks in the order of submission, no replicas."""

from __future__ import annotations

from collections.abc import Iterator

from loopline_master.core.entities import Worker
from loopline_master.core.policies.view import Placement, View


def plan(view: View) -> Iterator[Placement]:
    for worker in view.idle_workers(replicas=False):
        wish = _first(view, worker)
        if wish is not None:
            yield wish


def ahead(view: View) -> Iterator[Placement]:
    for job, worker in view.jobs_ahead(after=lambda: 0):
        task = view.next_ahead(job, worker)
        if task is not None:
            yield Placement(job.id, task, worker.name)


def _first(view: View, worker: Worker) -> Placement | None:
    for job in view.ready_jobs(worker):
        task = view.first_startable(job, worker)
        if task is not None:
            return Placement(job.id, task, worker.name)
    return None
