"""Shortest queue (an alternative of dynamic-load.md): each task to the worker with the fewest in hand, a slot."""

from __future__ import annotations

from collections.abc import Iterator

from loopline_master.core.entities import Worker
from loopline_master.core.policies.view import Placement, View
from loopline_master.core.policies.worker_index import Candidates, tasks_in_order


def plan(view: View) -> Iterator[Placement]:
    return tasks_in_order(view, view.own(Queues))


class Queues(Candidates):
    """By what each slot has in hand."""

    def rank(self, worker: Worker) -> float:
        return self.view.in_hand(worker) / max(1, worker.offered)
