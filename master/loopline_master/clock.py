"""The master's time: seconds since 1970, never going back, not even from one run to the next."""

from __future__ import annotations

import time

TICK_S = 1e-6


class Clock:
    """Set by the wall clock once; from then on it only runs. No two readings are the same."""

    def __init__(self, after: float = 0.0) -> None:
        """``after``: the last time in the log, in case the wall clock was set back since."""
        self._start = max(time.time(), after)
        self._monotonic = time.monotonic()
        self._last = after

    def __call__(self) -> float:
        now = self._start + time.monotonic() - self._monotonic
        self._last = max(now, self._last + TICK_S)
        return self._last
