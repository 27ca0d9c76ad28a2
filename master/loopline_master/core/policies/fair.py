"""Fair sharing under the hold: completions like first come, first served, every job started at once, few replicas.

Jobs are served in the order of their finish under fair sharing. A worker serves the first job whose end it does
not delay, so that slow workers serve jobs further back; a straggler is copied only if that gains much.

The source is docs/design/fair-hold.md; alternatives that were tried, with results, are in benchmarks/measured.md.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from math import inf

from loopline_master.core.estimates import measure
from loopline_master.core.kernel.entities import Job, Worker
from loopline_master.core.kernel.index.requirements import RequirementClass
from loopline_master.core.policies.fair_index import FairIndex
from loopline_master.core.policies.policy import Later, Placement, Proposal, View, WorkerFirst, register

_WORTH = 0.7
"""A copy must take less than this part of the time that its original is expected to have left."""
_CLOSELY_S = 1e-6
"""Tolerance of times: an event is due when the clock is within this of its time."""
_LOOK_AHEAD = 100
"""Limit of the jobs checked for one worker: this many with tasks to start, and this many others."""


@register("fair")
class Fair(WorkerFirst):
    """The task that the worker can run without delaying the expected end of an earlier job in the order of tags."""

    replicates = True

    def __init__(self, view: View) -> None:
        self.index: FairIndex = FairIndex(view)
        self._hopeless: set[RequirementClass] = set()
        """Requirement classes without work for a faster worker in this step: a slower one will find none."""

    def free_workers(self, view: View) -> Iterator[Worker]:
        """Return free workers, the fastest first, until no worker has anything left to do."""
        self._hopeless = set()
        requirements, idle, serving = view.index.requirements, view.index.slots.idle.keys, None
        if requirements.counts_units and len(idle) > len(requirements.workers):  # most of them may lack units
            serving = requirements.idle_that_serve(view.index.open, view.index.turn, idle)
        names = idle.keys() if serving is None else {entry[-1] for entry in serving}
        for worker in self.index.fastest_idle():
            if worker.name in names:
                yield worker
            if self.index.are_all_in(self._hopeless):
                return

    def next_task(self, view: View, worker: Worker) -> Proposal | None:
        keys = self.index.keys_met(worker)
        if not view.is_free(worker):
            return _Turn(view, self.index, worker, keys, ()).to_wait()
        if self._hopeless:
            keys = [key for key in keys if key not in self._hopeless]
        turn = _Turn(view, self.index, worker, keys, self._hopeless)
        found = turn.to_start() if keys else None
        if found is not None:
            return found
        if not turn.is_barred:
            self._hopeless.update(keys)
        return Later(turn.due_at) if turn.due_at < inf and view.index.attempts.used else None


class _Turn:
    """The turn of one worker, with the requirement classes it serves.

    ``is_barred``: it could not take the best task because it already has an attempt of it; another worker could.
    ``due_at``: time when it will certainly have a task.
    """

    def __init__(
        self,
        view: View,
        index: FairIndex,
        worker: Worker,
        keys: Collection[RequirementClass],
        hopeless: Container[RequirementClass],
    ) -> None:
        self._view, self._index, self._worker, self._keys, self._hopeless = view, index, worker, keys, hopeless
        self._speed = measure.speed_now(worker)
        self._is_fast = index.capacity.is_fast(self._speed)
        self.is_barred, self.due_at = False, inf

    def to_start(self) -> Placement | None:
        """Return a placement for a free worker."""
        return self._express() or self._serve()

    def to_wait(self) -> Placement | None:
        """Return a task to wait at a busy worker: of the first job in turn whose expected end it would not delay."""
        before = 0.0
        for job in self._index.in_turn(self._keys, self._takes, self._index.ready, most=_LOOK_AHEAD):
            if self._is_fast and self._view.prefetch.is_too_long(job, self._worker):
                return None  # a fast worker takes the first job's task in any case
            before += self._index.unassigned(job)
            task = self._largest(job, inf if self._is_fast else self._ends_in(job, before))
            if task is not None:
                return self._place(job, task)
        return None

    def _express(self) -> Placement | None:
        """Return a task of a job that has never run: its largest, or on a slow worker its smallest."""
        for job in self._index.in_turn(self._keys, self._takes, self._index.new, most=_LOOK_AHEAD):
            task = self._index.largest(job, inf) if self._is_fast else self._index.smallest(job)
            if task is not None:
                return self._place(job, task)
        return None

    def _serve(self) -> Placement | None:
        """Return a task of the first job in turn whose expected end an attempt here would not delay."""
        before = 0.0
        for job in self._index.in_turn(
            self._keys, self._takes, self._index.ready, self._index.tails, most=_LOOK_AHEAD
        ):
            before += self._index.unassigned(job)
            task = self._replicate_stalled(job) or self._start(job, before) or self._rescue(job, before)
            if task is not None:
                return self._place(job, task)
        return None

    def _takes(self, key: RequirementClass) -> bool:
        """True if the worker serves the class now."""
        view, worker = self._view, self._worker
        slots = view.index.slots.free_slots(worker) or 1
        takes = view.index.requirements.taken_by(worker.name, slots, view.index.turn)
        return key not in self._hopeless and takes(key)

    def _ends_in(self, job: Job, before: float) -> float:
        """Return the seconds until the expected end of the job, after ``before`` of earlier work and its own."""
        capacity = self._index.capacity
        return before / capacity.total + measure.mean_work(self._view.grid, job) / capacity.median

    def _replicate_stalled(self, job: Job) -> int | None:
        """Return a task that has only frozen attempts."""
        if not self._view.index.needs_replica(job).starts:
            return None  # the usual case
        task = self._view.first_stalled(job, self._worker)
        self.is_barred |= task is None
        return task

    def _start(self, job: Job, before: float) -> int | None:
        """Return the job's largest task: on a slow worker, the largest that it would finish before the job ends.

        Also a task that it could have finished since the last start of any attempt: faster workers do not come free
        then.
        """
        grid, within_s = self._view.grid, inf
        delay_s = self._data_delay(job) if self._view.data.is_known else 0.0
        if not self._is_fast:
            within_s = max(self._ends_in(job, before), grid.now - grid.last_start + _CLOSELY_S) - delay_s
        task = self._largest(job, within_s)
        if task is None and (smallest := self._index.smallest(job)) is not None:
            self._is_due(grid.last_start + measure.work_left(grid, job, smallest) / self._speed + delay_s)
        return task

    def _data_delay(self, job: Job) -> float:
        """Return when large files of the job's smallest task would be here; on a fast worker it does not count."""
        smallest = None if self._is_fast else self._index.smallest(job)
        return 0.0 if smallest is None else self._view.data.delay(job, smallest, self._worker.name)

    def _largest(self, job: Job, within_s: float) -> int | None:
        """Return the job's largest task to start that the worker would finish within that time."""
        task = self._index.largest(job, within_s * self._speed)
        if task is not None and self._view.should_go_elsewhere(job, task, self._worker):
            return self._view.first_startable(job, self._worker)
        return task

    def _rescue(self, job: Job, before: float) -> int | None:
        """Return the running task with most time left, if all are started and a copy is worth its cost."""
        if self._index.smallest(job) is not None:
            return None
        found, grid, ends_in = (0.0, 0), self._view.grid, self._ends_in(job, before)
        for attempt in self._index.extremes(job):
            if attempt.worker == self._worker.name:
                self.is_barred = True
                continue
            least = max(ends_in, measure.work_left(grid, job, attempt.task) / self._speed / _WORTH)
            left = self._index.left(job, attempt)
            if left > least or self._is_due(self._index.late_from(job, attempt, least)):
                found = max(found, (left, attempt.task))
        return found[1] or None

    def _is_due(self, at: float) -> bool:
        """True if that time has come; otherwise the worker will be asked again then."""
        if at <= self._view.grid.now + _CLOSELY_S:
            return True
        self.due_at = min(self.due_at, at)
        return False

    def _place(self, job: Job, task: int) -> Placement:
        return Placement(job.id, task, self._worker.name)
