"""An estimate of how long tasks take here, by which the number of prefetched tasks is decided."""

from __future__ import annotations

from loopline_worker.timings import LAST_TASK_SHARE, LONGEST_COUNTED_S, PREFETCH_S

_MOST = 16
"""Tasks that are prefetched at one supervisor at most."""


class DurationEstimate:
    """Exponentially weighted mean of the durations of tasks."""

    def __init__(self) -> None:
        self._mean_s = LONGEST_COUNTED_S

    def add(self, seconds: float) -> None:
        """Learn that a task took so long."""
        self._mean_s += LAST_TASK_SHARE * (min(seconds, LONGEST_COUNTED_S) - self._mean_s)

    def prefetch_depth(self) -> int:
        """Return how many tasks one supervisor is expected to complete within ``PREFETCH_S``."""
        return min(_MOST, int(PREFETCH_S / max(self._mean_s, PREFETCH_S / _MOST)))
