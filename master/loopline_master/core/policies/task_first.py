"""The second kind of policy: the next task asks for a worker, and takes the one of least cost.

WorkerIndex has the workers that could take one more task. Free workers, and busy ones where a task may wait, are kept
by *class*: same facts that requirements ask for, same level of speed. Within a class they are in the order of the
policy's rank. To find the best, the first of each class is checked; a change moves one worker.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from loopline_master.core.chance import draw
from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.kernel.index.requirement_class import kind_of, meets, owner_of, slots_of
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.policies.least_work import LeastWork
from loopline_master.core.policies.policy import FEW, Later, Placement, Policy, Proposal, View, first_of
from loopline_shared.model import Facts

_MOST_UNPLACED = 16
"""Limit of the unplaced jobs of one requirement class: then the others of that class are not asked."""
_MOST_PROPOSALS = 512
"""Limit for one step: workers that accepted this many will report again soon."""

ClassKey = tuple[object, ...]
"""Common properties of workers that serve the same jobs at the same level of speed."""
Ranked = list[tuple[float, str]]
"""Workers of one class, as (rank, name)."""
_LOOK_AT = 32
"""Limit of workers tried in one list: a few already run the task, or it failed there."""
_STEPS = 8
"""Number of steps of speed to a factor of two, ..."""
_MEMORY_STEPS = 2
"""... and of memory: every class is checked for each task."""
_MOST_STALLED = 8
"""Limit for each job of the tried tasks that need another attempt."""
_SPARE = 8
"""Classes without a worker that are kept beyond the number of the others, because they come back."""
_LAST = "\U0010ffff"
"""Sorts after every name."""


class TaskFirst(Policy):
    """Places tasks in the order of their jobs' arrival; ``cost`` chooses the worker."""

    draws = True
    """Among workers of equal rank and cost one is drawn at random; otherwise the first by name is taken."""

    index: WorkerIndex

    def __init__(self, view: View) -> None:
        self.index = WorkerIndex(view, self)

    @abstractmethod
    def cost(self, view: View, task: ReadyTask, candidate: Candidate) -> float | Later:
        """Return the cost of the task on this worker, the best of its class; the least of all classes wins.

        A busy candidate stands for waiting there. Later keeps the task from this candidate until then. Any finite
        unit will do; a cost in seconds can add future terms, such as the transfer of inputs.
        """

    def rank(self, view: View, worker: Worker) -> float:
        """Return the worker's place in its class, least first: the part of its cost that does not depend on the task.

        It may depend on the worker's own state alone, not on the time: it is computed when the worker changes.
        """
        return 0.0

    def speed(self, view: View, worker: Worker) -> float:
        """Return the reference CPU-seconds a second of one slot now; all workers of a class count as equally fast."""
        return measure.speed_now(worker)

    def places(self, view: View, ranked: Ranked, *, busy: bool) -> Sequence[int]:
        """Return the places in a ranked list where the best worker may be; by default the first."""
        return (0,)

    def plan(self, view: View) -> Iterator[Proposal]:
        """Propose a worker for one task after the other, until no worker can take more."""
        self.index.least_work.note(view.prefetch.changed_jobs)
        return self._proposals(view)

    def _proposals(self, view: View) -> Iterator[Proposal]:
        unplaced, after, left, index = dict[RequirementClass, int](), None, _MOST_PROPOSALS, self.index
        any_may_wait = len(view.index.ready) <= FEW or index.may_any_wait()
        while left and view.index.ready and index.placed:
            if (job := _next_job(view, after, unplaced, index, any_may_wait)) is None:
                return
            answer = index.best(job)
            if answer is not None:
                left -= 1
                yield answer
            if not isinstance(answer, Placement) or not _is_placed(view, job, answer):
                key = view.index.requirements.key_of(job)
                unplaced[key], after = unplaced.get(key, 0) + 1, job

    def prefetch(self, view: View) -> Iterator[Proposal]:
        """Return nothing: busy workers are in ``plan`` beside free ones, each at its cost."""
        return iter(())


