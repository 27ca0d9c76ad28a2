"""Token buckets: how much each of many may use of something."""

from __future__ import annotations

import time
from collections import OrderedDict


class Buckets:
    """A token bucket for each key. Only the most recently used ones are remembered: the others are full again."""

    MOST = 10_000

    def __init__(self, burst: float, per_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self.levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Level and its time, by key; a key that is not there has a full bucket."""

    def level(self, key: str) -> float:
        """Return what is left in the bucket of this key; below 0 if it is overdrawn."""
        level, when = self.levels.get(key, (self._burst, 0.0))
        return min(self._burst, level + (time.monotonic() - when) * self._per_s)

    def spend(self, key: str, amount: float = 1.0) -> None:
        """Draw ``amount`` from the bucket of this key, even if it has less."""
        self.levels[key] = self.level(key) - amount, time.monotonic()
        self.levels.move_to_end(key)
        if len(self.levels) > self.MOST:
            self.levels.popitem(last=False)
