"""The index of policy ``fair``: like Index, a function of the entities.

It has the order of the jobs' turns, the workers by speed (Capacity), as the faster half serves the first job in turn,
and the tasks of a job by size (BySize), if their sizes differ.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import LIVE, Attempt, Job, Task, Worker
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.kernel.index.sorted_collections import IntervalSet, Ranking
from loopline_master.core.policies.policy import FEW, View
from loopline_shared.model import JobState, TaskId

Turn = tuple[float, int]
"""A job's place in the order of fair sharing: (tag, arrival)."""
Turns = Ranking[int, Turn]
"""Jobs by arrival, in the order of fair sharing."""
Families = dict[RequirementClass, Turns]
Takes = Callable[[RequirementClass], bool]

_STEPS = 16
"""Number of steps of speed to a factor of two; speeds within a step count as equal."""
_LEVELS = 1024
_MICRO = 1e6


class Capacity:
    """Workers by level of speed. The level of the median is kept, and moved as the workers change.

    Sums are whole millionths, so that they do not depend on the order of changes.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[float, int]] = {}  # by worker: speed, slots
        self._levels = [0] * (_LEVELS + 1)  # work per second at each level; the extra last one is empty
        self._total = 0
        self._median, self._below = _LEVELS, 0  # level at the last call, and the work per second below it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Capacity) and self._of == other._of and self._total == other._total

    __hash__ = None  # type: ignore[assignment]

    def place(self, worker: str, speed: float, slots: int) -> None:
        """Enter a worker with ``slots`` of this speed; 0 if it is away."""
        old = self._of.get(worker)
        if old == (speed, slots):
            return
        if old is not None:
            self._add(*old, sign=-1)
            del self._of[worker]
        if slots:
            self._add(speed, slots, sign=1)
            self._of[worker] = (speed, slots)

    @property
    def total(self) -> float:
        """Reference CPU-seconds a second."""
        return self._total / _MICRO

    def is_fast(self, speed: float) -> bool:
        """True if a worker of this speed belongs to the faster half."""
        return _level(speed) >= self._median_level()

    @property
    def median(self) -> float:
        """The greatest speed such that the workers at least as fast deliver half of the total."""
        return _slowest_of(self._median_level())

    def _median_level(self) -> int:
        """Return the highest level such that at most half of the work per second is below it."""
        at, below, half, levels = self._median, self._below, self._total // 2, self._levels
        while below > half:
            at -= 1
            below -= levels[at]
        while at < _LEVELS and below + levels[at] <= half:
            below += levels[at]
            at += 1
        self._median, self._below = at, below
        return at

    def _add(self, speed: float, slots: int, sign: int) -> None:
        amount, level = sign * round(speed * slots * _MICRO), _level(speed)
        self._levels[level] += amount
        self._total += amount
        if level < self._median:
            self._below += amount


def _level(speed: float) -> int:
    level = math.floor(_STEPS * math.log2(speed)) + _LEVELS // 2
    return level if 0 <= level < _LEVELS else min(_LEVELS - 1, max(0, level))


def _slowest_of(level: int) -> float:
    return float(2.0 ** ((level - _LEVELS // 2) / _STEPS))


class BySize:
    """Startable tasks by rank among all of the job's tasks; as the largest go first, the ranks stay few ranges."""

    def __init__(self, sizes: Sequence[float]) -> None:
        """``sizes`` of tasks 1 to n; none is startable yet."""
        self._number = sorted(range(1, len(sizes) + 1), key=lambda number: (sizes[number - 1], number))
        self._sizes = [sizes[number - 1] for number in self._number]
        self._rank = [0] * len(sizes)
        for rank, number in enumerate(self._number):
            self._rank[number - 1] = rank
        self._startable = IntervalSet()
        self._micro = 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BySize) and (self._startable, self._micro) == (other._startable, other._micro)

    __hash__ = None  # type: ignore[assignment]

    @property
    def work(self) -> float:
        """Return the work of all startable tasks together, in reference CPU-seconds."""
        return self._micro / _MICRO

    def place(self, number: int, startable: bool) -> None:
        rank = self._rank[number - 1]
        if startable == (rank in self._startable):
            return
        change = round(self._sizes[rank] * _MICRO)
        if startable:
            self._startable.add(rank)
            self._micro += change
        else:
            self._startable.discard(rank)
            self._micro -= change

    def place_all(self, numbers: IntervalSet) -> None:
        """Make these tasks startable, and no others."""
        self._startable = IntervalSet.of(sorted(self._rank[number - 1] for number in numbers))
        self._micro = sum(round(self._sizes[rank] * _MICRO) for rank in self._startable)

    def largest(self, limit: float, but: int | None) -> int | None:
        """Return the largest task whose size is at most ``limit``, other than ``but``."""
        rank = self._startable.last_up_to(bisect_right(self._sizes, limit) - 1)
        if rank is not None and self._number[rank] == but:
            rank = self._startable.last_up_to(rank - 1)
        return None if rank is None else self._number[rank]

    def smallest(self, but: int | None) -> int | None:
        """Return the smallest task, other than ``but``."""
        rank = self._startable.first_after(-1)
        if rank is not None and self._number[rank] == but:
            rank = self._startable.first_after(rank)
        return None if rank is None else self._number[rank]


