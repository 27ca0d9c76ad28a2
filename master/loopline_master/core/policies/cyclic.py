"""Cyclic: workers take turns, in the order of their names. An alternative of docs/design/dynamic-load.md."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from loopline_master.core.policies.policy import View, register
from loopline_master.core.policies.task_first import Candidate, Ranked, ReadyTask, TaskFirst


@register("cyclic")
class Cyclic(TaskFirst):
    """The next worker by name after the one that had the last turn; after the last name, the first."""

    draws = False

    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float:
        return float(candidate.name <= view.grid.last_worker)

    def places(self, view: View, ranked: Ranked, *, busy: bool) -> Sequence[int]:
        at = bisect_right(ranked, (0.0, view.grid.last_worker))
        return (at if at < len(ranked) else 0,)
