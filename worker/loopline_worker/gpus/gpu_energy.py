"""Energy of a GPU above its idle power: the lowest mean power of any interval since the worker started."""

from __future__ import annotations

from math import inf

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
        """Return the joules above idle since the last reading; 0 for a repeated one, and after a longer time."""
        before, self._before = self._before, (at, joules)
        if before is None or not 0 < (elapsed_s := at - before[0]) <= _LONGEST_S:
            return 0.0
        power_w = (joules - before[1]) / elapsed_s
        if not 0 <= power_w <= _MOST_WATTS:
            return 0.0
        self._idle_w = min(self._idle_w, power_w)
        return (power_w - self._idle_w) * elapsed_s
