"""When a checkpoint is due: by its cost, or as the job says.

A task loses less the more often it is saved, and works less. For an interruption every ``t`` seconds on average and a
checkpoint that costs ``c``, the best interval is about ``sqrt(2 c t)`` (Young 1974). Two levels have an interval each
(as in SCR, Moody 2010): the local disk survives some interruptions, and the others need the master. The master tells
how often either kind comes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from loopline_shared.protocol.checkpoints import CheckpointOrder

SHORTEST_S = 1.0
LONGEST_S = 3600.0
_UPLOAD_COSTS = 1 / 4
"""Cost of an upload as a fraction of its duration: the task keeps computing, but the network is busy."""
_FAILURES = 2
"""The interval is doubled each time after this number of failures in a row."""


@dataclass(slots=True)
class _Level:
    began_at: float  # the last checkpoint of this level, or the task
    cost_s: float = 0.0
    failures: int = 0

    @property
    def longer(self) -> float:
        """Factor on the interval after failures."""
        return 2.0 ** min(self.failures // _FAILURES, 10)

    def succeeded(self, began_at: float, cost_s: float) -> None:
        self.began_at, self.cost_s, self.failures = began_at, cost_s, 0

    def failed(self, now: float) -> None:
        self.failures += 1
        self.began_at = now


class CheckpointIntervals:
    """The intervals of a task's checkpoints and of their uploads. Times are by ``time.monotonic``."""

    def __init__(self, order: CheckpointOrder, now: float) -> None:
        self._order = order
        self._taking, self._uploading = _Level(now), _Level(now)

    @property
    def interval_s(self) -> float:
        """Return the time from one checkpoint to the next: each upload gets a fresh one."""
        local_s = self._by_cost(self._taking.cost_s, self._order.stopped_every_s)
        return min(local_s, self._upload_s) * self._taking.longer

    @property
    def gang_interval_s(self) -> float:
        """Return the time between the checkpoints of a gang's member: only uploaded ones count.

        It is at least an upload's duration, so that the other members still have the step when the upload is done.
        """
        return max(self._upload_s * max(self._taking.longer, self._uploading.longer), self._uploading.cost_s)

    @property
    def due_at(self) -> float:
        """Return when the next checkpoint is due."""
        return self._taking.began_at + self.interval_s

    def upload_at(self, now: float) -> float:
        """Return when the newest checkpoint is to be uploaded, unless a newer one comes before.

        Rather a little too early than without the work of one interval.
        """
        due_at = self._uploading.began_at + self._upload_s * self._uploading.longer
        half_s = self.interval_s / 2
        return now if due_at <= now + half_s else due_at + half_s

    @property
    def is_failing(self) -> bool:
        """True after some failures in a row to take one."""
        return self._taking.failures >= _FAILURES

    def taken(self, began_at: float, cost_s: float) -> None:
        """Note a checkpoint: when it began, and how long it took."""
        self._taking.succeeded(began_at, cost_s)

    def not_taken(self, now: float) -> None:
        """Note a failure."""
        self._taking.failed(now)

    def uploaded(self, began_at: float, upload_s: float) -> None:
        """Note an upload: when it began, and how long it took."""
        self._uploading.succeeded(began_at, upload_s)

    def not_uploaded(self, now: float) -> None:
        """Note that one failed."""
        self._uploading.failed(now)

    @property
    def _upload_s(self) -> float:
        cost_s = self._taking.cost_s + _UPLOAD_COSTS * self._uploading.cost_s
        return self._by_cost(cost_s, self._order.lost_every_s)

    def _by_cost(self, cost_s: float, mean_s: float) -> float:
        if self._order.every_s is not None:
            return self._order.every_s
        return min(LONGEST_S, max(SHORTEST_S, math.sqrt(2 * cost_s * mean_s)))
