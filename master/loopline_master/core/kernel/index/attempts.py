"""Attempts in memory by task and by worker, and derived from them: ready sets of jobs, free slots of workers.

Prefetched attempts wait at their workers for a slot, so that short tasks need no round trip. Each needs one slot, so
that any free slot will do.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import frexp, ldexp
from typing import Any

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import LIVE, OCCUPYING, SEATED, Attempt, Job, Task, Worker
from loopline_master.core.kernel.index.sorted_collections import IntervalSet, Ranking
from loopline_shared.model import AttemptId, AttemptState, TaskId, TaskState

_MILLI = 1e3
_MOST_MS = 10**15
"""The longest expected time, so that sums stay exact."""

_KEPT, _SEATED, _ALIVE, _FROZEN, _AHEAD, _CALLED_BACK, _FINISHED = (1 << bit for bit in range(7))
"""Bits of a role: in memory, in a slot, alive, alive but frozen, prefetched, cancelled but not yet gone, and
ended well in a gang whose other members run.
"""
_DELIVERS = _KEPT | _ALIVE
"""The role of an attempt that has ended, and whose result is on the way."""
OF_TASK = _KEPT | _ALIVE | _FROZEN | _CALLED_BACK
"""Bits that affect the place of the attempt's task. Waiting and being in a slot make no difference to it."""
_ROLES = {
    state: _KEPT
    | (_ALIVE if state in LIVE else 0)
    | (_SEATED if state in SEATED else 0)
    | (_FROZEN if state is AttemptState.FROZEN else 0)
    | (_AHEAD if state is AttemptState.PREFETCHED else 0)
    | (_CALLED_BACK if state in OCCUPYING and state not in LIVE else 0)
    | (_FINISHED if state is AttemptState.FINISHED else 0)
    for state in AttemptState
}

_IN_MEMORY, _TO_RETRY, _REPLICABLE, _STALLED, _UNDER_REPLICATED, _DELAYED = (1 << bit for bit in range(6))
"""Bits of a task: one for being in memory, and one for each set of the ready set."""
_RARELY = _TO_RETRY | _STALLED | _UNDER_REPLICATED | _DELAYED
_RUNNING, _QUEUED = TaskState.RUNNING, TaskState.QUEUED


def is_at_work(role: int) -> bool:
    """True if an attempt of this role is in a slot and not frozen: its user is charged for it."""
    return bool(role & _SEATED) and not role & _FROZEN


def may_be_running(role: int) -> bool:
    """True if an attempt of this role may be running now: it has a slot, waits for one, or its worker is silent."""
    return bool(role) and role != _DELIVERS and not role & _FINISHED


def is_prefetched(role: int) -> bool:
    """True if an attempt of this role waits at its worker for a slot."""
    return bool(role & _AHEAD)


@dataclass(slots=True)
class PrefetchQueues:
    """Queues of prefetched attempts by worker. Work is in whole milliseconds, so that sums depend on no order."""

    of_worker: dict[str, dict[AttemptId, int]] = field(default_factory=dict)  # expected time of each, in milliseconds
    work_ms: dict[str, int] = field(default_factory=dict)
    order: dict[str, list[tuple[float, AttemptId]]] = field(default_factory=dict)  # by time of dispatch
    of_job: dict[int, int] = field(default_factory=dict)  # length, by job: shown to users

    def latest_on(self, worker: str) -> AttemptId:
        """Return the attempt of the worker's queue that was dispatched last."""
        return self.order[worker][-1][1]

    def toggle(self, attempt: Attempt, waits: bool | int) -> None:
        """Enter an attempt that begins to wait, or drop one whose wait is over."""
        name = attempt.worker
        if waits:
            work_ms = self.of_worker.setdefault(name, {})[attempt.id] = milliseconds(attempt.expected_s)
            self.work_ms[name] = self.work_ms.get(name, 0) + work_ms
            insort(self.order.setdefault(name, []), (attempt.dispatched_at, attempt.id))
            _count(self.of_job, attempt.job, 1)
            return
        queue, order = self.of_worker[name], self.order[name]
        self.work_ms[name] -= queue.pop(attempt.id)
        del order[bisect_left(order, (attempt.dispatched_at, attempt.id))]
        _count(self.of_job, attempt.job, -1)
        if not queue:
            del self.of_worker[name], self.work_ms[name], self.order[name]


def milliseconds(seconds: float) -> int:
    """Return whole milliseconds, at least one: every attempt lengthens its queue."""
    return max(1, round(min(seconds * _MILLI, _MOST_MS)))


