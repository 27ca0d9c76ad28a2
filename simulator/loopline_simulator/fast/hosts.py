"""Computers of fluctuating speed.

The end of a task is found by searching an integral of the speed, which is faster than stepping through time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from loopline_simulator.streams import Generator

Floats = NDArray[np.float64]
_CHUNK = 2048
"""Units of time whose speeds are drawn at once."""


class Speed(Protocol):
    """Speed of a host at each moment, in reference CPU-seconds per second."""

    def end_of(self, start: float, work: float) -> float:
        """Return the time when ``work`` reference CPU-seconds begun at ``start`` are done."""

    def work_between(self, start: float, end: float) -> float:
        """Return the work done from ``start`` to ``end``."""


@dataclass(frozen=True, slots=True)
class Steady:
    """A constant speed."""

    speed: float

    def end_of(self, start: float, work: float) -> float:
        return start + work / self.speed

    def work_between(self, start: float, end: float) -> float:
        return (end - start) * self.speed


class Fluctuating:
    """A speed that changes each unit of time, drawn in chunks on demand."""

    def __init__(self, draw: Callable[[int], Floats]) -> None:
        """Take ``draw(n)``, which returns the speeds of the next n units of time (from 0 on)."""
        self._draw = draw
        self._done: Floats = np.zeros(1)  # work done from 0 to each whole unit of time

    def end_of(self, start: float, work: float) -> float:
        target = self._at(start) + work
        while self._done[-1] < target:
            self._extend()
        unit = int(self._done.searchsorted(target)) - 1
        if unit < 0:
            return start
        before, after = float(self._done[unit]), float(self._done[unit + 1])
        return max(start, unit + (target - before) / (after - before))

    def work_between(self, start: float, end: float) -> float:
        return self._at(end) - self._at(start)

    def _at(self, time: float) -> float:
        unit = int(time)
        while unit + 1 >= len(self._done):
            self._extend()
        before = float(self._done[unit])
        return before + (time - unit) * (float(self._done[unit + 1]) - before)

    def _extend(self) -> None:
        speeds = self._draw(max(_CHUNK, len(self._done) - 1))
        self._done = np.concatenate((self._done, self._done[-1] + np.cumsum(speeds)))


@dataclass(frozen=True, slots=True)
class Pattern:
    """Pattern of an owner's use (the no-passing paper, Table 2): a chain of two states, stepped every unit of time.

    The speed, as a share of the peak, is drawn every unit, uniformly between the bounds of the state.
    """

    to_loaded: float
    to_steady: float
    steady: tuple[float, float]
    loaded: tuple[float, float]

    @property
    def mean_share(self) -> float:
        """Mean speed as a share of the peak, in the long run."""
        loaded = self.to_loaded / (self.to_loaded + self.to_steady)
        return (1 - loaded) * sum(self.steady) / 2 + loaded * sum(self.loaded) / 2

    def speed(self, peak: float, random: Generator) -> Fluctuating:
        """Return a host's speed that follows the pattern, in its long-run state at time 0."""
        return Fluctuating(_Chain(self, peak, random).draw)


class _Chain:
    def __init__(self, pattern: Pattern, peak: float, random: Generator) -> None:
        self._pattern, self._peak, self._random = pattern, peak, random
        self._is_loaded = bool(random.random() < pattern.to_loaded / (pattern.to_loaded + pattern.to_steady))

    def draw(self, count: int) -> Floats:
        loaded = self._states(count)
        low = np.where(loaded, self._pattern.loaded[0], self._pattern.steady[0])
        high = np.where(loaded, self._pattern.loaded[1], self._pattern.steady[1])
        return self._peak * (low + (high - low) * self._random.random(count))

    def _states(self, count: int) -> NDArray[np.bool_]:
        """Return for each of the next units whether the owner loads the machine.

        The length of a state is geometric and so has no memory: the last one is cut at the chunk's end, and the next
        chunk draws another.
        """
        leaving = (self._pattern.to_steady, self._pattern.to_loaded)
        stays: list[int] = []
        first, total = self._is_loaded, 0
        while total < count:
            stay = int(self._random.geometric(leaving[0 if first ^ (len(stays) % 2 == 1) else 1]))
            stays.append(min(stay, count - total))
            total += stays[-1]
            cut = total == count and stay > stays[-1]
        loaded = np.repeat([first ^ (place % 2 == 1) for place in range(len(stays))], stays)
        last = bool(loaded[-1])
        self._is_loaded = last if cut else not last
        return loaded
