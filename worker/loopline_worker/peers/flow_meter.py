"""Rate of a flow, and whether the network alone decided it: from that the master learns what links carry."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_WINDOW_S = 0.5
_LATE_SHARE = 0.1
"""If more of the bytes came late than this, their source had been waiting for them itself."""


class FlowMeter:
    """Meter of what comes from one source. One thread counts, another one reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.fastest = 0.0
        """The highest rate for some seconds from any source so far, in bytes per second."""
        self.begin()

    def begin(self) -> None:
        """Begin with another source."""
        with self._lock:
            self._found, self._is_new = (0.0, False), True
            self._clear()

    def count(self, count_bytes: int, *, is_late: bool) -> None:
        """Count a piece; a late one had not been there when it was asked for."""
        with self._lock:
            self._bytes += count_bytes
            self._late_bytes += count_bytes * is_late

    def hold_back(self) -> None:
        """Note that a limit of the owner or of the plan was used up, or that the source had nothing."""
        self._is_held_back = True

    def read(self) -> tuple[float, bool]:
        """Return bytes per second over the latest window, and True if nothing but the network held the flow back.

        The first window in which anything comes shows how a flow begins, not what the network carries.
        """
        with self._lock:
            passed_s = self._clock() - self._since
            if passed_s >= _WINDOW_S:
                is_held_back = self._is_held_back or self._is_new
                is_free = not is_held_back and self._late_bytes <= _LATE_SHARE * self._bytes
                self._is_new = self._is_new and not self._bytes
                self._found = self._bytes / passed_s, is_free and self._bytes > 0
                self._clear()
            return self._found

    def _clear(self) -> None:
        self._since, self._bytes, self._late_bytes, self._is_held_back = self._clock(), 0, 0, False
