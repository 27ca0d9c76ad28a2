"""Attempts that were sent ahead: they wait at their workers for a slot, so that short tasks do not wait for a round
trip. Each needs one slot, so that any that falls free will do.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from loopline_master.core.entities import Attempt
from loopline_shared.model import AttemptId

_MILLI = 1e3
_MOST_MS = 10**15
"""Nobody waits for longer, and sums stay exact."""


@dataclass(slots=True)
class Queues:
    """By worker. Work is in whole milliseconds, so that sums do not depend on the order in which it came and went."""

    of_worker: dict[str, dict[AttemptId, int]] = field(default_factory=dict)  # how long each is expected to take
    work_ms: dict[str, int] = field(default_factory=dict)
    order: dict[str, list[tuple[float, AttemptId]]] = field(default_factory=dict)  # by when they were dispatched

    def latest_on(self, worker: str) -> AttemptId:
        """Of those that wait there, the one that was dispatched last."""
        return self.order[worker][-1][1]

    def toggle(self, attempt: Attempt, waits: bool | int) -> None:
        """It begins to wait, or waits no longer."""
        name = attempt.worker
        if waits:
            work_ms = self.of_worker.setdefault(name, {})[attempt.id] = milliseconds(attempt.expected_s)
            self.work_ms[name] = self.work_ms.get(name, 0) + work_ms
            insort(self.order.setdefault(name, []), (attempt.dispatched_at, attempt.id))
            return
        queue, order = self.of_worker[name], self.order[name]
        self.work_ms[name] -= queue.pop(attempt.id)
        del order[bisect_left(order, (attempt.dispatched_at, attempt.id))]
        if not queue:
            del self.of_worker[name], self.work_ms[name], self.order[name]


def milliseconds(seconds: float) -> int:
    """Of however short a task it is some: the queue that it joins is a longer one."""
    return max(1, round(min(seconds * _MILLI, _MOST_MS)))