def _next_job(
    view: View, after: Job | None, unplaced: dict[RequirementClass, int], index: WorkerIndex, any_may_wait: bool
) -> Job | None:
    """Return the first job after ``after`` with a task to start, of a class that is still worth asking.

    If no task may wait at a busy worker, a free worker must serve the class.
    """
    ready, user, last = view.index.ready, view.index.turn, 0 if after is None else after.turn
    requirements, placed = view.index.requirements, index.placed.keys()
    counted, workers = requirements.counted, requirements.workers
    is_few = len(ready) <= FEW
    if not (is_few or any_may_wait or index.is_any_free()):
        return None

    def takes(key: RequirementClass) -> bool:
        if unplaced.get(key, 0) >= _MOST_UNPLACED or (user is not None and user != owner_of(key)):
            return False
        if key in counted:  # which workers serve it changes with every start
            return not placed.isdisjoint(workers[key])
        return is_few or any_may_wait or index.is_any_free(key)

    if after is not None and (session := view.index.sessions.at.get(last)) is not None:
        arrival = session.first_ready(takes, after.arrival)
        if arrival is not None:
            return view.index.live[arrival]
    if is_few and not counted:
        wanted = ready if user is None else requirements.wanted(ready, user)
        turn = first_of([ready[key] for key in wanted if unplaced.get(key, 0) < _MOST_UNPLACED])(last)
    else:
        turn = view.index.first_of_many(ready, takes, None, last)
    if turn is not None and (session := view.index.sessions.at.get(turn)) is not None:
        turn = session.first_ready(takes)
    return None if turn is None else view.index.live[turn]


def _is_placed(view: View, job: Job, placement: Placement) -> bool:
    return view.index.on_worker(job.task_id(placement.task), placement.worker)


@dataclass(slots=True)
class WorkerClass:
    """Workers that serve the same jobs at the same level of speed."""

    facts: Facts = field(compare=False)
    most_bytes: int  # memory of the largest possible worker; each worker's own memory is checked in its turn
    speed: float  # reference CPU-seconds a second, of each slot
    longest: float  # upper bound of the work of a task that may wait at a worker of the class
    free: Ranked = field(default_factory=list)
    busy: Ranked = field(default_factory=list)  # where a task may wait


@dataclass(slots=True)  # not frozen: some are made for each attempt
class ReadyTask:
    """A task that asks for a worker."""

    job: Job
    number: int
    work: float  # expected, in reference CPU-seconds


@dataclass(slots=True)
class Candidate:
    """The best worker of a class, and the number (``ties``) of workers of the same rank, from place ``at`` on."""

    name: str
    rank: float
    speed: float
    is_busy: bool
    ranked: Ranked
    at: int
    ties: int
    cost: float = 0.0


