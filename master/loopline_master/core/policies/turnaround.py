"""Least expected turnaround: each task goes to the worker expected to finish it first, even if it must wait there.

The source is docs/design/dynamic-load.md.

    T_j = J_a / c_j + D_j + W_j + R_j

J_a is the task's work, given or predicted. c_j is the worker's measured speed, less the part of the task's share that
its owner takes, as last reported. D_j is the network's delay plus, if workers pass large files on, the time until the
task's files are there. W_j and R_j, the work that the worker has and the work sent to it since, are one term here:
the time until one of its slots becomes free, and the work already prefetched there. Among the least, one is chosen at
random.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.policies.policy import View, register
from loopline_master.core.policies.task_first import Candidate, Ranked, ReadyTask, TaskFirst

_STEP_S = 0.01
"""Steps of delays and of times until workers are free: machines of one kind are equally good."""


@register("turnaround")
class Turnaround(TaskFirst):
    """Rank of a free worker: its delay; of a busy one: the time from which a task could start there; in steps."""

    prefetch_s = 3600.0

    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float:
        """Return seconds until the task would be done. A worker that is late is assumed to need as long again.

        An owner slows down only tasks that want more than the owner leaves.
        """
        wait = abs(candidate.rank - _steps(view.grid.now)) if candidate.is_busy else candidate.rank
        cost, worker = task.work / candidate.speed, view.workers[candidate.name]
        if worker.load is not None and worker.load.spare_cpu < worker.offered:
            cost *= max(measure.share_left(worker), measure.share_wanted(task.job, view.index.programs))
        cost += wait * _STEP_S
        if view.data.is_known:
            cost += view.data.delay(task.job, task.number, candidate.name)
        return cost

    def rank(self, view: View, worker: Worker) -> float:
        delay_s = measure.delay_of(worker)
        return _steps(delay_s if view.is_free(worker) else view.prefetch.free_at(worker) + delay_s)

    def places(self, view: View, ranked: Ranked, *, busy: bool) -> Sequence[int]:
        """Return the places of two busy workers: the first to be free from now on, and the least late one."""
        if not busy:
            return (0,)
        next_at = bisect_left(ranked, (_steps(view.grid.now), ""))
        if not next_at:
            return (0,)
        late_at = bisect_left(ranked, (ranked[next_at - 1][0], ""))
        return (next_at, late_at) if next_at < len(ranked) else (late_at,)


def _steps(seconds: float) -> float:
    return float(round(seconds / _STEP_S))
