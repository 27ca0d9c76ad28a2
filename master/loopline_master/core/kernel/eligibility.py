"""Eligibility: decides whether a task may start on a worker now, or wait at a busy worker.

The scheduler checks every proposal of a policy by these rules, and policies query them through the View.

Prefetching sends short tasks to wait at a worker whose slots are all busy, so that they begin without a round trip.
Only tasks to start are prefetched, never replicas. Each needs one slot, so that the first free slot will do. A worker
takes as much expected work as ``prefetch_s`` allows for each of its slots. If there are several users, an expectation
counts only as far as the job's own attempts have confirmed it (wings/shares/queues.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.door.mechanism import Purpose
from loopline_master.core.kernel.entities import Job, Task, Worker
from loopline_master.core.kernel.index.attempts import milliseconds
from loopline_master.core.kernel.index.sorted_collections import IntervalSet
from loopline_master.core.kernel.state import State
from loopline_shared.model import Order

_LONGER = 1.1
_MORE_S = 1.0
"""Factor and margin: the expected time of a task is raised by both before it is compared with the worker's end."""
_CHECKPOINT_EVERY_S = 300.0
"""Assumed interval of checkpoints where the worker chooses it."""
_MANY = 32
"""From this many prefetched attempts on, a worker takes more only if they are very short."""
_PATIENCE = 8
"""Number of workers with room that may be offered without success before the search ends."""


def startable_tasks(state: State, job: Job) -> int:
    """Return the number of the job's tasks that could start now if there were slots, without replicas for speed."""
    if job.paused:
        return 0
    fresh = state.fresh[job.id].count
    if fresh and job.order is Order.HOLD:
        is_behind = state.index.hold_over(job).blocker(job.arrival, job.weight) is not None
        fresh -= is_behind  # its last task would be held
    return fresh + state.index.ready_sets[job.id].to_retry.count + state.index.needs_replica(job).count


def fits(state: State, job: Job, worker: Worker) -> bool:
    """True if the worker meets the job's requirements and has the slots of one task free."""
    index = state.index
    free = index.slots.idle.keys.get(worker.name)
    if free is None or -free[0] < job.slots:
        return False
    return worker.name in index.requirements.workers[index.requirements.keys[job.id]]


def may_start(state: State, job: Job, task: int, worker: Worker, *, is_fresh: bool) -> bool:
    """True if the task may be started or replicated on this worker now. The hold is checked separately.

    ``is_fresh``: it was never started.
    """
    index = state.index
    if not job.is_live or job.paused or job.nodes > 1 or not fits(state, job, worker):
        return False
    if worker.facts.until is not None and not ends_in_time(state, job, task, worker, state.now):
        return False
    if not is_fresh:
        if task not in index.ready_sets[job.id].to_retry and task not in replicable(state, job, worker):
            return False
        if index.on_worker(job.task_id(task), worker.name):
            return False
    return (is_fresh and worker.health >= 0) or not should_go_elsewhere(state, job, task, worker)


def ends_in_time(state: State, job: Job, task: int, worker: Worker, start_at: float) -> bool:
    """True if the task, begun on this worker at ``start_at``, is expected to end before the worker must.

    If no estimate of the task is known, any time left is enough. A task that takes checkpoints may start without
    ending there if at least two intervals fit.
    """
    until = worker.facts.until
    if until is None:
        return True
    left_s = until - max(start_at, state.now)
    if not measure.is_known(job, task):
        return left_s > 0
    needed_s = _LONGER * measure.work_left(state.grid, job, task) / measure.speed_now(worker) + _MORE_S
    if job.spec.checkpoint:
        needed_s = min(needed_s, 2 * (job.spec.checkpoint.every_s or _CHECKPOINT_EVERY_S) + _MORE_S)
    return needed_s <= left_s


def replicable(state: State, job: Job, worker: Worker) -> IntervalSet:
    """Return the job's tasks that may get a replica on this worker.

    A worker with a fixed end belongs to a user's allocation: only jobs that ask for replicas get copies for speed
    there.
    """
    index = state.index
    is_asked = worker.facts.until is None or job.spec.max_replicas is not None
    return index.to_replicate(job) if is_asked else index.needs_replica(job)


def should_go_elsewhere(state: State, job: Job, task: int, worker: Worker) -> bool:
    """True if the task failed on this unhealthy worker and another, healthy worker is a candidate for it.

    A run elsewhere shows whether the task or the machine is at fault. A task that took this worker down prefers
    another worker that could start it now.
    """
    known = state.tasks.get(job.task_id(task))
    if known is None:
        return False
    if known.took_down and worker.name in known.took_down:
        return _could_start_elsewhere(state, job, known)
    if worker.health >= 0 or worker.name not in known.failed_on:
        return False
    barred = {*known.failed_on, *state.index.voters.get(known.id, ())}
    return any(name not in barred for name in state.index.requirements.trusted[state.index.requirements.key_of(job)])


def _could_start_elsewhere(state: State, job: Job, task: Task) -> bool:
    """True if a healthy worker that the task has not taken down could start it now."""
    barred = {*task.took_down, *state.index.voters.get(task.id, ())}
    for name in state.index.requirements.trusted[state.index.requirements.key_of(job)] - barred:
        worker = state.workers[name]
        if not fits(state, job, worker) or state.index.on_worker(task.id, name):
            continue
        is_in_time = ends_in_time(state, job, task.number, worker, state.now)
        if is_in_time and state.wings.veto(job, task.number, worker, Purpose.START) is None:
            return True
    return False


