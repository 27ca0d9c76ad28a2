"""Workers that have too few units of their resources left, for classes whose attempts hold some.

Workers with equal remainders lack units for the same needs, so these are computed once. If the units left on a worker
change, only the classes are updated that the worker can now serve, or no longer can.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field

from loopline_master.core.kernel.entities import Worker
from loopline_master.core.kernel.index.units import NO_UNITS, NeedPart, RequirementClass, ResourceNeeds, Units

_MOST_LEFT = 1024
"""Number of different remainders of a resource whose unmet needs are remembered."""


@dataclass(slots=True, eq=False)
class CountedClass:
    """Workers of a class whose attempts hold units."""

    candidates: set[str]  # they serve the class as long as they have units left
    enough: set[str]  # candidates with enough left; the same set if the class holds no worker's resources
    serving: set[str]  # the same set, or an empty one while a limit is used up


@dataclass(slots=True, eq=False)
class _NeedingClasses:
    """Classes with the same needs of workers' resources."""

    lacking: dict[str, int] = field(default_factory=dict)  # number of resources that are short, by worker
    classes: dict[RequirementClass, CountedClass] = field(default_factory=dict)


@dataclass(slots=True)
class LackingWorkers:
    """Workers that cannot serve classes now for lack of units. ``available``: the workers that may serve any."""

    available: Mapping[str, Worker]
    units: Units = NO_UNITS
    _needing: dict[ResourceNeeds, _NeedingClasses] = field(default_factory=dict)
    _with_part: dict[str, dict[NeedPart, list[_NeedingClasses]]] = field(default_factory=dict)
    """The same by resource and by the part of their needs that concerns it."""
    _lacked: dict[str, dict[str, Set[NeedPart]]] = field(default_factory=dict)
    """Parts of needs that a worker cannot meet now, by resource and available worker."""
    _lacking: dict[str, dict[Hashable, Set[NeedPart]]] = field(default_factory=dict)
    """The same by resource and the units left, for all workers, as far as computed."""

    def with_enough(self, key: RequirementClass, needs: ResourceNeeds, candidates: set[str]) -> set[str]:
        """Return the candidates of a class that have enough units left."""
        enough = candidates - self._needing[needs].lacking.keys()
        return enough - {worker for worker in self.units.kept if self.units.is_short(worker, key)}

    def change(self, worker: str, resources: Iterable[str], *, one_by_one: bool = False) -> None:
        """Take in that a worker has more or fewer units of these resources left.

        ``one_by_one``: classes with the same needs may differ, because units are kept for one, or were until now.
        """
        if worker not in self.available:
            return
        is_kept = one_by_one or worker in self.units.kept
        for name in resources:
            if not (parts := self._with_part.get(name)):
                continue
            lacked, now = self._lacked[name], self._parts_lacked(worker, name)
            before, lacked[worker] = lacked[worker], now
            for part in before ^ now:
                change = 1 if part in now else -1
                for needing in parts[part]:
                    lacking = needing.lacking[worker] = needing.lacking.get(worker, 0) + change
                    if not lacking:
                        del needing.lacking[worker]
                    if lacking <= max(change, 0) and not is_kept:
                        self._place_in(worker, needing)
            for needing in {id(one): one for alike in parts.values() for one in alike}.values() if is_kept else ():
                self._place_in(worker, needing)

    def place(self, worker: str) -> None:
        """Enter the units that a worker has left, or drop it if it is not available."""
        for name in self._with_part:
            self._lacked[name].pop(worker, None)
            if worker in self.available:
                self._lacked[name][worker] = self._parts_lacked(worker, name)
        for needs, needing in self._needing.items():
            self._count_lacking(worker, needs, needing)
            self._place_in(worker, needing)

    def add(self, key: RequirementClass, needs: ResourceNeeds, counted: CountedClass) -> None:
        """Enter a class whose attempts hold workers' resources."""
        needing = self._needing.get(needs) or self._begin_needs(needs)
        needing.classes[key] = counted

    def drop(self, key: RequirementClass, needs: ResourceNeeds) -> None:
        """Drop a class."""
        needing = self._needing[needs]
        del needing.classes[key]
        if not needing.classes:
            del self._needing[needs]
            for name, units, kind in needs:
                parts = self._with_part[name]
                parts[units, kind].remove(needing)
                if not parts[units, kind]:
                    del parts[units, kind]
                    self._know_parts(name)

    def _place_in(self, worker: str, needing: _NeedingClasses) -> None:
        """Enter a worker into classes of the same needs, or drop it if it has too little left."""
        is_short, is_kept = worker in needing.lacking, worker in self.units.kept
        for key, counted in needing.classes.items():
            if is_short or worker not in counted.candidates or (is_kept and self.units.is_short(worker, key)):
                counted.enough.discard(worker)
            else:
                counted.enough.add(worker)

    def _begin_needs(self, needs: ResourceNeeds) -> _NeedingClasses:
        needing = self._needing[needs] = _NeedingClasses()
        for name, units, kind in needs:
            alike = self._with_part.setdefault(name, {}).setdefault((units, kind), [])
            alike.append(needing)
            if len(alike) == 1:
                self._know_parts(name)
        for worker in self.available:
            self._count_lacking(worker, needs, needing)
        return needing

    def _count_lacking(self, worker: str, needs: ResourceNeeds, needing: _NeedingClasses) -> None:
        needing.lacking.pop(worker, None)
        lacking = sum((units, kind) in self._lacked[name].get(worker, ()) for name, units, kind in needs)
        if lacking:
            needing.lacking[worker] = lacking

    def _know_parts(self, name: str) -> None:
        """Take in that there are more or fewer parts of needs that concern this resource."""
        self._lacking[name] = {}
        self._lacked[name] = {worker: self._parts_lacked(worker, name) for worker in self.available}
        if not self._with_part[name]:
            del self._with_part[name], self._lacking[name], self._lacked[name]

    def _parts_lacked(self, worker: str, name: str) -> Set[NeedPart]:
        """Return the parts of needs that exceed the units left of a worker's resource."""
        known, left = self._lacking[name], self.units.left_of(worker, name)
        if left not in known:
            if len(known) >= _MOST_LEFT:
                known.clear()
            known[left] = {part for part in self._with_part[name] if self.units.lacks(worker, ((name, *part),))}
        return known[left]
