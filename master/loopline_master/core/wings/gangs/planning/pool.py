"""The pool: the computers of a grid as a planner's ground, each with some slots.

A piece of time is one integer that holds the free slots of every worker, each in a field of its own. So taking slots
of many workers is one subtraction, and testing a thousand of them for enough slots is one addition: it carries into
the highest bit of each field with enough, the *guard*.

A gang is placed on the fewest switches, because its members communicate: on one switch that has enough workers, and
of these on the one with the fewest; else on those with the most. Among equals, names decide: the choice is a function
of the free slots and not of history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import compress

Workers = int
"""A set of workers: the lowest bit of the field of each."""
Piece = int
"""Free slots of each worker, in its field."""
Share = tuple[Workers, int]
"""A gang's part of the pool: workers, and slots on each of them."""
Machines = tuple[str, ...]
"""Names of a gang's workers, by rank."""

_BYTES = 2
"""Size of a field. Below its guard is room for ``MOST_SLOTS``."""
_GUARD = 8 * _BYTES - 1
MOST_SLOTS = (1 << _GUARD) - 1
"""Slots of one worker that can be planned."""


@dataclass(frozen=True, slots=True)
class PlannedGang:
    """A gang in the planner's view: its job's number, its limit in steps, and its needs."""

    number: int
    limit: int
    nodes: int  # workers ...
    slots: int  # ... and slots on each
    eligible: Workers  # the workers that may run it ...
    later: tuple[tuple[int, Workers], ...] = ()  # ... and more from a time on, when they have its units left
    resources: frozenset[str] = frozenset()  # that it needs units of


class Pool:
    """Workers by field, with the switch that each is connected to. At first none of them has a slot free."""

    def __init__(self) -> None:
        self._fields: dict[str, int] = {}  # by name
        self._names: list[str] = []  # by field
        self._switches: list[str] = []
        self._all: Workers = 0
        self._kept: dict[Hashable, tuple[set[str], Workers]] = {}

    @property
    def empty(self) -> Piece:
        return 0

    def enter(self, name: str, switch: str) -> Workers:
        """Enter a worker, or its present switch if it is known. Return it as a set."""
        field = self._fields.setdefault(name, len(self._names))
        if field == len(self._names):
            self._names.append(name)
            self._switches.append(switch)
            self._all |= 1 << 8 * _BYTES * field
        self._switches[field] = switch
        return 1 << 8 * _BYTES * field

    def of(self, names: Collection[str]) -> Workers:
        """Return the set of these workers, as far as they are entered."""
        fields, found = self._fields, bytearray(len(self._names) * _BYTES)
        for name in names:
            if name in fields:
                found[fields[name] * _BYTES] = 1
        return int.from_bytes(found, "little")

    def kept(self, key: Hashable, names: Collection[str]) -> Workers:
        """Return the set of these workers, from memory if this key was last used with the same workers."""
        known = self._kept.get(key)
        if known is None or known[0] != names:
            known = self._kept[key] = set(names), self.of(names)
        return known[1]

    def occupy(self, piece: Piece, cells: Share) -> Piece:
        return piece - cells[0] * cells[1]

    def free(self, piece: Piece, cells: Share) -> Piece:
        return piece + cells[0] * cells[1]

    def releases(self, before: Piece, after: Piece) -> bool:
        guards = self._all << _GUARD
        return ((before | guards) - after) & guards != guards

    def cells(self, job: PlannedGang, place: Machines) -> Share:
        return self.of(place), job.slots

    def place(self, pieces: Sequence[Piece], job: PlannedGang, start: int) -> Machines | None:
        """Return the workers of a gang, on the fewest switches, that have its slots free throughout the pieces."""
        able = self.able(pieces, job, start)
        return self._chosen(able, job.nodes) if able else None

    def able(self, pieces: Sequence[Piece], job: PlannedGang, start: int) -> Workers:
        """Return all workers that have the slots of a gang free throughout the pieces; none if there are too few."""
        eligible = job.eligible
        for at, workers in job.later:
            if at <= start:
                eligible |= workers
        free, nodes, missing = eligible << _GUARD, job.nodes, _missing(self._all, job.slots)
        for piece in pieces:
            free &= piece + missing
            if free.bit_count() < nodes:
                return 0
        return free >> _GUARD

    def holds(self, pieces: Sequence[Piece], share: Share) -> bool:
        """True if these workers have these slots free throughout the pieces."""
        workers, slots = share
        guards, missing = workers << _GUARD, _missing(workers, slots)
        return all(guards & ~(piece + missing) == 0 for piece in pieces)

    def _chosen(self, free: Workers, nodes: int) -> Machines:
        """Return ``nodes`` of these workers, by switch and name."""
        on: dict[str, list[str]] = defaultdict(list)
        for name, switch in compress(zip(self._names, self._switches, strict=True), self._flags(free)):
            on[switch].append(name)
        return on_fewest_switches(on, nodes)

    def names(self, workers: Workers) -> list[str]:
        """Return the names of these workers."""
        return [*compress(self._names, self._flags(workers))]

    def _flags(self, workers: Workers) -> bytes:
        return workers.to_bytes(len(self._names) * _BYTES, "little")[::_BYTES]


def on_fewest_switches(on: dict[str, list[str]], nodes: int) -> Machines:
    """Return ``nodes`` of the workers, given by switch: on the fewest switches, by switch and name."""
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


def _missing(workers: Workers, slots: int) -> int:
    """Return the summand that, added to a piece, carries into the guards of the workers with ``slots`` free."""
    return workers * ((1 << _GUARD) - slots)
