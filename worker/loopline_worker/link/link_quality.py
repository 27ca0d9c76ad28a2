"""How far the master is, and how much the way there carries: taken from the link's own traffic, never from probes."""

from __future__ import annotations

_LATEST = 1 / 8
"""How much the latest measurement counts; so much less the ones before."""
_KEPT = 64
_WORTH_BYTES = 2**16
"""Shorter files say more of the delay than of the throughput."""


class LinkQuality:
    """``now`` is in seconds and never goes back."""

    def __init__(self) -> None:
        self.delay_s: float | None = None
        """There and back, without the time that the master takes."""
        self.throughput_bytes_s: float | None = None
        self._sent_at: dict[int, float] = {}  # by number of the Report: those not answered

    def connected(self) -> None:
        """The numbers of Reports begin anew."""
        self._sent_at.clear()

    def sent(self, seq: int, now: float) -> None:
        self._sent_at[seq] = now
        if len(self._sent_at) > _KEPT:
            del self._sent_at[next(iter(self._sent_at))]

    def answered(self, seq: int, held_s: float | None, now: float) -> None:
        """The master has taken in Reports up to ``seq``, and kept this one for so long."""
        sent_at = self._sent_at.get(seq)
        for earlier in [number for number in self._sent_at if number <= seq]:
            del self._sent_at[earlier]
        if sent_at is not None and held_s is not None:
            self.delay_s = _smooth(self.delay_s, max(0.0, now - sent_at - held_s))

    def moved(self, size_bytes: int, seconds: float) -> None:
        """A file went to the master or came from there."""
        if size_bytes >= _WORTH_BYTES and seconds > 0:
            self.throughput_bytes_s = _smooth(self.throughput_bytes_s, size_bytes / seconds)


def _smooth(before: float | None, latest: float) -> float:
    return latest if before is None else before + _LATEST * (latest - before)
