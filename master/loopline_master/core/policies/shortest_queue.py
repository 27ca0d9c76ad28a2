"""Shortest queue: each task goes to the worker with the fewest attempts a slot.

It is an alternative of docs/design/dynamic-load.md.
"""

from __future__ import annotations

from loopline_master.core.kernel.entities import Worker
from loopline_master.core.policies.policy import View, register
from loopline_master.core.policies.task_first import Candidate, ReadyTask, TaskFirst


@register("shortest-queue")
class ShortestQueue(TaskFirst):
    """The cost of a worker is its number of attempts for each slot."""

    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float:
        return candidate.rank

    def rank(self, view: View, worker: Worker) -> float:
        return view.index.attempts.in_hand(worker.name) / max(1, worker.offered)
