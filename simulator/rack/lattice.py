"""Times that a scan tries, as offsets from now (the paper's T)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lattice:
    """0, then ``count`` steps of ``first``, ``count`` steps ``base`` times as long, and so on without end. With a
    base of 1 all steps are equal: naive is Lattice(1), bold is Lattice(32), current is Lattice(2, 2, 8).
    """

    first: int
    base: int = 1
    count: int = 1

    def offset(self, index: int) -> int:
        """Of the ``index``-th time, from 0."""
        if self.base == 1:
            return index * self.first
        level, steps = divmod(index, self.count)
        return self._start(level) + steps * self._step(level)

    def index(self, offset: int) -> int:
        """Of the first time that is not before ``offset``; so many are before it."""
        if self.base == 1:
            return -(-offset // self.first)
        level = 0
        while self._start(level + 1) < offset:
            level += 1
        return level * self.count - (self._start(level) - offset) // self._step(level)

    def _step(self, level: int) -> int:
        return self.first * self.base**level

    def _start(self, level: int) -> int:
        return self.count * self.first * (self.base**level - 1) // (self.base - 1)
