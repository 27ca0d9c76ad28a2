"""Most throughput (an alternative of dynamic-load.md): each task where it adds most to what is done a second.

A worker's slots deliver its speed, shared by what it has in hand: the next task gets that, so that a fast idle worker
comes before a slow one, and a fast one that has a few in hand before a slow one that has many.
"""

from __future__ import annotations

from collections.abc import Iterator

from loopline_master.core.entities import Worker
from loopline_master.core.estimates import measure
from loopline_master.core.policies.view import Placement, View
from loopline_master.core.policies.worker_index import Candidates, tasks_in_order


def plan(view: View) -> Iterator[Placement]:
    return tasks_in_order(view, view.own(Rates))


class Rates(Candidates):
    """By what one more task would get, the most first."""

    def rank(self, worker: Worker) -> float:
        sharers = max(1.0, (self.view.in_hand(worker) + 1) / max(1, worker.offered))
        return -measure.speed_of(self.state.grid, worker) / sharers