@dataclass(slots=True)
class Attempts:
    """Lookups of the attempts in memory, and a function of these alone."""

    of_task: dict[TaskId, dict[str, Attempt]] = field(default_factory=dict)  # by worker: none has two of one task
    of_worker: dict[str, dict[AttemptId, Attempt]] = field(default_factory=dict)
    roles: dict[AttemptId, int] = field(default_factory=dict)  # bits of each
    alive: dict[TaskId, int] = field(default_factory=dict)  # number, by task
    called_back: dict[TaskId, int] = field(default_factory=dict)  # cancelled, perhaps still running
    frozen: dict[TaskId, int] = field(default_factory=dict)  # of those alive
    frozen_on: dict[str, int] = field(default_factory=dict)  # ... by worker
    reserved: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Replicas for speed or safety in slots, by job: their number, and their expected time in milliseconds."""
    used: dict[str, int] = field(default_factory=dict)  # slots, by worker
    queues: PrefetchQueues = field(default_factory=PrefetchQueues)  # attempts that wait at workers for a slot

    def place(self, attempt: Attempt) -> int:
        """Enter an attempt as it is now, or drop it if it is over. Return the changed bits of its role.

        If one of them is in OF_TASK, the caller must place its task, too; its worker in any case.
        """
        number = attempt.id
        old, new = self.roles.get(number, 0), _ROLES[attempt.state] if attempt.ended_at is None else 0
        changed = old ^ new
        if not changed:
            return 0
        if not old:
            self._enter(attempt)
        elif not new:
            self._leave(attempt)
        if new:
            self.roles[number] = new
        if changed & _ALIVE:
            _count(self.alive, attempt.task_id, 1 if new & _ALIVE else -1)
        if changed & _SEATED:
            sign = 1 if new & _SEATED else -1
            _count(self.used, attempt.worker, sign * attempt.slots)
            if attempt.replica and measure.is_extra(attempt):
                self._reserve(attempt, sign)
        if changed & _AHEAD:
            self.queues.toggle(attempt, new & _AHEAD)
        if changed & (_FROZEN | _CALLED_BACK):
            self._count_rare(attempt, changed, new)
        return changed

    def is_on(self, task: TaskId, worker: str) -> bool:
        """True if an attempt of the task is on this worker."""
        attempt = self.of_task[task].get(worker) if task in self.of_task else None
        return attempt is not None and attempt.state in OCCUPYING

    def is_occupied(self, worker: str) -> bool:
        """True if an attempt is on this worker, as far as is known."""
        return worker in self.used or any(one.state in OCCUPYING for one in self.of_worker.get(worker, {}).values())

    def is_fenced(self, worker: str) -> bool:
        """True if the worker has fallen silent, and may not yet have ended all attempts with a term."""
        return any(
            attempt.state is AttemptState.LOST and attempt.term_s is not None
            for attempt in self.of_worker.get(worker, {}).values()
        )

    def seated_on(self, worker: str) -> Iterator[Attempt]:
        """Return the attempts in its slots. Usually they came first, so that few prefetched attempts are visited."""
        left = self.used.get(worker, 0)
        for attempt in self.of_worker[worker].values() if left else ():
            if attempt.is_seated:
                yield attempt
                left -= attempt.slots
                if left <= 0:
                    return

    def running_or_may_be(self, task: TaskId) -> int:
        """Number of the task's attempts that are alive, or cancelled and perhaps still on their workers."""
        return self.alive.get(task, 0) + self.called_back.get(task, 0)

    def may_still_run(self, task: TaskId) -> bool:
        """True if an attempt of the task may be running, unless its worker is silent and does not end it."""
        others = self.of_task.get(task, {}).values()
        return any(one.state is not AttemptState.LOST or one.term_s is not None for one in others)

    def in_hand(self, worker: str) -> int:
        """Number of its slots in use plus attempts that wait there for a slot."""
        return self.used.get(worker, 0) + self.queued_on(worker)

    def queued_on(self, worker: str) -> int:
        """Number of attempts that wait on the worker for a slot."""
        queues = self.queues.of_worker
        return len(queues[worker]) if worker in queues else 0

    def _reserve(self, attempt: Attempt, sign: int) -> None:
        number, reserved_ms = self.reserved.pop(attempt.job, (0, 0))
        if number + sign:
            self.reserved[attempt.job] = number + sign, reserved_ms + sign * measure.ms_of(attempt.expected_s)

    def _count_rare(self, attempt: Attempt, changed: int, new: int) -> None:
        if changed & _CALLED_BACK:
            _count(self.called_back, attempt.task_id, 1 if new & _CALLED_BACK else -1)
        if changed & _FROZEN:
            _count(self.frozen, attempt.task_id, 1 if new & _FROZEN else -1)
            _count(self.frozen_on, attempt.worker, 1 if new & _FROZEN else -1)

    def _enter(self, attempt: Attempt) -> None:
        task, name, number = attempt.task_id, attempt.worker, attempt.id
        if task in self.of_task:
            self.of_task[task][name] = attempt
        else:
            self.of_task[task] = {name: attempt}
        if name in self.of_worker:
            self.of_worker[name][number] = attempt
        else:
            self.of_worker[name] = {number: attempt}

    def _leave(self, attempt: Attempt) -> None:
        task, name, number = attempt.task_id, attempt.worker, attempt.id
        of_task, of_worker = self.of_task[task], self.of_worker[name]
        del of_task[name], of_worker[number], self.roles[number]
        if not of_task:
            del self.of_task[task]
        if not of_worker:
            del self.of_worker[name]