@dataclass(slots=True)
class FairIndex:
    view: View = field(compare=False, repr=False)
    capacity: Capacity = field(default_factory=Capacity)
    idle: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)  # (-speed, worker)
    new: Families = field(default_factory=dict)  # jobs never run, with a task to start
    ready: Families = field(default_factory=dict)  # jobs with a task to start
    turns: Turns = field(default_factory=Ranking)  # of all live jobs
    tails: Families = field(default_factory=dict)  # jobs with none, but with running tasks that could be copied
    alone: dict[int, Ranking[int, tuple[float, int]]] = field(default_factory=dict)
    """By job: tasks of one attempt with room for another, as (expected end, task)."""
    sizes: dict[int, BySize | None] = field(default_factory=dict)  # by job; None: its tasks have equal sizes

    def __post_init__(self) -> None:
        for worker in self.view.workers.values():
            self.place_worker(worker)
        for task in self.view.tasks.values():
            self.place_task(task)
        for job in self.view.jobs.values():
            self.place_job(job)

    def place_worker(self, worker: Worker) -> None:
        speed = measure.speed_now(worker)
        self.capacity.place(worker.name, speed, worker.offered if worker.is_available else 0)
        is_idle = worker.name in self.view.index.slots.idle.keys
        self.idle.place(worker.name, (-speed, worker.name) if is_idle else None)

    def place_task(self, task: Task) -> bool:
        job, ready_set = self.view.jobs[task.job], self.view.index.ready_sets[task.job]
        if not job.is_live:
            return False
        by_size = self.sizes.get(job.id)
        if by_size is not None:
            is_waiting = task.number in ready_set.to_retry
            by_size.place(task.number, is_waiting or task.number in self.view.fresh(job))
        ends = None
        if task.number in ready_set.replicable and self.view.index.attempts.alive.get(task.id) == 1:
            alone = self._alive(task.id)[0]
            if not alone.is_queued:
                ends = alone.since + alone.expected_s, task.number
        ranking = self.alone.get(job.id)
        if ranking is None:
            ranking = self.alone[job.id] = Ranking()
        had_any = bool(ranking.keys)
        ranking.place(task.number, ends)
        if ranking.keys:
            return not had_any
        del self.alone[job.id]
        return had_any

    def place_job(self, job: Job) -> None:
        key, turn = self.view.index.requirements.key_of(job), (job.tag, job.arrival)
        if not job.is_live:
            self.sizes.pop(job.id, None)
            self.alone.pop(job.id, None)
            self.turns.place(job.arrival, None)
        elif job.id not in self.sizes:
            self.sizes[job.id] = self._by_size(job)
            self.turns.place(job.arrival, turn)
        elif self.turns.keys[job.arrival] != turn:  # its tag changes as it becomes overdrawn, or proves not to be
            self.turns.place(job.arrival, turn)
        is_ready = self.view.index.is_ready(job)
        has_alone = job.id in self.alone and not job.paused and self.view.index.may_replicate(job)
        is_new = job.state is JobState.QUEUED and job.turn == job.arrival  # a session is new with its first job
        _toggle(self.new, key, turn, is_ready and is_new)
        _toggle(self.ready, key, turn, is_ready)
        _toggle(self.tails, key, turn, has_alone and not is_ready)

    def fastest_idle(self) -> Iterator[Worker]:
        """Return workers with free slots, fastest first. A worker that was given nothing is not offered again."""
        passed_over = None
        while (entry := self.idle.next_after(passed_over)) is not None:
            worker = self.view.workers[entry[1]]
            free = self.view.index.slots.free_slots(worker)
            yield worker
            if self.view.index.slots.free_slots(worker) == free:
                passed_over = entry

    def keys_met(self, worker: Worker) -> Collection[RequirementClass]:
        """Return the requirement classes that the worker serves now; only classes of one slot if it is busy."""
        index = self.view.index
        return index.requirements.served_in(index.slots.free_slots(worker) or 1, worker.name, index.turn)

    def are_all_in(self, known: set[RequirementClass]) -> bool:
        """True if these include the requirement classes of all jobs with a task to start or to copy."""
        turn = self.view.index.turn
        if turn is None:
            return known.issuperset(self.ready) and known.issuperset(self.tails)
        wanted = self.view.index.requirements.wanted
        return known.issuperset(wanted(self.ready, turn)) and known.issuperset(wanted(self.tails, turn))

    def in_turn(
        self, keys: Collection[RequirementClass], takes: Takes, *families: Families, most: int
    ) -> Iterator[Job]:
        """Return jobs of these classes in the order of fair sharing: at most ``most`` of each family.

        ``takes`` says whether a class is among them.
        """
        if len(keys) > FEW:
            turns: Iterable[Turn] = self._turns_of_many(keys, takes, families, most)
        elif len(families) == 1:
            turns = islice(_merged(_members(families[0], keys)), most)
        else:
            found = [members for family in families if (members := _members(family, keys))]
            turns = _merged([islice(_merged(members), most) for members in found])
        for _, arrival in turns:
            yield self.view.index.live[arrival]

    def _turns_of_many(
        self, keys: Collection[RequirementClass], takes: Takes, families: Sequence[Families], most: int
    ) -> Iterable[Turn]:
        """Return the turns of these families; all classes of a family with few are asked."""
        few = [
            [turns.order for key, turns in family.items() if takes(key)] for family in families if len(family) <= FEW
        ]
        many = [family for family in families if len(family) > FEW]
        found: list[Iterable[Turn]] = [islice(_merged(members), most) for members in few if members]
        return _merged([*found, self._looked_up(keys, takes, many, most)] if many else found)

    def _looked_up(
        self, keys: Collection[RequirementClass], takes: Takes, families: Sequence[Families], most: int
    ) -> Iterator[Turn]:
        """Check as many jobs in turn as there are classes before asking each class: the next is usually there."""
        live, class_of, left = self.view.index.live, self.view.index.requirements.keys, [most] * len(families)
        last: Turn = (-math.inf, 0)
        for last in islice(self.turns.order, len(keys)):
            key = class_of[live[last[1]].id]
            for at, family in enumerate(families):
                if left[at] and key in family and last[1] in family[key].keys and takes(key):
                    left[at] -= 1
                    yield last
            if not any(left):
                return
        rest = [_merged(_later(family, keys, last)) for family in families]
        yield from merge(*(islice(turns, count) for turns, count in zip(rest, left, strict=True)))

    def unassigned(self, job: Job) -> float:
        """Return the work of the job's tasks not yet started, including the held one, in reference CPU-seconds."""
        by_size = self.sizes[job.id]
        if by_size is not None:
            return by_size.work * measure.unit_of(job)
        count = len(self.view.fresh(job)) + len(self.view.index.ready_sets[job.id].to_retry)
        return count * measure.mean_work(self.view.grid, job)

    def largest(self, job: Job, limit: float) -> int | None:
        """Return the largest task of the job that may be started, of a size of at most ``limit``."""
        by_size = self.sizes[job.id]
        if by_size is not None:
            return by_size.largest(limit / measure.unit_of(job), but=self._held_back(job))
        if limit == math.inf or measure.mean_work(self.view.grid, job) <= limit:
            return self._any_startable(job)
        return None

    def smallest(self, job: Job) -> int | None:
        """Return the smallest task of the job that may be started."""
        by_size = self.sizes[job.id]
        if by_size is not None:
            return by_size.smallest(but=self._held_back(job))
        return self._any_startable(job)

    def extremes(self, job: Job) -> list[Attempt]:
        """Return two of the job's attempts that run alone: the longest overdue, and the one to end last."""
        if job.id not in self.alone:
            return []
        order = self.alone[job.id].order
        return [self._alive(job.task_id(number))[0] for _, number in (order[0], order[-1])]

    def left(self, job: Job, attempt: Attempt) -> float:
        """Return the seconds that an attempt of the job is expected to have left."""
        return measure.left_of(self.view.grid, job, self.view.workers[attempt.worker], attempt)

    def late_from(self, job: Job, attempt: Attempt, left_s: float) -> float:
        """Return the time from which the attempt is late enough to be expected to take ``left_s`` more."""
        return measure.late_from(self.view.grid, job, self.view.workers[attempt.worker], attempt, left_s)

    def _alive(self, task: TaskId) -> list[Attempt]:
        return [a for a in self.view.index.attempts.of_task.get(task, {}).values() if a.state in LIVE]

    def _held_back(self, job: Job) -> int | None:
        return self.view.fresh(job).first_after(0) if self.view.index.is_held(job) else None

    def _any_startable(self, job: Job) -> int | None:
        to_retry = self.view.index.ready_sets[job.id].to_retry
        if to_retry.starts:
            return to_retry.starts[0]
        return None if self.view.index.is_held(job) else self.view.fresh(job).first_after(0)

    def _by_size(self, job: Job) -> BySize | None:
        sizes = _differing_sizes(job)
        if not sizes:
            return None
        by_size = BySize(sizes)
        by_size.place_all(self.view.fresh(job))
        for number in self.view.index.ready_sets[job.id].to_retry:
            by_size.place(number, True)
        return by_size


