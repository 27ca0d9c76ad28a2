"""The price of a CPU-second in joules, above the power that the computer draws when it is idle. Pure.

The owner's programs and tasks run at the same time, and no meter tells them apart. So the energy of an interval, less
that of an idle computer, is shared in proportion to CPU time among all programs that ran in it. The tasks are charged
their part; the rest is the owner's.

While a computer is on only because the grid woke it, tasks are charged for all of its energy. The remainder is the
part that CPU time does not account for.
"""

from __future__ import annotations

_LEAST_BUSY = 0.5
"""Cores. Intervals with less use give no price."""


class EnergyPrice:
    """Follows measured intervals, one after another."""

    def __init__(self, idle_w: float | None = None, declared: float | None = None) -> None:
        """``idle_w``: the least power seen before, in watts; None: none was measured yet.

        ``declared``: a price in joules that stays; None: it is measured.
        """
        self.idle_w = idle_w
        self._is_declared = declared is not None
        self.charged_j = 0.0  # to all attempts
        self._ahead_j = self._ahead_cpu_s = 0.0  # charged since the last interval, for CPU time after it
        self._debt_j = 0.0  # charged beyond the measured energy
        self.joules_per_cpu_s: float | None = declared
        """Of the last interval that gave a price; None: it is not known now."""

    def add(self, joules: float | None, elapsed_s: float, busy_cpu_s: float, apart_j: float = 0.0) -> None:
        """Apply an interval: its energy, its length and the CPU time of all programs. None: it was not measured.

        ``apart_j``: the part of the energy that tasks are charged for elsewhere.

        The idle power is the lowest mean power of any interval. Until the computer has been idle once, it is too
        high, and prices are too low. If more was charged than measured, the next intervals cost less.
        """
        if self._is_declared:
            return
        price = None
        if joules is not None and elapsed_s > 0:
            power_w = joules / elapsed_s
            self.idle_w = power_w if self.idle_w is None else min(self.idle_w, power_w)
            left_j = joules - self.idle_w * elapsed_s - apart_j - self._debt_j
            self._debt_j, price = max(0.0, -left_j), self.joules_per_cpu_s
            if busy_cpu_s >= _LEAST_BUSY * elapsed_s:
                price = max(0.0, left_j) / busy_cpu_s
        self._debt_j += max(0.0, self._ahead_j - (price or 0.0) * self._ahead_cpu_s)
        self._ahead_j = self._ahead_cpu_s = 0.0
        self.joules_per_cpu_s = price

    def charge(self, cpu_s: float, *, is_measured: bool = True) -> float:
        """Return the joules that CPU time takes now; 0 while the price is not known.

        ``is_measured``: the time is of the last interval, not after it.
        """
        joules = (self.joules_per_cpu_s or 0.0) * cpu_s
        self.charged_j += joules
        if not is_measured:
            self._ahead_j += joules
            self._ahead_cpu_s += cpu_s
        return joules


class Remainder:
    """Energy of a computer that the grid woke, which no attempt was charged for yet."""

    def __init__(self) -> None:
        self.joules = 0.0
        self._charged_j = 0.0

    def add(self, joules: float | None, charged_j: float) -> None:
        """Apply an interval. ``joules``: to be charged in full; None: the computer is on anyway, or asleep.

        ``charged_j``: the charges by CPU time since the agent started. The remainder outlasts a sleep, and the next
        attempt is charged for the time after the last one. It is below 0 while more was charged than measured.
        """
        charged_j, self._charged_j = charged_j - self._charged_j, charged_j
        if joules is not None:
            self.joules += joules - charged_j

    def forget(self) -> None:
        """Begin at 0 again: the owner has returned."""
        self.joules = 0.0

    def share_out(self, shares: int) -> float:
        """Return the part of each attempt, and begin at 0 again. Without attempts the remainder stays."""
        if not shares or self.joules <= 0:
            return 0.0
        joules, self.joules = self.joules / shares, 0.0
        return joules
