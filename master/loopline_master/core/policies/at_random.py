"""At random: each task goes to any worker that can take it. An alternative of docs/design/dynamic-load.md."""

from __future__ import annotations

from loopline_master.core.policies.policy import View, register
from loopline_master.core.policies.task_first import Candidate, ReadyTask, TaskFirst


@register("random")
class AtRandom(TaskFirst):
    """All workers are equally good, and among equals one is drawn."""

    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float:
        return 0.0
