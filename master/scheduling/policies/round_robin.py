"""No-passing round robin with task replication (the no-passing paper, Figure 1): the default.

Jobs take turns; within a job its tasks take turns. When the round comes back to a task that is still running
somewhere, it is given a replica elsewhere. A job whose turn falls on its held last task has spent its turn.
"""

from __future__ import annotations

from collections.abc import Iterator

from master.scheduling.model import Worker
from master.scheduling.view import Placement, View

_ROUNDS = 2  # a job whose turn was spent on its held task has another one in the next round


def plan(view: View) -> Iterator[Placement]:
    for worker in view.idle_workers():
        yield from _turns(view, worker)


def _turns(view: View, worker: Worker) -> Iterator[Placement]:
    """Wishes for one worker until one is granted or all turns have been offered."""
    for _ in range(_ROUNDS):
        spent = False
        for job in view.round_of_jobs(worker, after=view.pointer):
            task = view.next_in_queue(job, worker)
            if task is None:
                continue
            held = view.is_held(job) and task in view.fresh(job)
            yield Placement(job.id, task, worker.name)
            if not held:
                return
            spent = True
        if not spent:
            return
