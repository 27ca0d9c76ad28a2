"""Least expected turnaround (dynamic-load.md): each task goes where it would be done first, be it to wait there.

    T_j = J_a / c_j + D_j + W_j + R_j

J_a is the task's work, as given or predicted, c_j the worker's measured speed less what its owner takes, as last
heard, D_j the network's delay. W_j and R_j, what the worker has in hand and what was sent to it since, are one here:
the time until a slot of it falls free, and what waits there already. Among the least, one is chosen at random.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from loopline_master.core.entities import Worker
from loopline_master.core.estimates import measure
from loopline_master.core.policies.view import Placement, View
from loopline_master.core.policies.worker_index import Best, Candidates, Entry, Group, tasks_in_order

AHEAD_S = 3600.0
"""So much expected work may wait at a worker for each of its slots."""
_STEP_S = 0.01
"""Delays, and times until workers are free, are told apart to so much: machines of one kind are equally good."""


def plan(view: View) -> Iterator[Placement]:
    return tasks_in_order(view, view.own(Turnaround))


class Turnaround(Candidates):
    """Workers with a free slot by their delay; others by the moment from which a task could start there."""

    def rank(self, worker: Worker) -> float:
        delay_s = (worker.load and worker.load.delay_s) or 0.0
        if worker.name in self.state.index.room.idle.keys:
            return _steps(delay_s)
        return _steps(self.view.free_at(worker) + delay_s)

    def speed_of(self, worker: Worker) -> float:
        return super().speed_of(worker) * measure.share_left(worker)

    def fastest(self, level: int) -> float:
        return super().fastest(level) / measure.LEAST_LEFT

    def best_of(self, group: Group, order: list[Entry], work: float) -> Iterator[Best]:
        run_s = work / group.speed
        if order is group.idle:
            yield self._from(group, order, 0, run_s + order[0][0] * _STEP_S)
            return
        now = _steps(self.state.now)
        next_at = bisect_left(order, (now, ""))
        if next_at < len(order):
            yield self._from(group, order, next_at, run_s + (order[next_at][0] - now) * _STEP_S)
        if next_at:  # all others are late: the least of them, which is taken to last as long again as it is late
            late_at = bisect_left(order, (order[next_at - 1][0], ""))
            yield self._from(group, order, late_at, run_s + (now - order[late_at][0]) * _STEP_S)


def _steps(seconds: float) -> float:
    return float(round(seconds / _STEP_S))
