"""Requirement classes: jobs with equal requirements are matched against workers together.

*Able* workers meet the requirements and are available. *Trusted* workers are able, offer slots and are not in
quarantine; they serve the class. If there are none, all able workers serve it: a worker in quarantine still gets the
jobs that no other worker could run.

A class whose attempts hold units (units.py) is served by no worker while these are used up, so that policies do not
propose its jobs again and again. Workers without enough units of a resource do not serve it (lacking_workers.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.kernel.index.lacking_workers import CountedClass, LackingWorkers
from loopline_master.core.kernel.index.requirement_class import (
    alone_in,
    holds_units,
    kind_of,
    limits_of,
    meets,
    nodes_of,
    owner_of,
    requirement_class_of,
    resources_of,
    slots_of,
)
from loopline_master.core.kernel.index.units import NO_UNITS, Units
from loopline_master.core.kernel.index.units import RequirementClass as RequirementClass
from loopline_shared.model import Facts

Entry = TypeVar("Entry", bound="tuple[Any, ...]")
_Alike = tuple[tuple[object, ...], int, str | None]

_NONE = dict[RequirementClass, None]()
_NOBODY: set[str] = set()
"""Workers of a class whose units are used up."""
_MOST_ALIKE = 1024
"""Number of kinds of workers, for all users or for one, whose served classes are remembered."""
_MOST_LEFT = 64
"""Number of classes without a job that are remembered."""


@dataclass(slots=True)
class _LeftClass:
    """A requirement class as it was when its last job left; it stays valid until a worker changes."""

    able: set[str]
    trusted: set[str]
    workers: set[str]  # the workers that served: one of the two sets above
    serving: list[dict[RequirementClass, None]]  # served classes of those workers, where this class was included


@dataclass(slots=True)
class RequirementIndex:
    """Jobs by requirement class, and the available workers that meet each.

    The classes that a worker serves are computed once for all equal workers, and kept while classes come and go.
    Those that hold units are checked each time: they change with every start.
    """

    jobs: dict[RequirementClass, set[int]] = field(default_factory=dict)
    able: dict[RequirementClass, set[str]] = field(default_factory=dict)
    trusted: dict[RequirementClass, set[str]] = field(default_factory=dict)  # subset of ``able``
    workers: dict[RequirementClass, set[str]] = field(default_factory=dict)  # serving: one of the two sets above
    reliable: dict[str, int] = field(default_factory=dict)  # slots offered by trusted workers
    available: dict[str, Worker] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)  # of the available workers, as they were entered
    keys: dict[int, RequirementClass] = field(default_factory=dict)  # by job
    quorums: dict[RequirementClass, Counter[int]] = field(default_factory=dict)  # number of jobs with each quorum
    of_owner: dict[str, dict[RequirementClass, None]] = field(default_factory=dict)  # an ordered set, by arrival
    widths: Counter[int] = field(default_factory=Counter)  # number of classes by slots of a task
    widest: int = 0  # maximum of ``widths``
    holding: dict[str | int, dict[str, dict[RequirementClass, int]]] = field(default_factory=dict)
    """Classes whose attempts hold units, by the name of a limit or resource, or by the number of their only job.

    By user, with the units of a limit that each task holds; 0 for a resource.
    """
    out: set[RequirementClass] = field(default_factory=set)  # classes whose units are used up
    units: Units = field(default=NO_UNITS, repr=False, compare=False)
    lacking: LackingWorkers = field(init=False, repr=False, compare=False)
    _counted: dict[RequirementClass, CountedClass] = field(default_factory=dict, compare=False)
    _served: dict[str, dict[RequirementClass, None]] = field(default_factory=dict, compare=False)
    """Served classes that hold no units, by worker, as far as computed."""
    _alike: dict[_Alike, tuple[Facts, dict[RequirementClass, None]]] = field(default_factory=dict, compare=False)
    """Served classes by kind, slots that a trusted worker offers, and user; with the facts of one such worker."""
    _left: dict[RequirementClass, _LeftClass] = field(default_factory=dict, compare=False)
    """Classes whose last job has left: usually the next job belongs to one of them."""

    def __post_init__(self) -> None:
        self.lacking = LackingWorkers(self.available)

    def count_by(self, units: Units) -> None:
        """Query these counts of units from now on."""
        self.units = self.lacking.units = units

    def served_by(self, worker: str, owner: str | None = None) -> Collection[RequirementClass]:
        """Return the requirement classes that this worker serves, for all users or for one."""
        found = self._served.get(worker) if owner is None else None
        if found is None:
            found = self._served_by_its_kind(worker, owner)
            if owner is None:
                self._served[worker] = found
        if not self._counted:
            return found.keys()
        counted = [key for key, one in self._counted.items() if worker in one.serving]
        if owner is not None:
            counted = [key for key in counted if owner_of(key) == owner]
        return [*found, *counted]

    def served_in(self, slots: int, worker: str, owner: str | None = None) -> Collection[RequirementClass]:
        """Return the classes of at most ``slots`` slots that this worker serves, for all users or for one."""
        served: Collection[RequirementClass] | None = self._served.get(worker) if owner is None else None
        if served is None or self._counted:  # seldom
            served = self.served_by(worker, owner)
        return served if self.widest <= slots else [key for key in served if slots_of(key) <= slots]

    @property
    def counts_units(self) -> bool:
        """True if attempts of some class hold units."""
        return bool(self._counted)

    @property
    def counted(self) -> Collection[RequirementClass]:
        """The classes whose attempts hold units."""
        return self._counted.keys()

    def serves_any(
        self, family: Mapping[RequirementClass, object], slots: int, worker: str, owner: str | None
    ) -> bool:
        """True if a class in the family is in ``served_in``."""
        if not self._counted:
            return not family.keys().isdisjoint(self.served_in(slots, worker, owner))
        takes = self.taken_by(worker, slots, owner)
        if any(worker in one.serving and key in family and takes(key) for key, one in self._counted.items()):
            return True
        return any(key in family and takes(key) for key in self._served_by_its_kind(worker, owner))

    def taken_by(self, worker: str, slots: int, owner: str | None) -> Callable[[RequirementClass], bool]:
        """Return a function that says whether a class would be in ``served_in``, without computing the others."""
        workers = self.workers
        return lambda key: worker in workers[key] and slots_of(key) <= slots and owner in (None, owner_of(key))

    def idle_that_serve(
        self, family: Container[RequirementClass], owner: str | None, idle: Mapping[str, Entry]
    ) -> list[Entry] | None:
        """Return the entries of idle workers that serve a class in a family, in order; None if all of them may."""
        found, count = list[Set[str]](), 0
        for key, names in self.workers.items():
            if names and owner in (None, owner_of(key)) and key in family:
                found.append(
                    idle.keys() & names if self._counted else names
                )  # with units, busy workers serve it, too
                count += len(found[-1])
                if count >= len(idle):
                    return None
        return sorted({idle[name] for names in found for name in names if name in idle})

    def wanted(self, family: Mapping[RequirementClass, object], owner: str | None) -> Collection[RequirementClass]:
        """Return the classes in a family, for all users or for one."""
        if owner is None:
            return family.keys()
        return [key for key in self.of_owner.get(owner, ()) if key in family]

    def owners_in(self, family: Container[RequirementClass]) -> list[str]:
        """Return the users, by name, who have a class in the family."""
        return sorted(owner for owner, keys in self.of_owner.items() if any(key in family for key in keys))

    def key_of(self, job: Job) -> RequirementClass:
        """Return the job's requirement class, computed once for its time in the grid."""
        return self.keys.get(job.id) or self._class_of(job)

    def _class_of(self, job: Job) -> RequirementClass:
        if not job.holds_units:
            return requirement_class_of(job.spec.requires, job.nodes, job.owner)
        alone = 0 if job.max_running is None else job.id
        return requirement_class_of(job.spec.requires, job.nodes, job.owner, limits=self.units.limits, alone=alone)

    def add_job(self, job: Job) -> None:
        if job.id in self.keys:
            return
        key = self.keys[job.id] = self._class_of(job)
        is_new = key not in self.jobs
        if job.quorum:
            self.quorums.setdefault(key, Counter())[job.quorum] += 1
        if is_new:
            self._begin_class(key, job.owner)
        elif job.quorum:
            self._choose(key)
        self.jobs[key].add(job.id)

    def drop_job(self, job: Job) -> None:
        key = self.keys.pop(job.id)
        self.jobs[key].remove(job.id)
        if job.quorum:
            self.quorums[key] -= Counter([job.quorum])  # this also removes a count of zero
            if not self.quorums[key]:
                del self.quorums[key]
        if self.jobs[key]:
            self._choose(key)
            return
        left = _LeftClass(self.able.pop(key), self.trusted.pop(key), self.workers.pop(key), [])
        if holds_units(key):
            self._hold(key, holds=False)
            self.out.discard(key)
            del self._counted[key]
        else:
            left.serving += [served for _, served in self._alike.values() if key in served]
            for served in left.serving:
                del served[key]
            if len(self._left) >= _MOST_LEFT:
                self._left.clear()
            self._left[key] = left
        del self.jobs[key]
        del self.of_owner[job.owner][key]
        if not self.of_owner[job.owner]:
            del self.of_owner[job.owner]
        self._count_width(slots_of(key), -1)

    def place_worker(self, worker: Worker) -> list[RequirementClass]:
        """Enter a worker as it is now. Return the classes whose jobs may starve, or no longer starve, because of it.

        These are the classes for which it was the last or is the first able worker, and the classes with a quorum or
        several nodes that it joins or leaves. Its facts change only while it is away: see worker_sessions.join.
        """
        if self.knows(worker):
            return []
        name, is_as_it_was = worker.name, self.facts.get(worker.name) is worker.facts
        self._left.clear()
        self._served.pop(name, None)
        if worker.is_available:
            self.available[name], self.facts[name] = worker, worker.facts
        else:
            self.available.pop(name, None)
            self.facts.pop(name, None)
        self.reliable.pop(name, None)
        if worker.is_trusted:
            self.reliable[name] = worker.offered
        changed, offered = [], self.reliable.get(name, 0)
        for key, able in self.able.items():
            before = len(able)
            meets_it = worker.is_available and (name in able if is_as_it_was else meets(worker.facts, key))
            _toggle(able, name, meets_it)
            _toggle(self.trusted[key], name, meets_it and offered >= slots_of(key))
            self._choose(key)
            if len(able) != before and (key in self.quorums or nodes_of(key) > 1 or not (able and before)):
                changed.append(key)
        if self._counted:
            self.lacking.place(name)
        return changed

    def knows(self, worker: Worker) -> bool:
        """True if the worker is entered as it is now."""
        offered = worker.offered if worker.is_trusted else 0
        facts = worker.facts if worker.is_available else None
        return self.facts.get(worker.name) is facts and self.reliable.get(worker.name, 0) == offered

    def is_met(self, key: RequirementClass) -> bool:
        """True if enough available workers meet the class; also False if that is not known at once."""
        able = self.able[key] if key in self.able else self._left[key].able if key in self._left else ()
        return len(able) >= nodes_of(key)

    def is_starved(self, job: Job) -> bool:
        """True if no available worker could run the job, or too few for its quorum or its gangs."""
        return len(self.able[self.keys[job.id]]) < (job.quorum or job.nodes)

    def serving(self, job: Job) -> set[str]:
        """Return the workers that serve the job's requirement class."""
        return self.workers[self.keys[job.id]]

    def with_resources(self, key: RequirementClass) -> set[str]:
        """Return the workers that would serve a class if no limit were used up."""
        return self._counted[key].enough if key in self._counted else self.workers.get(key, _NOBODY)

    def lacking_resources(self, key: RequirementClass) -> set[str]:
        """Return the workers that would serve a class if they had more units of their resources left."""
        counted = self._counted.get(key)
        return counted.candidates - counted.enough if counted else _NOBODY

    def fits(self, job: Job, worker: Worker) -> bool:
        """True if this worker serves the job's requirement class."""
        return worker.name in self.workers[self.keys[job.id]]

    def _served_by_its_kind(self, worker: str, owner: str | None) -> dict[RequirementClass, None]:
        """Return the classes without units that workers like this one serve, computed for the first of them."""
        facts = self.facts.get(worker)
        if facts is None:
            return _NONE  # the worker is away
        kind = kind_of(facts), self.reliable.get(worker, 0), owner
        known = self._alike.get(kind)
        if known is None:
            if len(self._alike) >= _MOST_ALIKE:
                self._forget_served()
            keys = self.workers if owner is None else self.of_owner.get(owner, ())
            self._left.clear()  # they do not record whether this kind of worker served them
            served = {key: None for key in keys if not holds_units(key) and worker in self.workers[key]}
            known = self._alike[kind] = facts, served
        return known[1]

    def _begin_class(self, key: RequirementClass, owner: str) -> None:
        """Begin a class with its first job. The sets kept since its last job left are still valid."""
        self.jobs[key] = set()
        self.of_owner.setdefault(owner, {})[key] = None
        self._count_width(slots_of(key), 1)
        left = self._left.pop(key, None)
        if left is not None:
            self.able[key], self.trusted[key] = left.able, left.trusted
        else:
            able = self.able[key] = {one.name for one in self.available.values() if meets(one.facts, key)}
            self.trusted[key] = {name for name in able if self.reliable.get(name, 0) >= slots_of(key)}
        if holds_units(key):
            self._hold(key, holds=True)
            if self.units.are_out(key):
                self.out.add(key)
            self._choose(key)
            return
        self._choose(key)
        if left is not None and self.workers[key] is left.workers:
            for served in left.serving:
                served[key] = None
        else:
            self._serve(key)

    def _serve(self, key: RequirementClass) -> None:
        """Enter a class that holds no units into the served classes of all workers that serve it."""
        for (_, slots, user), (facts, served) in self._alike.items():
            is_in = self.workers[key] is self.able[key] or slots >= slots_of(key)
            if is_in and user in (None, owner_of(key)) and meets(facts, key):
                served[key] = None

    def units_change(self, of: str | int) -> None:
        """Take in that more or fewer units are left of a limit, or of a job's limit of running attempts."""
        out, aside = self.out, self.units.aside_for(of)
        for user, classes in self.holding.get(of, {}).items():
            spare = self.units.spare(of, user)
            if spare >= max(classes.values()) and out.isdisjoint(classes):
                continue
            for key, units in classes.items():
                is_short = spare < (0 if key == aside else units)
                if is_short is not (key in out) and (is_short or not self.units.are_out(key)):
                    (out.add if is_short else out.discard)(key)
                    counted = self._counted[key]
                    self.workers[key] = counted.serving = _NOBODY if is_short else counted.enough

    def holding_any(self, of: str | int) -> list[RequirementClass]:
        """Return the classes whose attempts hold units of this limit or resource, or that are this job's."""
        return [key for classes in self.holding.get(of, {}).values() for key in classes]

    def _hold(self, key: RequirementClass, *, holds: bool) -> None:
        """Enter a class whose attempts hold units, or drop it."""
        resources = resources_of(key)
        if holds:
            self._counted[key] = CountedClass(_NOBODY, _NOBODY, _NOBODY)
        if resources and holds:
            self.lacking.add(key, resources, self._counted[key])
        elif resources:
            self.lacking.drop(key, resources)
        held: list[tuple[str | int, int]] = [*((name, 0) for name, _, _ in resources), *limits_of(key)]
        for of, units in [*held, (alone_in(key), 1)] if alone_in(key) else held:
            classes = self.holding.setdefault(of, {}).setdefault(owner_of(key), {})
            if holds:
                classes[key] = units
                continue
            del classes[key]
            if not classes:
                del self.holding[of][owner_of(key)]
            if not self.holding[of]:
                del self.holding[of]

    def _candidates(self, key: RequirementClass) -> set[str]:
        """Return the workers that serve the class as long as no units are used up: the trusted, or all able ones.

        All able workers serve it if too few are trusted, or if votes check each other.
        """
        able, trusted = self.able[key], self.trusted[key]
        return able if key in self.quorums or len(trusted) < nodes_of(key) else trusted

    def _choose(self, key: RequirementClass) -> None:
        """Choose the workers that serve the class. If they change, the served classes of all are computed again."""
        chosen, before = self._candidates(key), self.workers.get(key)
        if holds_units(key):
            self.workers[key] = self._with_units(key, chosen)
        elif chosen is not before:
            self.workers[key] = chosen
            if before is not None:
                self._forget_served()

    def _with_units(self, key: RequirementClass, candidates: set[str]) -> set[str]:
        """Return those of the workers that have the units left."""
        counted = self._counted[key]
        if counted.candidates is not candidates:
            counted.candidates = counted.enough = candidates
            if needs := resources_of(key):
                counted.enough = self.lacking.with_enough(key, needs, candidates)
        counted.serving = _NOBODY if key in self.out else counted.enough
        return counted.serving

    def _forget_served(self) -> None:
        self._served.clear()
        self._alike.clear()
        self._left.clear()

    def _count_width(self, slots: int, change: int) -> None:
        self.widths[slots] += change
        if not self.widths[slots]:
            del self.widths[slots]
        self.widest = max(self.widths, default=0)


def _toggle(names: set[str], name: str, present: bool) -> None:
    if present:
        names.add(name)
    else:
        names.discard(name)
