"""Chooses when a gang's member takes a checkpoint: at the same steps as the other members, without a message.

Members save the same steps, each as a folder ``step-N``, at about the same pace. A member takes a checkpoint at each
multiple of its stride: the smallest power of two whose steps last an interval or longer. Members with different
intervals still share steps, since every multiple of the longer stride is also a multiple of the shorter one.
"""

from __future__ import annotations

import math

_MOST_TRIES = 5


class GangSteps:
    """The steps of one member. Times are by ``time.monotonic``."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None  # step, and when it was saved
        self._last = -1
        self._tries = 0  # at the last one
        self.is_missed = False

    def missed(self) -> None:
        """Note that the checkpoint failed. It is due again while its step is the newest, a few times."""
        self.is_missed = self._tries < _MOST_TRIES

    def is_due(self, step: int | None, interval_s: float, now: float) -> bool:
        """Return True if a checkpoint is due at the newest step, unless it was asked for before."""
        if step is None or step < self._last:
            return False
        was_missed, self.is_missed = self.is_missed, False
        if step == self._last:
            self._tries += 1
            return was_missed
        self._last, self._tries = step, 1
        if self._first is None:
            self._first = step, now
            return True
        first, first_at = self._first
        step_s = max(1e-3, (now - first_at) / (step - first))
        stride = 1 << max(0, math.ceil(math.log2(interval_s / step_s)))
        return step % stride == 0
