"""What the owner of the computer leaves over, measured without our own processes."""

from __future__ import annotations

import math
import time

from shared.model import Load
from worker.computer import Computer
from worker.pressure import Pressure

SAMPLE_EVERY_S = 2.0
_MEMORY_GOOD_FOR_S = 0.25
"""Reading it takes as long as all the rest of a Report."""
_SMOOTH_S = 6.0
"""Two thirds of a change show within this time."""


class Meter:
    """Fed with our own CPU time every now and then; answers with a smoothed Load at any time."""

    def __init__(self, computer: Computer) -> None:
        self._computer = computer
        self._last: tuple[float, float] | None = None  # when, CPU seconds that others had used
        self._spare_cpu: float | None = None
        self._pressure = Pressure()
        self._memory = (-math.inf, 0)  # when it was read, what was available

    @property
    def spare_cpu(self) -> float:
        """Cores; all of them before anything is measured."""
        return self._computer.cores if self._spare_cpu is None else self._spare_cpu

    def sample(self, own_cpu_s: float) -> None:
        """Measure; ``own_cpu_s`` is all that the agent and its tasks have used so far."""
        now = time.monotonic()
        self._pressure = Pressure.now()
        others_cpu_s = self._computer.busy_cpu_s() - own_cpu_s
        if self._last and now > self._last[0]:
            elapsed_s = now - self._last[0]
            self._smooth(self._spare(max(0.0, others_cpu_s - self._last[1]) / elapsed_s), elapsed_s)
        self._last = (now, others_cpu_s)

    def load(self, slots: int, disk_free_bytes: int) -> Load:
        now, pressure = time.monotonic(), self._pressure
        if now - self._memory[0] > _MEMORY_GOOD_FOR_S:
            self._memory = now, self._computer.memory_available_bytes()
        return Load(
            slots,
            round(self.spare_cpu, 3),
            self._memory[1],
            disk_free_bytes,
            pressure.cpu,
            pressure.memory,
            pressure.io,
        )

    def _spare(self, others_cores: float) -> float:
        return max(0.0, min(self._computer.cores, self._computer.measured_cores - others_cores))

    def _smooth(self, spare_cpu: float, elapsed_s: float) -> None:
        weight = 1.0 if self._spare_cpu is None else 1 - math.exp(-elapsed_s / _SMOOTH_S)
        self._spare_cpu = (self._spare_cpu or 0.0) * (1 - weight) + spare_cpu * weight
