"""Cyclic (an alternative of dynamic-load.md): workers take turns, in the order of their names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from loopline_master.core.policies.view import Placement, View
from loopline_master.core.policies.worker_index import Best, Candidates, Entry, Group, tasks_in_order


def plan(view: View) -> Iterator[Placement]:
    return tasks_in_order(view, view.own(Cycle))


class Cycle(Candidates):
    """The next by name after the one whose turn was last."""

    def best_of(self, group: Group, order: list[Entry], work: float) -> Iterator[Best]:
        at = bisect_right(order, (0.0, self.state.grid.last_worker))
        at = at if at < len(order) else 0
        yield Best(self._turn(order[at][1]), order, at, 1, order is group.busy)

    def _turn(self, name: str) -> tuple[float, str]:
        """Those after the last one first, then round again from the first."""
        return (float(name <= self.state.grid.last_worker), name)
