"""Quality of the network as the answers to Reports show it, and when the last answered Report was sent."""

from __future__ import annotations

from collections import deque

_TRIPS = 8
"""Number of round trips; the delay is the least of them."""
_LATEST = 1 / 8
"""Weight of the latest measurement in the average of the throughput."""
_KEPT = 64
_WORTH_BYTES = 2**16
"""Shorter files say more of the delay than of the throughput."""


class LinkQuality:
    """Delay and throughput between worker and master. ``now`` is in seconds and never decreases."""

    def __init__(self, now: float = 0.0) -> None:
        self.answered_at = now
        """When the last answered Report was sent; at first, when this was made."""
        self.throughput_bytes_s: float | None = None
        self._sent_at: dict[int, float] = {}  # by number of the Report: those not answered
        self._round_trips_s: deque[float] = deque(maxlen=_TRIPS)

    @property
    def delay_s(self) -> float | None:
        """The shortest of the latest round trips, without the time that the master took; None before the first.

        What makes one longer is mostly a computer that was busy, and not the network (the clock filter of NTP,
        RFC 5905, section 10). A mean would keep it, and a gang whose start counts on it begins apart.
        """
        return min(self._round_trips_s, default=None)

    def connected(self) -> None:
        """Forget the Reports of the last session: their numbers begin again."""
        self._sent_at.clear()

    def sent(self, seq: int, now: float) -> None:
        """Note that a Report left."""
        self._sent_at[seq] = now
        if len(self._sent_at) > _KEPT:
            del self._sent_at[next(iter(self._sent_at))]

    def answered(self, seq: int, held_s: float | None, now: float) -> None:
        """Measure the delay: the master took in Reports up to ``seq``, and held this one for ``held_s``."""
        sent_at = self._sent_at.get(seq)
        for earlier in [number for number in self._sent_at if number <= seq]:
            self.answered_at = self._sent_at.pop(earlier)
        if sent_at is not None and held_s is not None:
            self._round_trips_s.append(max(0.0, now - sent_at - held_s))

    def moved(self, size_bytes: int, seconds: float) -> None:
        """Measure the throughput by a file that was transferred."""
        if size_bytes >= _WORTH_BYTES and seconds > 0:
            self.throughput_bytes_s = _smooth(self.throughput_bytes_s, size_bytes / seconds)


def _smooth(before: float | None, latest: float) -> float:
    return latest if before is None else before + _LATEST * (latest - before)
