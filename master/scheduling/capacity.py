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
        self._of: dict[str, tuple[int, int]] = {}  # by worker: level, millionths of reference CPU-seconds a second
        self._tree = [0] * (_LEVELS + 1)
        self._total = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Capacity) and self._of == other._of and self._total == other._total

    __hash__ = None  # type: ignore[assignment]

    def place(self, worker: str, speed: float, slots: int) -> None:
        """So many slots of this speed; 0: the worker is not there."""
        new = (_level(speed), round(speed * slots * _MICRO)) if slots else None
        old = self._of.pop(worker, None)
        if new is not None:
            self._of[worker] = new
        if old == new:
            return
        if old is not None:
            self._add(old[0], -old[1])
        if new is not None:
            self._add(*new)

    @property
    def total(self) -> float:
        """Reference CPU-seconds a second."""
        return self._total / _MICRO

    @property
    def median(self) -> float:
        """The greatest speed such that the workers at least as fast deliver half of the total."""
        level, rest, stride = 0, self._total // 2, _LEVELS
        while stride:
            if level + stride <= _LEVELS and self._tree[level + stride] <= rest:
                level += stride
                rest -= self._tree[level]
            stride //= 2
        return _slowest_of(level)

    def _add(self, level: int, amount: int) -> None:
        self._total += amount
        at = level + 1
        while at <= _LEVELS:
            self._tree[at] += amount
            at += at & -at


def _level(speed: float) -> int:
    return min(_LEVELS - 1, max(0, math.floor(_STEPS * math.log2(speed)) + _LEVELS // 2))


def _slowest_of(level: int) -> float:
    return float(2.0 ** ((level - _LEVELS // 2) / _STEPS))
