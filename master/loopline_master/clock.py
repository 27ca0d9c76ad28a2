"""The master's time: seconds since 1970, which never go back, even from one run of the master to the next."""

from __future__ import annotations

import time

TICK_S = 1e-6


class Clock:
    """A clock that reads the wall clock once and then counts by the monotonic one. No two readings are equal."""

    def __init__(self, after: float = 0.0) -> None:
        """Start the clock later than ``after``, the last time in the log: the wall clock may have been set back."""
        self._start = max(time.time(), after)
        self._monotonic = time.monotonic()
        self._last = after

    def __call__(self) -> float:
        """Return the time now."""
        now = self._start + time.monotonic() - self._monotonic
        self._last = max(now, self._last + TICK_S)
        return self._last
