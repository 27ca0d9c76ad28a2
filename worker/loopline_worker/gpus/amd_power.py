"""Energy of AMD's GPUs, from the power that their driver shows in hwmon: it has no energy counter.

For a GPU that is a part of the processor, that is the power of both: its energy is not known.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_FILES = ("power1_average", "power1_input")
"""Microwatts: newer GPUs have only the second."""
_LONGEST_S = 30.0
"""A GPU is read every 10 s while it is awake. The power in a longer interval is not known."""


def shows_power(device: Path) -> bool:
    """True if the driver shows the power of the GPU. It is not read: reading it would wake a suspended GPU."""
    return any(any(device.glob(f"hwmon/hwmon*/{name}")) for name in _FILES)


def watts(device: Path) -> float | None:
    """Return the present power of a GPU, whose folder in /sys is given; None if its driver does not show it."""
    for name in _FILES:
        for file in sorted(device.glob(f"hwmon/hwmon*/{name}")):
            with suppress(OSError, ValueError):
                return int(file.read_text()) / 1e6
    return None


class AmdEnergy:
    """Energy of one GPU: each interval counts with the mean of the powers at both ends."""

    def __init__(self) -> None:
        self._before: tuple[float, float] | None = None
        self._joules = 0.0

    def joules(self, at: float, device: Path) -> float | None:
        """Read the power at this time. Return the energy since the first reading; None if there is no power."""
        power_w, before = watts(device), self._before
        self._before = None if power_w is None else (at, power_w)
        if power_w is None:
            return None
        if before and at - before[0] <= _LONGEST_S:
            self._joules += (at - before[0]) * (before[1] + power_w) / 2
        return self._joules
