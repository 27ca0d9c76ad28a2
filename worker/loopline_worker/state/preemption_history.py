"""The preemption history: when tasks were frozen for the owner, and how fast, for owner page and master."""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from loopline_shared.model import Yielded

_LATENCIES_KEPT = 1000
_SHOWN = 20
_NEVER = Yielded()


@dataclass(frozen=True, slots=True)
class Preemption:
    """Preemption of tasks: they were frozen for the owner at one time."""

    at: float  # seconds since 1970
    why: str
    attempts: int
    took_s: float  # since the input, or since the agent knew
    after_input: bool


class PreemptionHistory:
    """Preemptions since the agent started. Only those that followed an input count in the figures."""

    def __init__(self) -> None:
        self.recent: deque[Preemption] = deque(maxlen=_SHOWN)  # the latest last
        self._order: deque[float] = deque()
        self._sorted: list[float] = []
        self._count = 0

    def note(self, entry: Preemption) -> None:
        """Add a preemption."""
        self.recent.append(entry)
        if not entry.after_input:
            return
        self._count += 1
        self._order.append(entry.took_s)
        insort(self._sorted, entry.took_s)
        if len(self._order) > _LATENCIES_KEPT:
            self._sorted.remove(self._order.popleft())

    def yielded(self) -> Yielded:
        """Return the number of preemptions and how fast they were."""
        if not self._sorted:
            return _NEVER
        return Yielded(self._count, *(round(quantile(self._sorted, part), 4) for part in (0.5, 0.99)))


def quantile(ordered: Sequence[float], part: float) -> float:
    """Return the smallest value that at least this part of the ordered values do not exceed."""
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]
