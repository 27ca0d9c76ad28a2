"""Who could run what: jobs with the same requirements are one *demand*, matched against workers together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from master.scheduling.model import Job, Worker
from shared.model import Facts
from shared.spec import Requirements

Key = tuple[str | None, int, frozenset[str], int, bool, str | None]


def demand_of(requires: Requirements) -> Key:
    """Equal for requirements that the same workers meet."""
    labels = frozenset(requires.labels)
    return (requires.os, requires.memory_bytes, labels, requires.slots, requires.network, requires.python)


def slots_of(key: Key) -> int:
    """How many slots one of its tasks occupies."""
    return key[3]


def meets(facts: Facts, key: Key) -> bool:
    """Whether such a computer could run it at all (with nothing else running)."""
    os, memory_bytes, labels, slots, network, python = key
    return (
        (os is None or facts.os == os)
        and facts.memory_bytes >= memory_bytes
        and labels <= set(facts.labels)
        and facts.slots >= slots
        and (facts.network or not network)
        and (python is None or facts.functions == python)
    )


@dataclass(slots=True)
class Demand:
    """Jobs by requirements, and the available workers that meet each."""

    jobs: dict[Key, set[int]] = field(default_factory=dict)
    workers: dict[Key, set[str]] = field(default_factory=dict)
    available: dict[str, Worker] = field(default_factory=dict)
    keys: dict[int, Key] = field(default_factory=dict)  # by job
    quorums: dict[Key, Counter[int]] = field(default_factory=dict)  # of those jobs that have one, how many

    def key_of(self, job: Job) -> Key:
        """What the job requires, worked out once for as long as it is in the grid."""
        return self.keys.get(job.id) or demand_of(job.spec.requires)

    def add_job(self, job: Job) -> None:
        key = self.keys[job.id] = demand_of(job.spec.requires)
        if key not in self.jobs:
            self.jobs[key] = set()
            self.workers[key] = {w.name for w in self.available.values() if meets(w.facts, key)}
        if job.spec.quorum and job.id not in self.jobs[key]:
            self.quorums.setdefault(key, Counter())[job.spec.quorum] += 1
        self.jobs[key].add(job.id)

    def drop_job(self, job: Job) -> None:
        key = self.keys.pop(job.id)
        self.jobs[key].remove(job.id)
        if job.spec.quorum:
            self.quorums[key] -= Counter([job.spec.quorum])  # and what is left of none goes
            if not self.quorums[key]:
                del self.quorums[key]
        if not self.jobs[key]:
            del self.jobs[key], self.workers[key]

    def place_worker(self, worker: Worker) -> list[Key]:
        """Enter a worker as it is now; the demands that had too few workers, or have too few now. (What it can
        meet changes only while it is away: see presence.join.)
        """
        if worker.is_available == (worker.name in self.available):
            return []
        if worker.is_available:
            self.available[worker.name] = worker
        else:
            self.available.pop(worker.name, None)
        changed = []
        for key, names in self.workers.items():
            before = len(names)
            if worker.is_available and meets(worker.facts, key):
                names.add(worker.name)
            else:
                names.discard(worker.name)
            if len(names) != before and min(len(names), before) < max(self.quorums.get(key, (1,))):
                changed.append(key)
        return changed

    def is_starved(self, job: Job) -> bool:
        """No available worker could run it, or too few for its quorum."""
        return len(self.workers[self.keys[job.id]]) < (job.spec.quorum or 1)

    def fits(self, job: Job, worker: Worker) -> bool:
        """Whether this available worker could run this job."""
        return worker.name in self.workers[self.keys[job.id]]