class Prefetch:
    """The room of busy workers for one more task, and the tasks that may wait there."""

    def __init__(self, state: State) -> None:
        self._state, self._grid = state, state.grid
        self._index, self._slots, self._attempts = state.index, state.index.slots, state.index.attempts

    @property
    def limit_s(self) -> float:
        """Expected work that may wait at a worker for each of its slots; 0 if nothing may."""
        return self._state.prefetch_s

    @property
    def changed_jobs(self) -> Mapping[int, Job]:
        """Jobs changed by this step, by number; their expected work does not change again in it."""
        return self._state.effects.jobs

    @property
    def longest(self) -> float:
        """Upper bound of the work of a task that may wait at any worker, given the bound of all speeds."""
        return self._state.prefetch_s * self._index.octaves.bound

    def workers_with_room(self) -> Iterator[Worker]:
        """Return busy workers with room, least backlog first, while some job has a task that may be short enough.

        A worker is not offered again if no proposal for it was accepted; after a few such workers the search ends.
        """
        by_shortest_task, limit_s = self._index.by_shortest_task.order, self._state.prefetch_s
        if not by_shortest_task or by_shortest_task[0][0] > limit_s * self._index.octaves.bound:
            return  # the usual case: the shortest task would be too long for the fastest worker
        full, passed_over, workers, speeds = self._slots.full, 0, self._state.workers, self._slots.speeds
        most_ms = milliseconds(limit_s)
        is_over = False
        while not is_over and by_shortest_task:
            is_over, changes, (least, _) = True, full.changes, by_shortest_task[0]
            for wait_ms, name in full.order[passed_over : passed_over + _PATIENCE]:
                if wait_ms >= most_ms:
                    return
                if least / speeds[name] <= limit_s and self._has_place(name):
                    yield workers[name]
                    if changes != self._slots.full.changes:  # its ranking may have changed
                        is_over = False
                        break
                passed_over += 1

    def has_room(self, worker: Worker) -> bool:
        """True if some task may be prefetched by this worker."""
        return self.room_s(worker) > 0

    def room_s(self, worker: Worker) -> float:
        """Longest time that a task prefetched by this worker may be expected to take; 0 if none may be."""
        name, limit_s = worker.name, self._state.prefetch_s
        left_s = limit_s * worker.offered - self._attempts.queues.work_ms.get(name, 0) / 1e3
        if left_s <= 0 or not self._has_place(name) or not self._slots.is_full(worker):
            return 0.0
        return left_s if left_s < limit_s else limit_s

    def may_wait(self, job: Job, task: int, worker: Worker) -> bool:
        """True if this worker may prefetch the task: a task to start, with one slot and known to be short."""
        index = self._index
        if not job.is_live or job.paused:
            return False
        is_fresh = task in self._state.fresh[job.id] and not index.is_held(job)
        if not (is_fresh or task in index.ready_sets[job.id].to_retry) or job.slots > 1 or job.nodes > 1:
            return False
        for most_waiting in self._state.wings.most_waiting:
            if self._attempts.queued_on(worker.name) >= most_waiting(job, worker):
                return False
        requirements = index.requirements
        if not measure.is_known(job, task) or worker.name not in requirements.workers[requirements.keys[job.id]]:
            return False
        if index.on_worker(job.task_id(task), worker.name):
            return False
        if worker.health < 0 and should_go_elsewhere(self._state, job, task, worker):
            return False
        if worker.facts.until is not None and not self.ends_in_time(job, task, worker):
            return False
        work = measure.work_of(self._grid, job, task)
        return 0 < work / measure.speed_now(worker) <= self.room_s(worker)

    def ends_in_time(self, job: Job, task: int, worker: Worker) -> bool:
        """True if the task is expected to end before the worker must, including its wait for a slot there."""
        start_at = self._state.now if worker.name in self._slots.idle.keys else self.free_at(worker)
        return ends_in_time(self._state, job, task, worker, start_at)

    def is_too_long(self, job: Job, worker: Worker) -> bool:
        """True if no task of the job may wait there: all have the same expected time, and it is too long."""
        return job.sweep.is_uniform and self.expected_s(job, 1, worker) > self._state.prefetch_s

    def expected_s(self, job: Job, task: int, worker: Worker) -> float:
        """Expected run time of the task on this worker."""
        return measure.work_of(self._grid, job, task) / measure.speed_now(worker)

    def free_at(self, worker: Worker) -> float:
        """Time when one more task is expected to get a slot of this busy worker."""
        waiting_s = self._attempts.queues.work_ms.get(worker.name, 0) / 1e3 / max(1, worker.offered)
        seated = [attempt.since + attempt.expected_s for attempt in self._attempts.seated_on(worker.name)]
        if seated:
            return min(seated) + waiting_s
        attempts = self._attempts.of_worker.get(worker.name, {}).values()
        return min((attempt.dispatched_at for attempt in attempts), default=0.0) + waiting_s

    def _has_place(self, name: str) -> bool:
        """True if one more attempt may wait there, however short.

        Very short attempts may be many: a worker that ends thousands a second must not wait for a round trip. Other
        attempts are limited under any policy, as each Report repeats their number.
        """
        waiting, settings = self._attempts.queued_on(name), self._state.settings
        if waiting < _MANY or waiting >= settings.max_prefetch:
            return waiting < settings.max_prefetch
        waiting_s = self._attempts.queues.work_ms.get(name, 0) / 1e3 / max(1, self._state.workers[name].offered)
        return waiting_s <= settings.prefetch_s
