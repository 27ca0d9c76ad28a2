"""The speed that a worker needs to belong to the faster half of all that workers deliver together."""

from __future__ import annotations

import math

_STEPS = 16
"""Speeds are told apart to one part in so many of a factor of two."""
_LEVELS = 1024
_MICRO = 1e6


class Capacity:
    """Workers by level of speed. The level of the median is kept, and moves over by as much as has changed.

    Sums are whole millionths, so that they do not depend on the order in which workers came and went.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[float, int]] = {}  # by worker: speed, slots
        self._levels = [0] * (_LEVELS + 1)  # what is delivered at each, and nothing beyond the last
        self._total = 0
        self._median, self._below = _LEVELS, 0  # level, as last asked for, and what is delivered below it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Capacity) and self._of == other._of and self._total == other._total

    __hash__ = None  # type: ignore[assignment]

    def place(self, worker: str, speed: float, slots: int) -> None:
        """Enter a worker with so many slots of this speed; 0 if it is away."""
        old = self._of.get(worker)
        if old == (speed, slots):
            return
        if old is not None:
            self._add(*old, sign=-1)
            del self._of[worker]
        if slots:
            self._add(speed, slots, sign=1)
            self._of[worker] = (speed, slots)

    @property
    def total(self) -> float:
        """Reference CPU-seconds a second."""
        return self._total / _MICRO

    def is_fast(self, speed: float) -> bool:
        """True if a worker of this speed belongs to the faster half."""
        return _level(speed) >= self._median_level()

    @property
    def median(self) -> float:
        """The greatest speed such that the workers at least as fast deliver half of the total."""
        return _slowest_of(self._median_level())

    def _median_level(self) -> int:
        """Return the highest level below which at most half is delivered."""
        at, below, half, levels = self._median, self._below, self._total // 2, self._levels
        while below > half:
            at -= 1
            below -= levels[at]
        while at < _LEVELS and below + levels[at] <= half:
            below += levels[at]
            at += 1
        self._median, self._below = at, below
        return at

    def _add(self, speed: float, slots: int, sign: int) -> None:
        amount, level = sign * round(speed * slots * _MICRO), _level(speed)
        self._levels[level] += amount
        self._total += amount
        if level < self._median:
            self._below += amount


def _level(speed: float) -> int:
    level = math.floor(_STEPS * math.log2(speed)) + _LEVELS // 2
    return level if 0 <= level < _LEVELS else min(_LEVELS - 1, max(0, level))


def _slowest_of(level: int) -> float:
    return float(2.0 ** ((level - _LEVELS // 2) / _STEPS))
