"""Workers that could take one more task, for policies that take the next one and look for its worker.

Those with a free slot, and those at work in all slots where a task may wait, each kept by *type* of machine, in the
order of the policy's rank: so the best is found by looking at the first of each type, not at every worker.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from loopline_master.core.entities import Job, Worker
from loopline_master.core.estimates import measure
from loopline_master.core.index.requirements import Key, meets, slots_of
from loopline_master.core.policies.chance import draw
from loopline_master.core.policies.view import Placement, View
from loopline_master.core.state import State
from loopline_shared.model import Facts

Type = tuple[object, ...]
"""What machines have in common that serve the same jobs, at the same level of speed."""
Entry = tuple[float, str]

_LOOK_AT = 32
"""So many of one list are asked at most: a few already have an attempt of the task, or it has failed there."""
_STEPS = 8
"""Speeds are told apart to one part in so many of a factor of two, ..."""
_MEMORY_STEPS = 2
"""... amounts of memory to so many: each type is looked at for each task."""
_MOST = 512
"""Wishes in one step: those for whom they are granted will be heard of again soon."""


@dataclass(slots=True)
class Group:
    """Workers of one type, by (rank, name)."""

    facts: Facts = field(compare=False)
    most_bytes: int  # of memory; whether a worker itself has enough is looked at when it is its turn
    level: int  # of speed
    longest: float  # work of a task that may wait at some worker of it
    idle: list[Entry] = field(default_factory=list)
    busy: list[Entry] = field(default_factory=list)  # where a task may wait

    @property
    def speed(self) -> float:
        return float(2.0 ** (self.level / _STEPS))


@dataclass(slots=True)  # not frozen: some are made for each attempt
class Best:
    """Workers from place ``at`` on in a list, ``ties`` of them as good as the first."""

    cost: tuple[float, str]
    order: list[Entry]
    at: int
    ties: int
    ahead: bool

    @property
    def first(self) -> str:
        return self.order[self.at][1]


class Candidates:
    """A policy's own index; what it ranks by, its subclass says."""

    def __init__(self, state: State) -> None:
        self.state, self.view = state, View(state)
        self.groups: dict[Type, Group] = {}
        self._serving: dict[Key, list[Group]] = {}  # of them, worked out so far
        self._share = state.grid.share
        self._placed: dict[str, tuple[Type, bool, float]] = {}
        self._kinds: dict[str, tuple[Facts, Type]] = {}  # by worker: what its type has of its facts
        for worker in state.workers.values():
            self._place(worker)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Candidates) and self.groups == other.groups

    __hash__ = None  # type: ignore[assignment]

    # --- what a policy says -------------------------------------------------------------------------------------

    def rank(self, worker: Worker) -> float:
        """In which order workers of one type stand; of those with a free slot, and of those without, apart."""
        return 0.0

    def speed_of(self, worker: Worker) -> float:
        """Reference CPU-seconds that one slot of it is expected to deliver in a second."""
        return measure.speed_of(self.state.grid, worker)

    def fastest(self, level: int) -> float:
        """No worker of this level of speed does more in a second."""
        return float(2.0 ** ((level + 1) / _STEPS))

    def best_of(self, group: Group, order: list[Entry], work: float) -> Iterator[Best]:
        """The place in this list of the best for a task of so much work, and what it would cost there."""
        yield self._from(group, order, 0, order[0][0])

    # --- PolicyIndex --------------------------------------------------------------------------------------------

    def place_worker(self, worker: Worker) -> None:
        if self._share == self.state.grid.share:
            self._place(worker)
            return
        self._share = self.state.grid.share  # what benchmarks are worth has changed: so has every speed
        for each in self.state.workers.values():
            self._place(each)

    # --- asking -------------------------------------------------------------------------------------------------

    def wish(self, job: Job) -> Placement | None:
        """The first of the job's tasks to start for which there is a worker, on the best."""
        for task in self.view.to_start(job):
            wish = self._wish(job, task)
            if wish is not None:
                return wish
        return self._elsewhere(job)

    def _elsewhere(self, job: Job) -> Placement | None:
        """One of the other tasks that need an attempt beside those that they have, on who has none of them."""
        for _, name in sorted(group.idle[0] for group in self.groups.values() if group.idle):
            worker = self.state.workers[name]
            task = self.view.first_stranded(job, worker) if self.view.fits(job, worker) else None
            if task is not None and self._takes(job, task, name, ahead=False):
                return Placement(job.id, task, name)
        return None

    def _wish(self, job: Job, task: int) -> Placement | None:
        work = measure.work_of(self.state.grid, job, task)
        bests = self._bests(self.state.index.demand.key_of(job), work)
        found = sorted(bests, key=lambda best: (best.cost, best.first))
        if not found:
            return None
        drawn = self._drawn(job, task, [best for best in found if best.cost <= found[0].cost])
        if drawn is not None:
            return drawn
        for best in found:
            for _, name in best.order[best.at : best.at + _LOOK_AT]:
                if self._takes(job, task, name, best.ahead):
                    return Placement(job.id, task, name, best.ahead)
        return self._wide(job, task)

    def _drawn(self, job: Job, task: int, least: list[Best]) -> Placement | None:
        """One of those that are equally good, at random: by the task and how often it was tried."""
        known = self.state.tasks.get(job.task_id(task))
        chance = draw(job.id, task, known.attempts if known else 0)
        place = int(chance * sum(best.ties for best in least))
        for best in least:
            if place < best.ties:
                name = best.order[best.at + place][1]
                return Placement(job.id, task, name, best.ahead) if self._takes(job, task, name, best.ahead) else None
            place -= best.ties
        return None

    def _wide(self, job: Job, task: int) -> Placement | None:
        """A task of several slots: whoever has most of them free."""
        slots = job.slots
        for free, _, name in self.state.index.room.idle.order if slots > 1 else ():
            if -free < slots:
                break
            if self._takes(job, task, name, ahead=False):
                return Placement(job.id, task, name)
        return None

    def _takes(self, job: Job, task: int, name: str, ahead: bool) -> bool:
        worker, view = self.state.workers[name], self.view
        if ahead:
            return view.may_wait(job, task, worker)
        may_run = view.fits(job, worker) and not view.is_on(job, task, worker)
        return may_run and not view.should_go_elsewhere(job, task, worker)

    def _bests(self, key: Key, work: float) -> Iterator[Best]:
        may_wait = slots_of(key) == 1
        for group in self._groups_for(key):
            if group.idle:
                yield from self.best_of(group, group.idle, work)
            if may_wait and work <= group.longest and group.busy:
                yield from self.best_of(group, group.busy, work)

    def _groups_for(self, key: Key) -> list[Group]:
        found = self._serving.get(key)
        if found is None:
            found = self._serving[key] = [
                group for group in self.groups.values() if meets(group.facts, key, group.most_bytes)
            ]
        return found

    def _from(self, group: Group, order: list[Entry], at: int, cost: float) -> Best:
        """The worker at this place, and those of the same rank."""
        end = bisect_left(order, (order[at][0], "\U0010ffff"))
        return Best((cost, ""), order, at, max(1, end - at), order is group.busy)

    # --- placing ------------------------------------------------------------------------------------------------

    def _place(self, worker: Worker) -> None:
        name, old, new = worker.name, self._placed.get(worker.name), self._placing(worker)
        if old == new:
            return
        if old is not None:
            kind, is_idle, rank = old
            group = self.groups[kind]
            order = group.idle if is_idle else group.busy
            del order[bisect_left(order, (rank, name))]
            del self._placed[name]
            if not group.idle and not group.busy:
                del self.groups[kind]
                self._serving.clear()
        if new is not None:
            kind, is_idle, rank = self._placed[name] = new
            if kind not in self.groups:
                level = _level(self.speed_of(worker))
                longest = self.state.ahead_s * self.fastest(level)
                self.groups[kind] = Group(worker.facts, _most_bytes(worker.facts), level, longest)
                self._serving.clear()
            insort(self.groups[kind].idle if is_idle else self.groups[kind].busy, (rank, name))

    def _placing(self, worker: Worker) -> tuple[Type, bool, float] | None:
        is_idle = worker.name in self.state.index.room.idle.keys
        if not is_idle and not self.view.has_room(worker):
            return None
        return self._type(worker), is_idle, self.rank(worker)

    def _type(self, worker: Worker) -> Type:
        facts, kind = self._kinds.get(worker.name, (None, ()))
        if facts is not worker.facts:
            facts = worker.facts
            labels = frozenset(facts.labels)
            kind = (facts.os, _memory_level(facts), labels, facts.slots, facts.network, facts.functions)
            self._kinds[worker.name] = facts, kind
        return (kind, worker.is_trusted, _level(self.speed_of(worker)))


def _memory_level(facts: Facts) -> int:
    return math.floor(_MEMORY_STEPS * math.log2(max(1, facts.memory_bytes)))


def _most_bytes(facts: Facts) -> int:
    """As much as any of the type may have."""
    return int(2.0 ** ((_memory_level(facts) + 1) / _MEMORY_STEPS)) + 1


def _level(speed: float) -> int:
    return math.floor(_STEPS * math.log2(speed))


def tasks_in_order(view: View, index: Candidates, most_in_vain: int = 16) -> Iterator[Placement]:
    """Tasks in the order in which their jobs came, each on the best worker for it, until nobody can take more.

    After so many jobs of the same requirements in vain, the others of these are not asked.
    """
    in_vain: dict[Key, int] = {}
    arrival, left = 0, _MOST
    while left and index.groups and (job := view.next_to_start(arrival, in_vain, most_in_vain)) is not None:
        wish = index.wish(job)
        if wish is not None:
            left -= 1
            yield wish
        if wish is None or not view.is_on(job, wish.task, view.worker(wish.worker)):
            key = view.key_of(job)
            in_vain[key], arrival = in_vain.get(key, 0) + 1, job.arrival
