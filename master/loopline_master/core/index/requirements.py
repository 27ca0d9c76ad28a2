"""Requirement classes: jobs with equal requirements are matched against workers together.

Workers that are *able* meet the requirements and are available. Of these, the *trusted* ones (they offer slots and
are not in quarantine) serve the class; if there is none, all that are able do: a worker in quarantine still gets the
jobs that no other worker could run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from loopline_master.core.entities import Job, Worker
from loopline_shared.model import Facts
from loopline_shared.spec import Requirements

RequirementClass = tuple[str | None, int, frozenset[str], int, bool, str | None]


def requirement_class_of(requires: Requirements) -> RequirementClass:
    """Return the requirement class; it is equal for requirements that the same workers meet."""
    labels = frozenset(requires.labels)
    return (requires.os, requires.memory_bytes, labels, requires.slots, requires.network, requires.python)


def slots_of(key: RequirementClass) -> int:
    """Return the slots that one task of the class occupies."""
    return key[3]


def meets(facts: Facts, key: RequirementClass, most_bytes: int | None = None) -> bool:
    """True if a computer with these facts, otherwise idle, could run a job of the class.

    ``most_bytes`` is taken for its memory if it is given.
    """
    os, memory_bytes, labels, slots, network, python = key
    return (
        (os is None or facts.os == os)
        and (facts.memory_bytes if most_bytes is None else most_bytes) >= memory_bytes
        and (not labels or labels <= set(facts.labels))
        and facts.slots >= slots
        and (facts.network or not network)
        and (python is None or facts.functions == python)
    )


@dataclass(slots=True)
class RequirementIndex:
    """Jobs by requirement class, and the available workers that meet each."""

    jobs: dict[RequirementClass, set[int]] = field(default_factory=dict)
    able: dict[RequirementClass, set[str]] = field(default_factory=dict)
    trusted: dict[RequirementClass, set[str]] = field(default_factory=dict)  # of these
    workers: dict[RequirementClass, set[str]] = field(default_factory=dict)  # that serve: one of the two sets above
    reliable: dict[str, int] = field(default_factory=dict)  # workers that are trusted: slots that they offer
    available: dict[str, Worker] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)  # of these, as they were entered
    keys: dict[int, RequirementClass] = field(default_factory=dict)  # by job
    quorums: dict[RequirementClass, Counter[int]] = field(default_factory=dict)  # of how many jobs
    widest: int = 0  # slots, of all these requirements
    _served: dict[str, list[RequirementClass]] = field(default_factory=dict, compare=False)  # worked out so far

    def served_by(self, worker: str) -> list[RequirementClass]:
        """Return the requirement classes that this worker serves."""
        found = self._served.get(worker)
        if found is None:
            found = self._served[worker] = [key for key, names in self.workers.items() if worker in names]
        return found

    def served_in(self, slots: int, worker: str) -> list[RequirementClass]:
        """Return the requirement classes of at most ``slots`` slots that this worker serves."""
        served = self.served_by(worker)
        return served if self.widest <= slots else [key for key in served if slots_of(key) <= slots]

    def key_of(self, job: Job) -> RequirementClass:
        """Return the job's requirement class, computed once for as long as the job is in the grid."""
        return self.keys.get(job.id) or requirement_class_of(job.spec.requires)

    def add_job(self, job: Job) -> None:
        key = self.keys[job.id] = requirement_class_of(job.spec.requires)
        if key not in self.jobs:
            self.jobs[key] = set()
            self.widest = max(self.widest, slots_of(key))
            self.able[key] = {w.name for w in self.available.values() if meets(w.facts, key)}
            self.trusted[key] = {n for n in self.able[key] if self.reliable.get(n, 0) >= slots_of(key)}
            self._served.clear()
        if job.quorum and job.id not in self.jobs[key]:
            self._served.clear()
            self.quorums.setdefault(key, Counter())[job.quorum] += 1
        self.workers[key] = self._serving(key)
        self.jobs[key].add(job.id)

    def drop_job(self, job: Job) -> None:
        key = self.keys.pop(job.id)
        self.jobs[key].remove(job.id)
        if job.quorum:
            self._served.clear()
            self.quorums[key] -= Counter([job.quorum])  # and what is left of none goes
            if not self.quorums[key]:
                del self.quorums[key]
        if self.jobs[key]:
            self.workers[key] = self._serving(key)
        else:
            self._served.clear()
            del self.jobs[key], self.able[key], self.trusted[key], self.workers[key]
            self.widest = max(map(slots_of, self.jobs), default=0)

    def place_worker(self, worker: Worker) -> list[RequirementClass]:
        """Enter a worker as it is now. Return the classes whose jobs may starve, or no longer starve, for it.

        These are the classes that it was the last or is the first to be able to meet, and those with a quorum that it
        joins or leaves. Its facts change only while it is away: see worker_sessions.join.
        """
        if self.knows(worker):
            return []
        self._served.clear()
        if worker.is_available:
            self.available[worker.name], self.facts[worker.name] = worker, worker.facts
        else:
            self.available.pop(worker.name, None)
            self.facts.pop(worker.name, None)
        self.reliable.pop(worker.name, None)
        if worker.is_trusted:
            self.reliable[worker.name] = worker.offered
        changed = []
        for key, able in self.able.items():
            before, meets_it = len(able), worker.is_available and meets(worker.facts, key)
            _toggle(able, worker.name, meets_it)
            _toggle(self.trusted[key], worker.name, meets_it and self.reliable.get(worker.name, 0) >= slots_of(key))
            self.workers[key] = self._serving(key)
            if len(able) != before and (key in self.quorums or not (able and before)):
                changed.append(key)
        return changed

    def knows(self, worker: Worker) -> bool:
        """True if the worker is entered as it is now."""
        offered = worker.offered if worker.is_trusted else 0
        facts = worker.facts if worker.is_available else None
        return self.facts.get(worker.name) is facts and self.reliable.get(worker.name, 0) == offered

    def is_starved(self, job: Job) -> bool:
        """True if no available worker could run the job, or too few for its quorum."""
        return len(self.able[self.keys[job.id]]) < (job.quorum or 1)

    def fits(self, job: Job, worker: Worker) -> bool:
        """True if this worker serves the job's requirement class."""
        return worker.name in self.workers[self.keys[job.id]]

    def _serving(self, key: RequirementClass) -> set[str]:
        """Return the trusted workers, or all that are able if there is none or a quorum: votes check each other."""
        return self.able[key] if key in self.quorums else self.trusted[key] or self.able[key]


def _toggle(names: set[str], name: str, present: bool) -> None:
    if present:
        names.add(name)
    else:
        names.discard(name)