def _count(counts: dict[Any, int], of: object, change: int) -> None:
    """Change a count by this much, and drop it when it reaches zero."""
    if new := counts.get(of, 0) + change:
        counts[of] = new
    elif change:
        del counts[of]


@dataclass(slots=True)
class ReadySet:
    """Started tasks of one job; its fresh tasks are in State.fresh."""

    to_retry: IntervalSet = field(default_factory=IntervalSet)  # started before, queued again
    delayed: IntervalSet = field(default_factory=IntervalSet)  # the same, but must not be tried again yet
    replicable: IntervalSet = field(default_factory=IntervalSet)  # running, with room for a replica
    stalled: IntervalSet = field(default_factory=IntervalSet)  # subset: all attempts are frozen, or as below
    under_replicated: IntervalSet = field(default_factory=IntervalSet)  # subset: a quorum needs more
    kept: dict[int, int] = field(default_factory=dict)  # every task with a Task in memory, and its bits

    def place(self, task: Task, job: Job, attempts: Attempts) -> bool:
        """Enter a task as it is now. Return True if its job must be placed, too.

        The job must be placed if a set may have become empty or non-empty: its places depend on nothing else here. A
        queued task with votes is replicable, because its voters are excluded. A task gets no replica if its failures
        could then exceed its job's ``max_attempts``; a task with a ``retry_at`` gets no attempt at all.
        """
        number = task.number
        if task.retry_at is not None and task.is_open:
            stands = _IN_MEMORY | _DELAYED if task.state is _QUEUED else _IN_MEMORY
        else:
            stands = _stands(task, job, attempts)
        changed = stands ^ self.kept.get(number, 0)
        if not changed:
            return False
        if stands:
            self.kept[number] = stands
        else:
            del self.kept[number]
        if changed & _REPLICABLE:
            (self.replicable.add if stands & _REPLICABLE else self.replicable.discard)(number)
        if changed & _RARELY:
            self.to_retry.toggle(number, stands & _TO_RETRY)
            self.delayed.toggle(number, stands & _DELAYED)
            self.stalled.toggle(number, stands & _STALLED)
            self.under_replicated.toggle(number, stands & _UNDER_REPLICATED)
            return True
        return self.replicable.count <= 1  # also True if the set is empty


def _stands(task: Task, job: Job, attempts: Attempts) -> int:
    """Return the bits of the task's sets; 0 if the task can be forgotten."""
    if task.state is not _RUNNING:
        if task.state is not _QUEUED:
            return _IN_MEMORY if task.id in attempts.of_task else 0
        if not (task.started and task.votes):
            may_start = task.started and (not attempts.called_back or _may_be_tried(task, job, attempts))
            return _IN_MEMORY | _queue_of(task, job, attempts) if may_start else _IN_MEMORY
    if job.nodes > 1:
        return _IN_MEMORY
    alive, limit = attempts.alive.get(task.id, 0), job.max_replicas
    if limit is not None and alive >= limit:
        return _IN_MEMORY
    is_near_limit = alive >= job.max_attempts or task.failures or task.votes or attempts.called_back
    if is_near_limit and not _may_be_tried(task, job, attempts):
        return _IN_MEMORY
    if task.took_down and task.is_dangerous:
        return _IN_MEMORY
    if job.quorum is None and not attempts.frozen:
        return _IN_MEMORY | _REPLICABLE
    frozen, quorum = attempts.frozen.get(task.id, 0), job.quorum
    if quorum is not None and task.agreeing + alive - frozen < quorum:
        return _IN_MEMORY | _REPLICABLE | _STALLED | _UNDER_REPLICATED
    return _IN_MEMORY | _REPLICABLE | _STALLED if 0 < alive == frozen else _IN_MEMORY | _REPLICABLE


def _queue_of(task: Task, job: Job, attempts: Attempts) -> int:
    """Return the bit of the set for a task that is queued again."""
    return _DELAYED if job.never_twice and attempts.may_still_run(task.id) else _TO_RETRY


def _may_be_tried(task: Task, job: Job, attempts: Attempts) -> bool:
    """True if ``max_attempts`` allows another attempt beside the running and waiting ones."""
    return task.may_be_tried(job, attempts.running_or_may_be(task.id) if job.nodes == 1 else 0)


