"""Least expected turnaround: each task goes where it would be done first, even if it has to wait there.

The source is docs/design/dynamic-load.md.

    T_j = J_a / c_j + D_j + W_j + R_j

J_a is the task's work, as given or predicted, c_j the worker's measured speed less what its owner takes of what the
task wants, as last reported, D_j the network's delay and, where workers pass large files on, the time until the
task's are there. W_j and R_j, the work that the worker has and what was sent to it since, are one here: the time
until a slot of it falls free, and the work prefetched there already. Among the least, one is chosen at random.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.policies.policy import View, register
from loopline_master.core.policies.task_first import Candidate, Ranked, ReadyTask, TaskFirst

_STEP_S = 0.01
"""Delays, and times until workers are free, are told apart to so much: machines of one kind are equally good."""


@register("turnaround")
class Turnaround(TaskFirst):
    """Rank of a free worker: its delay; of a busy one: the time from which a task could start there; in steps."""

    prefetch_s = 3600.0

    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float:
        """Return seconds until the task would be done. A worker that is late will be late as long again.

        An owner slows down only what wants more than is left.
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
        """Return, of busy workers, the first to be free from now on and the least late of those that should be."""
        if not busy:
            return (0,)
        next_at = bisect_left(ranked, (_steps(view.grid.now), ""))
        if not next_at:
            return (0,)
        late_at = bisect_left(ranked, (ranked[next_at - 1][0], ""))
        return (next_at, late_at) if next_at < len(ranked) else (late_at,)


def _steps(seconds: float) -> float:
    return float(round(seconds / _STEP_S))
