"""Rate of a flow and its limiting factor; the master estimates the capacity of links with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

_WINDOW_S, _FIRST_WINDOW_S = 0.5, 0.25
_STALLED_S = 1.5
"""A window ends with a piece, or after this time without one."""
_LATE_SHARE = 0.1
"""If more of the bytes came late than this, their source had been waiting for them itself."""
_BUSY_SHARE, _IDLE_SHARE = 0.6, 0.33
"""Shares of a window with late pieces: from the first on, only the network decided the rate; up to the second, it had
room for far more."""


@dataclass(frozen=True, slots=True)
class FlowReading:
    """A flow as it was in the latest window."""

    rate_bytes_s: float = 0.0
    is_free: bool = False  # nothing but the network held it back
    is_swift: bool = False  # each piece came fast, once its source had it


class FlowMeter:
    """Meter of the bytes from one source. One thread counts, another one reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.fastest = 0.0
        """The highest rate for some seconds from any source, in bytes per second."""
        self._bytes = self._late_bytes = 0
        self._took_s = 0.0
        self._train = list[tuple[int, float]]()  # bytes and seconds of the first pieces
        self.begin()

    @property
    def train_bytes_s(self) -> float:
        """Bytes per second within the first pieces from the present source; 0: there were none.

        If there are several, the very first is left out: a new connection is slow at first.
        """
        train = self._train[1:] or self._train[:]
        took_s = sum(took_s for _, took_s in train)
        return sum(count for count, _ in train) / took_s if took_s else 0.0

    def begin(self) -> None:
        """Begin with another source."""
        with self._lock:
            self._found, self._is_new = FlowReading(), True
            self._train = []
            self._clear(self._clock())

    def count(self, count_bytes: int, took_s: float, *, is_late: bool) -> None:
        """Count a piece that came within ``took_s``; a late one had not been there when it was asked for."""
        with self._lock:
            if self._is_new:
                self._train.append((count_bytes, took_s))
            self._bytes += count_bytes
            self._took_s += took_s
            self._late_bytes += count_bytes * is_late
            self._last = self._clock()

    def hold_back(self) -> None:
        """Note that a limit of the owner or of the plan was used up."""
        self._is_held_back = True

    def starve(self) -> None:
        """Note that the source had nothing for a while."""
        self._has_starved = True

    def read(self) -> FlowReading:
        """Return what the latest window showed. Windows end with a piece, so that no piece is counted in part.

        The first window with data shows the start of a flow, not the capacity of the network.
        """
        with self._lock:
            now = self._clock()
            if self._last - self._since >= (_FIRST_WINDOW_S if self._is_new else _WINDOW_S):
                self._found = self._reading(self._last - self._since)
                self._clear(self._last)
            elif now - self._since >= _STALLED_S:
                self._found = FlowReading(self._bytes / (now - self._since))
                self._clear(now)
            return self._found

    def _reading(self, passed_s: float) -> FlowReading:
        rate, is_new = self._bytes / passed_s, self._is_new
        self._is_new = False
        if is_new or self._is_held_back:
            return FlowReading(rate)
        if not self._has_starved and self._late_bytes <= _LATE_SHARE * self._bytes:
            return FlowReading(rate, is_free=True)
        busy = self._took_s / passed_s
        return FlowReading(rate, is_free=busy >= _BUSY_SHARE, is_swift=busy <= _IDLE_SHARE)

    def _clear(self, since: float) -> None:
        self._since = self._last = since
        self._bytes, self._late_bytes, self._took_s = 0, 0, 0.0
        self._is_held_back = self._has_starved = False
