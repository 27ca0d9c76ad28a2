"""Times that a scan tries, as offsets from now (the paper's T)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Lattice:
    """Offsets 0, then ``count`` steps of ``first``, ``count`` steps ``base`` times as long, and so on without end.

    With a base of 1 all steps are equal: naive is Lattice(1), bold is Lattice(32), current is Lattice(2, 2, 8).
    """

    first: int
    base: int = 1
    count: int = 1

    def scaled(self, step: int) -> Lattice:
        """Return the same lattice with every step ``step`` times as long."""
        return replace(self, first=self.first * step)

    def index(self, offset: int) -> int:
        """Return the index (from 0) of the first time at or after ``offset``."""
        if self.base == 1:
            return -(-offset // self.first)
        level = 0
        while self._start(level + 1) < offset:
            level += 1
        return level * self.count - (self._start(level) - offset) // self._step(level)

    def not_before(self, offset: int) -> int:
        """Return the first time at or after ``offset``."""
        if self.base == 1:
            return self.index(offset) * self.first
        level, steps = divmod(self.index(offset), self.count)
        return self._start(level) + steps * self._step(level)

    def before(self, horizon: int) -> int:
        """Return all times before ``horizon``, one bit each."""
        return _bits(self, 1 << horizon.bit_length()) & ((1 << horizon) - 1)

    def _step(self, level: int) -> int:
        return self.first * int(self.base**level)

    def _start(self, level: int) -> int:
        return self.count * self.first * (int(self.base**level) - 1) // (self.base - 1)


@lru_cache(maxsize=256)
def _bits(lattice: Lattice, horizon: int) -> int:
    """Return the times before ``horizon``, and possibly some after it."""
    if lattice.base == 1:  # 1 + 2^first + 2^(2 first) + ...
        return ((1 << lattice.first * (lattice.index(horizon) + 1)) - 1) // ((1 << lattice.first) - 1)
    bits, time = 0, 0
    while time < horizon:
        bits |= 1 << time
        time = lattice.not_before(time + 1)
    return bits
