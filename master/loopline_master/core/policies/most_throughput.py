"""Most throughput: each task goes where it adds most to the work done a second.

It is an alternative of docs/design/dynamic-load.md.

A worker's slots deliver its speed, shared by the attempts that it has: the next task gets a share. So a fast free
worker comes before a slow one, and a fast one with a few attempts before a slow one with many.
"""

from __future__ import annotations

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import Worker
from loopline_master.core.policies.policy import View, register
from loopline_master.core.policies.task_first import Candidate, ReadyTask, TaskFirst


@register("most-throughput")
class MostThroughput(TaskFirst):
    """The cost of a worker is the speed that one more task would get there, negated."""

    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float:
        return candidate.rank

    def rank(self, view: View, worker: Worker) -> float:
        sharers = max(1.0, (view.index.attempts.in_hand(worker.name) + 1) / max(1, worker.offered))
        return -measure.speed_now(worker) / sharers