@dataclass(slots=True)
class SpeedOctaves:
    """Counts workers by octave of speed: the bound of all speeds rarely changes as speeds are learnt."""

    of_worker: dict[str, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    learnt: dict[str, float] = field(default_factory=dict)  # work_s of each when last placed

    def place(self, worker: Worker) -> None:
        """Enter a worker's speed, after it has joined with other facts or its speed was learnt."""
        self.learnt[worker.name] = worker.work_s
        _, octave = frexp(measure.speed_of(worker))
        old = self.of_worker.get(worker.name)
        if octave == old:
            return
        if old is not None:
            _count(self.counts, old, -1)
        _count(self.counts, octave, 1)
        self.of_worker[worker.name] = octave

    def drop(self, name: str) -> None:
        """Drop a worker that is forgotten."""
        _count(self.counts, self.of_worker.pop(name), -1)
        del self.learnt[name]

    @property
    def bound(self) -> float:
        """Speed above that of every worker, by a factor of two at most."""
        return ldexp(1.0, max(self.counts, default=0))


@dataclass(slots=True, eq=False)
class Slots:
    """Free slots and queues, a function of the workers and their attempts.

    Busy workers are ranked when a ranking is read. By then, a worker that has ended one task has usually been given
    another; and while no worker is idle, the backlog is not read.
    """

    attempts: Attempts
    idle: Ranking[str, tuple[int, int, str]] = field(default_factory=Ranking)  # (-free slots, -merit, worker)
    reserved: set[str] = field(default_factory=set)  # workers whose slots a wide job waits for
    speeds: dict[str, float] = field(default_factory=dict)  # of busy workers, as last ranked (measure.speed_now)
    _full: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)
    _backlog: Ranking[str, tuple[float, str]] = field(default_factory=Ranking)
    _unranked: dict[str, Worker] = field(default_factory=dict)  # may have moved among the full ...
    _unlisted: dict[str, Worker] = field(default_factory=dict)  # ... and in the backlog

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Slots):
            return NotImplemented
        full, others = self.full, other.full  # ranks the workers not yet ranked
        return (self.idle, full, self.backlog, self.speeds) == (other.idle, others, other.backlog, other.speeds)

    __hash__ = None  # type: ignore[assignment]

    @property
    def full(self) -> Ranking[str, tuple[float, str]]:
        """Busy workers with room for waiting attempts, as (milliseconds of waiting work for each slot, worker)."""
        for worker in self._unranked.values():
            self._rank(worker)
        self._unranked.clear()
        return self._full

    @property
    def backlog(self) -> Ranking[str, tuple[float, str]]:
        """Workers with a queue, longest first, as (negated milliseconds of waiting work for each slot, worker)."""
        for worker in self._unlisted.values():
            wait_ms = self._wait_ms(worker) if worker.session is not None else 0.0
            self._backlog.place(worker.name, (-wait_ms, worker.name) if wait_ms else None)
        self._unlisted.clear()
        return self._backlog

    def place(self, worker: Worker) -> None:
        """Enter a worker's free slots as they are now; its queue is ranked later."""
        name, attempts = worker.name, self.attempts
        self._unranked[name] = self._unlisted[name] = worker
        waiting = attempts.queues.of_worker.get(name)
        in_hand = attempts.used.get(name, 0) + (len(waiting) if waiting else 0)
        free = worker.offered - in_hand
        is_taken = free <= 0 or (worker.half_open and in_hand)  # half open: one attempt at a time
        if not is_taken and worker.is_available and name not in self.reserved:
            self.idle.place(name, (-free, -measure.merit(worker), name))
        elif name in self.idle.keys:
            self.idle.place(name, None)

    def _rank(self, worker: Worker) -> None:
        name = worker.name
        if self.is_full(worker):
            self.speeds[name] = measure.speed_now(worker)
            self._full.place(name, (self._wait_ms(worker), name))
        elif name in self.speeds:
            self._full.place(name, None)
            del self.speeds[name]

    def _wait_ms(self, worker: Worker) -> float:
        """Return the milliseconds of work that wait at the worker for each of its slots."""
        return self.attempts.queues.work_ms.get(worker.name, 0) / (worker.offered or 1)

    def is_full(self, worker: Worker) -> bool:
        """True if all slots of the worker are busy and more attempts may wait there."""
        return (
            worker.offered > 0
            and worker.session is not None
            and not (worker.draining or worker.half_open)
            and worker.quarantined_until is None
            and worker.name not in self.idle.keys
            and worker.name not in self.attempts.frozen_on
            and worker.name not in self.reserved
        )

    def free_slots(self, worker: Worker) -> int:
        """Return the worker's free slots, as last placed."""
        key = self.idle.keys.get(worker.name)
        return 0 if key is None else -key[0]
