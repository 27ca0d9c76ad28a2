"""Computers for a run: those of the no-passing paper's Table 2, and others by their parameters."""

from __future__ import annotations

from dataclasses import dataclass, field

from loopline_shared.model import Facts
from loopline_simulator.fast.hosts import Pattern, Speed, Steady
from loopline_simulator.fast.world import Host
from loopline_simulator.streams import stream

PATTERN_1 = Pattern(to_loaded=1 / 1000, to_steady=1 / 100, steady=(0.95, 1.0), loaded=(0.0, 0.05))
PATTERN_2 = Pattern(to_loaded=1 / 100, to_steady=1 / 10, steady=(0.8, 1.0), loaded=(0.0, 0.2))
FITTED = 0.95
"""Factor on all speeds: the one number fitted, to the paper's mean totals."""


@dataclass(frozen=True, slots=True)
class Park:
    """Hosts of one slot each. Types take turns, so that each has an equal share of the hosts; a host's pattern is
    drawn at random. Without patterns all run steadily at their peak.
    """

    count: int = 128
    peaks: tuple[float, ...] = (1.0, 2.0, 4.0)  # reference CPU-seconds per second: 10,000 instructions each
    patterns: tuple[Pattern, ...] = (PATTERN_1, PATTERN_2)
    fit: float = FITTED
    watts: tuple[float, ...] = field(default=(), repr=False)
    """Power above idle of a busy PC, one for all or one for each type; (): not declared."""

    def hosts(self, seed: int) -> list[Host]:
        """Return the hosts of the run ``seed``. Their speeds are the same in every run of that seed, under any
        policy.
        """
        digits = len(str(self.count))
        return [
            Host(
                f"pc-{number + 1:0{digits}}",
                _facts(number % len(self.peaks)),
                self._speed(seed, number),
                joules_per_work=self.joules_per_work(number, self._peak(number) * self.fit),
            )
            for number in range(self.count)
        ]

    @property
    def capacity(self) -> float:
        """Work that all hosts do together per second, in the long run."""
        return self._mean_share * self.fit * sum(self._peak(number) for number in range(self.count))

    @property
    def fastest(self) -> float:
        """Mean speed of a host of the fastest type."""
        return self._mean_share * self.fit * max(self._peak(number) for number in range(self.count))

    @property
    def _mean_share(self) -> float:
        shares = [pattern.mean_share for pattern in self.patterns] or [1.0]
        return sum(shares) / len(shares)

    def _peak(self, number: int) -> float:
        return self.peaks[number % len(self.peaks)]

    def joules_per_work(self, number: int, speed: float) -> float:
        """Return what a reference CPU-second takes above idle on this host at this speed; 0: not declared."""
        watts = self.watts[number % len(self.peaks) % len(self.watts)] if self.watts else 0.0
        return watts / speed

    def _speed(self, seed: int, number: int) -> Speed:
        peak = self._peak(number) * self.fit
        if not self.patterns:
            return Steady(peak)
        random = stream(seed, "host", number)
        return self.patterns[int(random.integers(len(self.patterns)))].speed(peak, random)


def _facts(kind: int) -> Facts:
    return Facts("linux", "x86_64", "3", "simulated", f"type {kind + 1}", cpus=1, memory_bytes=2**33, slots=1)
