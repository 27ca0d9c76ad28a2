"""The price of a CPU-second in joules, above the power that the computer draws when it is idle. Pure.

The owner's programs and tasks run at the same time, and no meter tells them apart. So the energy of an interval, less
that of an idle computer, is shared in proportion to CPU time among all programs that ran in it. The tasks are charged
their part; the rest is the owner's.
"""

from __future__ import annotations

_LEAST_BUSY = 0.1
"""Cores. An interval with less use does not tell what a CPU-second takes."""


class EnergyPrice:
    """Follows measured intervals, one after another."""

    def __init__(self, idle_w: float | None = None) -> None:
        """``idle_w``: the least power seen before, in watts; None: none was measured yet."""
        self.idle_w = idle_w
        self.joules_per_cpu_s: float | None = None
        """Of the latest interval that tells it; None: it is not known now."""

    def add(self, joules: float | None, elapsed_s: float, busy_cpu_s: float, apart_j: float = 0.0) -> None:
        """Apply an interval: its energy, its length and the CPU time of all programs. None: it was not measured.

        ``apart_j``: the part of the energy that tasks are charged for elsewhere.

        The idle power is the lowest mean power of any interval. Until the computer has been idle once, it is too
        high, and prices are too low.
        """
        if joules is None or elapsed_s <= 0:
            self.joules_per_cpu_s = None
            return
        power_w = joules / elapsed_s
        self.idle_w = power_w if self.idle_w is None else min(self.idle_w, power_w)
        if busy_cpu_s >= _LEAST_BUSY * elapsed_s:
            self.joules_per_cpu_s = max(0.0, joules - self.idle_w * elapsed_s - apart_j) / busy_cpu_s
