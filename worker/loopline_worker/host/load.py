"""The load by other programs, and the spare CPU that it leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from loopline_worker.host.computer import Computer
from loopline_worker.host.pressure import Pressure

SAMPLE_EVERY_S = 2.0
_GOOD_FOR_S = 0.25
_SMOOTH_S = 6.0
"""Time constant of the smoothing: two thirds of a change show within this time."""


class Recent:
    """A figure remembered for a moment, because reading it takes as long as all the rest of a Report."""

    def __init__(self, read: Callable[[], int]) -> None:
        self._read = read
        self._at = -math.inf
        self._figure = 0

    def __call__(self) -> int:
        now = time.monotonic()
        if now - self._at > _GOOD_FOR_S:
            self._figure, self._at = self._read(), now
        return self._figure


class Meter:
    """Measures the CPU time that other programs leave, smoothed; it needs our own CPU time now and then."""

    def __init__(self, computer: Computer) -> None:
        self._computer = computer
        self._last: tuple[float, float] | None = None  # when, and the CPU seconds that others had used
        self._spare_cpu: float | None = None
        self.pressure = Pressure()
        self.memory_available_bytes = Recent(computer.memory_available_bytes)

    @property
    def spare_cpu(self) -> float:
        """Spare cores; all of them before anything is measured."""
        return self._computer.cores if self._spare_cpu is None else self._spare_cpu

    def sample(self, own_cpu_s: float) -> None:
        """Measure. ``own_cpu_s``: the CPU time of the agent and its tasks so far."""
        now = time.monotonic()
        self.pressure = Pressure.now()
        others_cpu_s = self._computer.busy_cpu_s() - own_cpu_s
        if self._last and now > self._last[0]:
            elapsed_s = now - self._last[0]
            self._smooth(self._spare(max(0.0, others_cpu_s - self._last[1]) / elapsed_s), elapsed_s)
        self._last = (now, others_cpu_s)

    def _spare(self, others_cores: float) -> float:
        return max(0.0, min(self._computer.cores, self._computer.measured_cores - others_cores))

    def _smooth(self, spare_cpu: float, elapsed_s: float) -> None:
        weight = 1.0 if self._spare_cpu is None else 1 - math.exp(-elapsed_s / _SMOOTH_S)
        self._spare_cpu = (self._spare_cpu or 0.0) * (1 - weight) + spare_cpu * weight