class WorkerIndex:
    """Workers by class, a function of the workers, like every index: a worker is placed again whenever it changes."""

    def __init__(self, view: View, policy: TaskFirst) -> None:
        self.classes: dict[ClassKey, WorkerClass] = {}
        self.placed: dict[str, tuple[ClassKey, bool, float]] = {}  # workers that could take one more task
        self.least_work = LeastWork(view)
        self._view, self._policy = view, policy
        self._serving: dict[RequirementClass, list[WorkerClass]] = {}  # by requirement class, as far as computed
        self._most_classes = _SPARE
        self._kinds: dict[str, tuple[Facts, ClassKey]] = {}  # by worker: its facts, and their part of its class
        for worker in view.workers.values():
            self.place_worker(worker)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WorkerIndex) and self._in_use() == other._in_use()

    __hash__ = None  # type: ignore[assignment]

    # --- asking -------------------------------------------------------------------------------------------------

    def may_any_wait(self) -> bool:
        """True if some task to start may be short enough to wait at a worker of some class."""
        longest = max((each.longest for each in self.classes.values()), default=0.0)
        return longest > 0 and self.least_work.is_at_most(max(longest, self._view.prefetch.longest))

    def is_any_free(self, key: RequirementClass | None = None) -> bool:
        """True if a worker of some class is free: of the classes that may serve ``key``, if it is given."""
        classes = self.classes.values() if key is None else self._classes_for(key)
        return any(each.free for each in classes)

    def best(self, job: Job) -> Placement | Later | None:
        """Return the placement of the job's first task with a worker; Later if there will be a worker later."""
        later: Later | None = None
        for number in self.to_start(job):
            answer = self._best_for(job, number)
            if isinstance(answer, Placement):
                return answer
            later = _earlier(later, answer)
        return self._elsewhere(job) or later

    def to_start(self, job: Job) -> Iterator[int]:
        """Return the first of the job's tasks to start again, the first fresh one, and a few that are stalled."""
        index = self._view.index
        fresh = None if index.is_held(job) else self._view.fresh(job).first_after(0)
        again = index.ready_sets[job.id].to_retry.first_after(0)
        yield from sorted(number for number in (again, fresh) if number is not None)
        yield from islice(index.needs_replica(job), _MOST_STALLED)

    def _elsewhere(self, job: Job) -> Placement | None:
        """Return a placement of another stalled task, on a worker without an attempt of it."""
        view = self._view
        if not view.index.needs_replica(job).starts:
            return None
        for _, name in sorted(each.free[0] for each in self.classes.values() if each.free):
            worker = view.workers[name]
            task = view.first_stalled(job, worker)
            if task is not None and view.accepts(job, task, worker):
                return Placement(job.id, task, name)
        return None

    def _best_for(self, job: Job, number: int) -> Placement | Later | None:
        task = ReadyTask(job, number, measure.work_left(self._view.grid, job, number))
        found, later = self._candidates(task)
        if not found:
            return later
        found.sort(key=lambda candidate: (candidate.cost, candidate.name))
        name = self._drawn(task, found) or self._first_that_takes(task, found) or self._wide(job, number)
        return Placement(job.id, number, name) if name is not None else later

    def _candidates(self, task: ReadyTask) -> tuple[list[Candidate], Later | None]:
        """Return the best of every class that may take the task, with their costs."""
        key, work = self._view.index.requirements.key_of(task.job), task.work
        may_wait, found, later = slots_of(key) == 1, [], None
        for each in self._classes_for(key):
            if not (each.free or each.busy):
                continue  # the usual case
            candidates = self.best_of(each, busy=False) if each.free else []
            if each.busy and may_wait and work <= each.longest:
                candidates += self.best_of(each, busy=True)
            for candidate in candidates:
                cost = self._policy.cost(self._view, task, candidate)
                if isinstance(cost, Later):
                    later = _earlier(later, cost)
                else:
                    candidate.cost = cost
                    found.append(candidate)
        if self._view.data.is_known:
            self._add_near(task, key, found)
        return found, later

    def _add_near(self, task: ReadyTask, key: RequirementClass, found: list[Candidate]) -> None:
        """Add workers that have or fetch large files of the task. Then equal ranks are not equally good."""
        names = self._view.data.near(task.job, task.number)
        for candidate in found if names else ():
            candidate.ties = 1
        for name in names:
            if name not in self.placed or any(candidate.name == name for candidate in found):
                continue
            kind, is_free, rank = self.placed[name]
            each = self.classes[kind]
            if each not in self._classes_for(key) or not (
                is_free or (slots_of(key) == 1 and task.work <= each.longest)
            ):
                continue
            ranked = each.free if is_free else each.busy
            at = bisect_left(ranked, (rank, name))
            candidate = Candidate(name, rank, speed=each.speed, is_busy=not is_free, ranked=ranked, at=at, ties=1)
            cost = self._policy.cost(self._view, task, candidate)
            if not isinstance(cost, Later):
                candidate.cost = cost
                found.append(candidate)

    def best_of(self, each: WorkerClass, *, busy: bool) -> list[Candidate]:
        """Return the candidates of a class that has free (or busy) workers: usually the first of its rank."""
        ranked = each.busy if busy else each.free
        candidates = []
        for at in self._policy.places(self._view, ranked, busy=busy):
            rank, name = ranked[at]
            ties = max(1, bisect_left(ranked, (rank, _LAST)) - at)
            candidates.append(Candidate(name, rank, speed=each.speed, is_busy=busy, ranked=ranked, at=at, ties=ties))
        return candidates

    def _drawn(self, task: ReadyTask, found: list[Candidate]) -> str | None:
        """Return one of the equally good workers, drawn by task and attempt; None if it may not have the task."""
        least, job = found[0].cost, task.job
        best = [candidate for candidate in found if candidate.cost <= least]
        many, place = sum([candidate.ties for candidate in best]), 0
        if many > 1 and self._policy.draws:
            known = self._view.tasks.get(job.task_id(task.number))
            place = int(draw(job.id, task.number, known.attempts if known else 0) * many)
        for candidate in best:
            if place < candidate.ties:
                name = candidate.ranked[candidate.at + place][1]
                return name if self._view.accepts(job, task.number, self._view.workers[name]) else None
            place -= candidate.ties
        return None

    def _first_that_takes(self, task: ReadyTask, found: list[Candidate]) -> str | None:
        view = self._view
        for candidate in found:
            for _, name in candidate.ranked[candidate.at : candidate.at + _LOOK_AT]:
                if view.accepts(task.job, task.number, view.workers[name]):
                    return name
        return None

    def _wide(self, job: Job, number: int) -> str | None:
        """Return the worker with most free slots that accepts a task of several slots."""
        slots, view = job.slots, self._view
        for free, _, name in view.index.slots.idle.order if slots > 1 else ():
            if -free < slots:
                break
            if view.accepts(job, number, view.workers[name]):
                return name
        return None

    def _classes_for(self, key: RequirementClass) -> list[WorkerClass]:
        found = self._serving.get(key)
        if found is None:
            if len(self._serving) > 2 * len(self._view.index.requirements.jobs):
                self._serving.clear()  # most of them are gone
            found = self._serving[key] = [
                each for each in self.classes.values() if meets(each.facts, key, each.most_bytes)
            ]
        return found

    # --- placing ------------------------------------------------------------------------------------------------

    def place_worker(self, worker: Worker) -> None:
        """Enter a worker as it is now."""
        name, old, new = worker.name, self.placed.get(worker.name), self._placing(worker)
        if old == new:
            return
        if old is not None:
            key, is_free, rank = old
            each = self.classes[key]
            ranked = each.free if is_free else each.busy
            del ranked[bisect_left(ranked, (rank, name))]
            del self.placed[name]
        if new is not None:
            key, is_free, rank = self.placed[name] = new
            if key not in self.classes:
                self._begin_class(key, worker)
            insort(self.classes[key].free if is_free else self.classes[key].busy, (rank, name))

    def _placing(self, worker: Worker) -> tuple[ClassKey, bool, float] | None:
        is_free = self._view.is_free(worker)
        if not is_free and not self._view.prefetch.has_room(worker):
            return None
        return self._key_of(worker), is_free, self._policy.rank(self._view, worker)

    def _begin_class(self, key: ClassKey, worker: Worker) -> None:
        if len(self.classes) >= self._most_classes:
            self.classes = self._in_use()
            self._most_classes = 2 * len(self.classes) + _SPARE
        self.classes[key] = self._class_of(worker)
        self._serving.clear()

    def _in_use(self) -> dict[ClassKey, WorkerClass]:
        return {key: each for key, each in self.classes.items() if each.free or each.busy}

    def _key_of(self, worker: Worker) -> ClassKey:
        facts, kind = self._kinds.get(worker.name, (None, ()))
        if facts is not worker.facts:
            facts = worker.facts
            kind = kind_of(facts, _memory_level(facts))
            self._kinds[worker.name] = facts, kind
        return (kind, worker.is_trusted, _level(self._policy.speed(self._view, worker)))

    def _class_of(self, worker: Worker) -> WorkerClass:
        level = _level(self._policy.speed(self._view, worker))
        fastest = float(2.0 ** ((level + 1) / _STEPS))
        longest = self._view.prefetch.limit_s * fastest
        return WorkerClass(worker.facts, _most_bytes(worker.facts), float(2.0 ** (level / _STEPS)), longest)


def _earlier(one: Later | None, other: Later | None) -> Later | None:
    if one is None or (other is not None and other.at < one.at):
        return other
    return one


def _memory_level(facts: Facts) -> int:
    return math.floor(_MEMORY_STEPS * math.log2(max(1, facts.memory_bytes)))


def _most_bytes(facts: Facts) -> int:
    """Return an upper bound of the memory of workers of the same level."""
    return int(2.0 ** ((_memory_level(facts) + 1) / _MEMORY_STEPS)) + 1


def _level(speed: float) -> int:
    return math.floor(_STEPS * math.log2(speed))
