"""When a checkpoint is due: by its cost, or as the job says.

A task loses less the more often it is saved, and works less. For an interruption every ``t`` seconds on average and a
checkpoint that costs ``c``, the best interval is about ``sqrt(2 c t)`` (Young 1974). Two levels have an interval each
(as in SCR, Moody 2010): the local disk survives most interruptions, and the others need the master.
"""

from __future__ import annotations

import math

SHORTEST_S = 1.0
LONGEST_S = 3600.0
_LOCAL_EVERY_S = 3600.0
"""Mean time between interruptions that the local disk survives: the owner comes, the agent is started again."""
_REMOTE_EVERY_S = 4 * 3600.0
"""Mean time between other interruptions: the computer is switched off, or another one is free first."""
_FAILURES = 2
"""The interval is doubled each time after this number of failures in a row."""


class CheckpointInterval:
    """The interval of one level of a task. Times are by ``time.monotonic``."""

    def __init__(self, every_s: float | None, mean_s: float, now: float) -> None:
        """``every_s``: interval as the job says; None: by the cost, for one interruption in ``mean_s``."""
        self._every_s = every_s
        self._mean_s = mean_s
        self._cost_s = 0.0
        self._failures = 0
        self.began_at = now  # of the last checkpoint, or of the task

    @property
    def interval_s(self) -> float:
        """Return the time from one checkpoint to the next."""
        every_s = self._every_s
        if every_s is None:
            every_s = min(LONGEST_S, max(SHORTEST_S, math.sqrt(2 * self._cost_s * self._mean_s)))
        return every_s * 2.0 ** min(self._failures // _FAILURES, 10)

    @property
    def due_at(self) -> float:
        """Return when the next one is due."""
        return self.began_at + self.interval_s

    @property
    def is_failing(self) -> bool:
        """True after some failures in a row."""
        return self._failures >= _FAILURES

    def succeeded(self, began_at: float, cost_s: float) -> None:
        """Note a checkpoint: when it began, and its cost in seconds."""
        self.began_at, self._cost_s, self._failures = began_at, cost_s, 0

    def failed(self, now: float) -> None:
        """Note a failure."""
        self._failures += 1
        self.began_at = now


def local(every_s: float | None, now: float) -> CheckpointInterval:
    """Return the interval of checkpoints on the local disk."""
    return CheckpointInterval(every_s, _LOCAL_EVERY_S, now)


def remote(every_s: float | None, now: float) -> CheckpointInterval:
    """Return the interval of uploads."""
    return CheckpointInterval(every_s, _REMOTE_EVERY_S, now)
