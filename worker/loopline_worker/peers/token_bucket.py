"""Token buckets, which keep transfers to a rate: tokens are bytes. The caller reads the clock."""

from __future__ import annotations

import threading


class TokenBucket:
    """Bucket that gains ``rate_bytes_s`` tokens a second, up to ``burst_bytes``; several threads may share it.

    Whoever has waited for ``wait_s`` may spend more than is there: then the level is negative, and everybody waits
    until it is positive again. So a piece larger than the bucket goes too, and the mean rate is kept all the same.
    """

    def __init__(self, rate_bytes_s: float | None, burst_bytes: float, now: float = 0.0) -> None:
        """Begin with a full bucket. Without a rate there is no wait."""
        self._rate = rate_bytes_s
        self.burst_bytes = burst_bytes
        self._level = burst_bytes
        self._at = now
        self._lock = threading.Lock()

    def wait_s(self, now: float) -> float:
        """Return how many seconds there are until a token is there."""
        with self._lock:
            self._gain(now)
            return 0.0 if self._rate is None or self._level > 0 else (1.0 - self._level) / self._rate

    def spend(self, count_bytes: int, now: float) -> None:
        """Take the tokens, even if there are fewer."""
        with self._lock:
            self._gain(now)
            self._level -= count_bytes

    def change(self, rate_bytes_s: float | None, now: float) -> None:
        """Go on at another rate."""
        with self._lock:
            self._gain(now)
            self._rate = rate_bytes_s

    def _gain(self, now: float) -> None:
        if self._rate is not None:
            self._level = min(self.burst_bytes, self._level + max(0.0, now - self._at) * self._rate)
        self._at = max(now, self._at)
