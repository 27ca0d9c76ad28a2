"""The pool: the computers of a grid as a planner's ground, each with some slots.

A piece of time is a tuple of sets of workers: at place k those with more than k slots free. A set is an integer, one
bit a worker, so that a question about a thousand workers takes one operation.

A gang is placed on the fewest switches, for its members talk to one another: on one that has enough workers, of these
on the one with the fewest; else on those with the most. Among equals, names decide: the choice is a function of what
is free and of no history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

Workers = int
"""A set of workers, one bit each."""
Piece = tuple[Workers, ...]
"""Workers with more than 0, 1, 2, ... slots free."""
Share = tuple[Workers, int]
"""What a gang takes of the pool: so many slots on each of these workers."""
Machines = tuple[str, ...]
"""Names of a gang's workers, by rank."""


@dataclass(frozen=True, slots=True)
class PlannedGang:
    """A gang as the planner sees it: its job's number, the steps that its limit takes, and what it needs."""

    number: int
    limit: int
    nodes: int  # workers ...
    slots: int  # ... and slots on each
    eligible: Workers  # that may run it


class Pool:
    """Workers by bit, with the switch that each is connected to. At first none of them has a slot free."""

    def __init__(self) -> None:
        self.bits: dict[str, int] = {}  # by name
        self._names: list[str] = []  # by bit
        self._switches: list[str] = []

    @property
    def empty(self) -> Piece:
        return ()

    def enter(self, name: str, switch: str) -> None:
        """Enter a worker, or the switch to which a known one is connected now."""
        bit = self.bits.get(name)
        if bit is None:
            self.bits[name] = len(self._names)
            self._names.append(name)
            self._switches.append(switch)
        else:
            self._switches[bit] = switch

    def of(self, names: Collection[str]) -> Workers:
        """Return the set of these workers, as far as they are entered."""
        bits = self.bits
        return sum(1 << bits[name] for name in names if name in bits)

    def occupy(self, piece: Piece, cells: Share) -> Piece:
        workers, slots = cells
        others, shifted = ~workers, (*piece[slots:], *(0,) * slots)
        return _trimmed([(now & others) | (then & workers) for now, then in zip(piece, shifted, strict=False)])

    def free(self, piece: Piece, cells: Share) -> Piece:
        workers, slots = cells
        others, more, shifted = ~workers, (*piece, *(0,) * slots), (*(-1,) * slots, *piece)
        return _trimmed([(now & others) | (then & workers) for now, then in zip(more, shifted, strict=True)])

    def releases(self, before: Piece, after: Piece) -> bool:
        return len(after) > len(before) or any(now & ~then for then, now in zip(before, after, strict=False))

    def cells(self, job: PlannedGang, place: Machines) -> Share:
        return self.of(place), job.slots

    def place(self, pieces: Sequence[Piece], job: PlannedGang) -> Machines | None:
        """Return the workers of a gang, on the fewest switches, that have its slots free throughout the pieces."""
        free, level, nodes = job.eligible, job.slots - 1, job.nodes
        for piece in pieces:
            free = free & piece[level] if level < len(piece) else 0
            if free.bit_count() < nodes:
                return None
        return self._chosen(free, nodes)

    def holds(self, pieces: Sequence[Piece], share: Share) -> bool:
        """True if these workers have these slots free throughout the pieces."""
        workers, slots = share
        return all(slots <= len(piece) and not workers & ~piece[slots - 1] for piece in pieces)

    def _chosen(self, free: Workers, nodes: int) -> Machines:
        """Return so many of these workers, by switch and name."""
        on: dict[str, list[str]] = defaultdict(list)
        for bit in _bits(free):
            on[self._switches[bit]].append(self._names[bit])
        chosen: list[str] = []
        while len(chosen) < nodes:
            left = nodes - len(chosen)
            enough = [switch for switch, names in on.items() if len(names) >= left]
            if enough:
                switch = min(enough, key=lambda one: (len(on[one]), one))
            else:
                switch = min(on, key=lambda one: (-len(on[one]), one))
            chosen += sorted(on.pop(switch))[:left]
        return tuple(chosen)


def _bits(workers: Workers) -> Iterator[int]:
    while workers:
        low = workers & -workers
        yield low.bit_length() - 1
        workers ^= low


def _trimmed(levels: list[Workers]) -> Piece:
    """Return the levels without the empty ones at the end, so that equal pieces compare as equal."""
    while levels and not levels[-1]:
        levels.pop()
    return tuple(levels)
