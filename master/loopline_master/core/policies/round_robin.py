"""No-passing round robin with task replication (the no-passing paper, Figure 1): the default.

Jobs take turns; within a job its tasks take turns. When the round comes back to a task that is still running
somewhere, it is given a replica elsewhere. A job whose turn falls on its held last task has spent its turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from loopline_master.core.entities import Worker
from loopline_master.core.policies.view import Placement, View

_ROUNDS = 2  # a job whose turn was spent on its held task has another one in the next round


def plan(view: View) -> Iterator[Placement]:
    for worker in view.idle_workers(replicas=True):
        yield from _turns(view, worker)


def ahead(view: View) -> Iterator[Placement]:
    """The next job in the round that has a task to start: if that one may not wait, none may pass it."""
    for job, worker in view.jobs_ahead(after=lambda: view.pointer):
        task = view.next_ahead(job, worker, after=job.cursor)
        if task is not None:
            yield Placement(job.id, task, worker.name)


def _turns(view: View, worker: Worker) -> Iterable[Placement]:
    """Wishes for one worker: the first that may be granted, after those in vain of the jobs whose turn it was
    before. If nothing may be granted, nobody's turn is spent: a report without news changes nothing.
    """
    spent: dict[int, Placement] = {}
    for _ in range(_ROUNDS):
        for job in view.round_of_jobs(worker, after=view.pointer):
            task = view.next_in_queue(job, worker, after=spent[job.id].task if job.id in spent else job.cursor)
            if task is None:
                continue
            wish = Placement(job.id, task, worker.name)
            if view.is_held(job) and task in view.fresh(job):
                spent[job.id] = wish
            else:
                return (*spent.values(), wish)
        if not spent:
            break
    return ()
