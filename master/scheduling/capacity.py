"""How much all workers deliver together, and how fast one must be to belong to the faster half of that."""

from __future__ import annotations

import math

_STEPS = 16
"""Speeds are told apart to one part in so many of a factor of two."""
_LEVELS = 1024
_MICRO = 1e6


class Capacity:
    """Workers by level of speed, in a Fenwick tree: each change and each question costs O(log levels).

    Sums are whole millionths, so that they do not depend on the order in which workers came and went.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[float, int]] = {}  # by worker: speed, slots
        self._tree = [0] * (_LEVELS + 1)
        self._total = 0
        self._median: int | None = None  # level, if it was asked for since the last change

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Capacity) and self._of == other._of and self._total == other._total

    __hash__ = None  # type: ignore[assignment]

    def place(self, worker: str, speed: float, slots: int) -> None:
        """So many slots of this speed; 0: the worker is not there."""
        old = self._of.get(worker, (speed, 0))
        if old == (speed, slots):
            return
        self._add(*old, sign=-1)
        self._add(speed, slots, sign=1)
        self._of[worker] = (speed, slots)
        if not slots:
            del self._of[worker]

    @property
    def total(self) -> float:
        """Reference CPU-seconds a second."""
        return self._total / _MICRO

    def is_fast(self, speed: float) -> bool:
        """Whether a worker of this speed belongs to the faster half."""
        return _level(speed) >= self._median_level()

    @property
    def median(self) -> float:
        """The greatest speed such that the workers at least as fast deliver half of the total."""
        return _slowest_of(self._median_level())

    def _median_level(self) -> int:
        if self._median is None:
            self._median = self._find_median()
        return self._median

    def _find_median(self) -> int:
        level, rest, stride = 0, self._total // 2, _LEVELS
        while stride:
            if level + stride <= _LEVELS and self._tree[level + stride] <= rest:
                level += stride
                rest -= self._tree[level]
            stride //= 2
        return level

    def _add(self, speed: float, slots: int, sign: int) -> None:
        amount = sign * round(speed * slots * _MICRO)
        self._total += amount
        self._median = None
        at = _level(speed) + 1
        while amount and at <= _LEVELS:
            self._tree[at] += amount
            at += at & -at


def _level(speed: float) -> int:
    return min(_LEVELS - 1, max(0, math.floor(_STEPS * math.log2(speed)) + _LEVELS // 2))


def _slowest_of(level: int) -> float:
    return float(2.0 ** ((level - _LEVELS // 2) / _STEPS))
