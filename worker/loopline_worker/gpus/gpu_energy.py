"""Energy of a GPU above its idle power: the lowest mean power of any interval since the worker started."""

from __future__ import annotations

from math import inf

_SHORTEST_S = 5.0
"""The counter moves only now and then, so the power of a shorter interval is not known."""
_LONGEST_S = 30.0
"""A GPU is read every 10 s while a task has it; in a longer interval it was not, for some time."""
_MOST_WATTS = 5_000.0
"""A GPU draws less: its counter was reset."""


class GpuEnergy:
    """The energy counter of one GPU."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None
        self._idle_w = inf

    def since_last(self, at: float, joules: float) -> float:
        """Return the joules above idle since the last reading; 0 after less than 5 s or more than 30 s.

        A reading that comes too soon is not used at all.
        """
        before, elapsed_s = self._before, at - self._before[0] if self._before else inf
        if elapsed_s < _SHORTEST_S:
            return 0.0
        self._before = at, joules
        if before is None or elapsed_s > _LONGEST_S:
            return 0.0
        power_w = (joules - before[1]) / elapsed_s
        if not 0 <= power_w <= _MOST_WATTS:
            return 0.0
        self._idle_w = min(self._idle_w, power_w)
        return (power_w - self._idle_w) * elapsed_s