def _members(family: Families, keys: Collection[RequirementClass]) -> list[Iterable[Turn]]:
    return [family[key].order for key in keys if key in family]


def _later(family: Families, keys: Collection[RequirementClass], turn: Turn) -> list[Iterable[Turn]]:
    return [_after(family[key].order, turn) for key in keys if key in family]


def _after(order: Sequence[Turn], turn: Turn) -> Iterator[Turn]:
    return (order[at] for at in range(bisect_right(order, turn), len(order)))


def _toggle(family: Families, key: RequirementClass, turn: Turn, present: bool) -> None:
    """Enter a job's turn under its requirement class, or drop it; a class without turns is removed."""
    turns = family.get(key)
    if present:
        if turns is None:
            turns = family[key] = Ranking()
        turns.place(turn[1], turn)
    elif turns is not None:
        turns.place(turn[1], None)
        if not turns.keys:
            del family[key]


def _merged(turns: Sequence[Iterable[Turn]]) -> Iterable[Turn]:
    """Return all turns in order; each input is in order."""
    return merge(*turns) if len(turns) > 1 else turns[0] if turns else ()


def _differing_sizes(job: Job) -> list[float]:
    """Return the sizes of all the job's tasks, with the mean where one is missing; an empty list if all are equal."""
    given = [task.size for task in job.spec.tasks or () if task.size is not None]
    if not given or (len(given) == job.task_count and min(given) == max(given)):
        return []
    mean = sum(given) / len(given)
    return [task.size if task.size is not None else mean for task in job.spec.tasks or ()]
