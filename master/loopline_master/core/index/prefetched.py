"""Prefetched attempts: they wait at their workers for a slot, so that short tasks need no round trip.

Each needs one slot, so that any slot that falls free will do.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from loopline_master.core.entities import Attempt
from loopline_shared.model import AttemptId

_MILLI = 1e3
_MOST_MS = 10**15
"""The longest expected time, so that sums stay exact."""


@dataclass(slots=True)
class PrefetchQueues:
    """Queues of prefetched attempts by worker.

    Work is in whole milliseconds, so that sums do not depend on the order in which attempts came and went.
    """

    of_worker: dict[str, dict[AttemptId, int]] = field(default_factory=dict)  # how long each is expected to take
    work_ms: dict[str, int] = field(default_factory=dict)
    order: dict[str, list[tuple[float, AttemptId]]] = field(default_factory=dict)  # by when they were dispatched
    of_job: dict[int, int] = field(default_factory=dict)  # how many, by job

    def latest_on(self, worker: str) -> AttemptId:
        """Return the attempt of the worker's queue that was dispatched last."""
        return self.order[worker][-1][1]

    def toggle(self, attempt: Attempt, waits: bool | int) -> None:
        """Enter an attempt that begins to wait, or drop one that no longer does."""
        name = attempt.worker
        if waits:
            work_ms = self.of_worker.setdefault(name, {})[attempt.id] = milliseconds(attempt.expected_s)
            self.work_ms[name] = self.work_ms.get(name, 0) + work_ms
            insort(self.order.setdefault(name, []), (attempt.dispatched_at, attempt.id))
            self.of_job[attempt.job] = self.of_job.get(attempt.job, 0) + 1
            return
        queue, order = self.of_worker[name], self.order[name]
        self.work_ms[name] -= queue.pop(attempt.id)
        del order[bisect_left(order, (attempt.dispatched_at, attempt.id))]
        self.of_job[attempt.job] -= 1
        if not self.of_job[attempt.job]:
            del self.of_job[attempt.job]
        if not queue:
            del self.of_worker[name], self.work_ms[name], self.order[name]


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least one: every attempt makes the queue that it joins longer."""
    return max(1, round(min(seconds * _MILLI, _MOST_MS)))
