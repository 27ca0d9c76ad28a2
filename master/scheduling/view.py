"""What a policy may read, and its wish. Policies propose; the scheduler checks each wish and disposes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from master.scheduling.demand import Key, slots_of
from master.scheduling.model import Grid, Job, Worker
from master.scheduling.ranges import Ranges
from master.scheduling.state import State
from shared.model import MAX_ID, TaskId

Thing = TypeVar("Thing")


@dataclass(frozen=True, slots=True)
class Placement:
    """A wish: an attempt at this task of this job, on this worker."""

    job: int
    task: int
    worker: str


class View:
    """The grid as it is at this moment: a wish granted shows at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._index = state.index

    @property
    def now(self) -> float:
        return self._state.now

    @property
    def grid(self) -> Grid:
        return self._state.grid

    def own(self, kind: type[Thing]) -> Thing:
        """The policy's own index."""
        assert isinstance(self._state.own, kind)
        return self._state.own

    def keys_met(self, worker: Worker) -> list[Key]:
        """The different requirements of jobs in the grid that the worker meets as it is now."""
        free = self._index.free_slots(worker)
        return [k for k, able in self._index.demand.workers.items() if worker.name in able and slots_of(k) <= free]

    def is_on(self, job: Job, task: int, worker: Worker) -> bool:
        """An attempt of the task is on this worker already."""
        return self._index.on_worker(TaskId(job.id, task), worker.name)

    @property
    def pointer(self) -> int:
        """Arrival of the job whose turn was last."""
        return self._state.grid.pointer

    def idle_workers(self, *, replicas: bool) -> Iterator[Worker]:
        """Those with free slots, most free first, as long as there is anything to start (or, with ``replicas``, to
        replicate). One that was offered and given nothing is not offered again.
        """
        idle, passed_over, is_over = self._index.idle, (-MAX_ID, ""), not self._index.idle.order
        while not is_over and (able := self._able_workers(replicas)):
            is_over, changes = True, idle.changes
            for entry in idle.order.irange(passed_over, inclusive=(False, True)):
                if any(entry[1] in names for names in able):
                    yield self._state.workers[entry[1]]
                    if changes != idle.changes:
                        is_over = False
                        break
                    passed_over = entry

    def workers(self) -> list[Worker]:
        """All that are available, by name."""
        return [self._index.demand.available[name] for name in sorted(self._index.demand.available)]

    def jobs(self) -> list[Job]:
        """All that are in the grid, by arrival."""
        return list(self._index.live.values())

    def remember(self, what: str, work_out: Callable[[], Thing]) -> Thing:
        """What was worked out from ``workers`` and ``jobs`` (which they are, and which are paused), kept until one
        of them comes or goes.
        """
        remembered = self._state.remembered
        if what not in remembered:
            remembered[what] = work_out()
        return remembered[what]  # type: ignore[return-value]

    def ready_jobs(self, worker: Worker) -> Iterator[Job]:
        """Jobs with a task to start (not only to replicate) that fits this worker now, by arrival."""
        return self._round(0, self._open_to(worker, self._index.ready))

    def round_of_jobs(self, worker: Worker, after: int) -> Iterator[Job]:
        """Jobs with a task to start or to replicate that fits this worker now, by arrival, from just after
        ``after`` once round to it.
        """
        return self._round(after, self._open_to(worker, self._index.ready, self._index.replicable))

    def could_run(self, job: Job, worker: Worker) -> bool:
        """The worker meets the job's requirements, whatever it is doing now."""
        return self._index.demand.fits(job, worker)

    def demands_met(self, worker: Worker) -> frozenset[Key]:
        """The different requirements of jobs in the grid that the worker meets."""
        return frozenset(key for key, names in self._index.demand.workers.items() if worker.name in names)

    def fits(self, job: Job, worker: Worker) -> bool:
        """The worker meets the job's requirements and has slots free for one of its tasks now."""
        return self._index.free_slots(worker) >= job.spec.requires.slots and self.could_run(job, worker)

    def fresh(self, job: Job) -> Ranges:
        """Its tasks never started, the held one included."""
        return self._state.fresh[job.id]

    def is_held(self, job: Job) -> bool:
        """Its last never-started task is kept back."""
        return self._index.is_held(job)

    def first_startable(self, job: Job, worker: Worker) -> int | None:
        """Its first task that may be started on this worker now: none of its attempts is moving."""
        pool = self._index.pools[job.id]
        fresh = None if self.is_held(job) else self.fresh(job).first_after(0)
        return _least(pool.waiting.first_after(0), fresh, self.first_stranded(job, worker))

    def has_stranded(self, job: Job) -> bool:
        """All that runs of one of its tasks is frozen, and it may have another attempt."""
        return bool(self._index.to_shadow(job))

    def first_stranded(self, job: Job, worker: Worker) -> int | None:
        """Its first task of which all that runs is frozen, and that may have another attempt, on this worker."""
        return self._first_elsewhere(self._index.to_shadow(job), job, worker, 0)

    def next_in_queue(self, job: Job, worker: Worker, after: int) -> int | None:
        """The task whose turn comes after that of ``after`` in the job's queue (the paper's Figure 1): held or
        not, started or not.

        The queue is kept as a circle: taking a task from the head and putting it back at the tail is moving
        the cursor. None: none of its tasks could have an attempt on this worker.
        """
        return self._from_cursor(job, worker, after) or self._from_cursor(job, worker, 0)

    def _from_cursor(self, job: Job, worker: Worker, after: int) -> int | None:
        waiting = self._index.pools[job.id].waiting.first_after(after)
        replicable = self.first_replicable(job, worker, after)
        return _least(waiting, replicable, self.fresh(job).first_after(after))

    def first_replicable(self, job: Job, worker: Worker, after: int = 0) -> int | None:
        """Its first task, from just after ``after`` on, that could have another attempt, on this worker."""
        return self._first_elsewhere(self._index.to_replicate(job), job, worker, after)

    def _first_elsewhere(self, numbers: Ranges, job: Job, worker: Worker, after: int) -> int | None:
        number = numbers.first_after(after)
        while number is not None and self._index.on_worker(TaskId(job.id, number), worker.name):
            number = numbers.first_after(number)
        return number

    def _able_workers(self, replicas: bool) -> list[set[str]]:
        """For each kind of what there is to start or to replicate, those that could run it."""
        workers, ready = self._index.demand.workers, self._index.ready
        keys = {**ready, **self._index.replicable} if replicas else ready
        return [workers[key] for key in keys if workers[key]]

    def _open_to(self, worker: Worker, *families: dict[Key, Ranges]) -> list[Ranges]:
        """Of jobs by what they require, those whose requirements the worker meets as it is now."""
        keys = self.keys_met(worker)
        return [family[key] for family in families for key in keys if key in family]

    def _round(self, after: int, members: list[Ranges]) -> Iterator[Job]:
        """Jobs whose arrival is in any of the sets, looked up one by one, since a wish granted changes them."""
        for low, high in ((after, MAX_ID), (-1, after)):
            at = _first_after(low, members)
            while at is not None and at <= high:
                yield self._index.live[at]
                at = _first_after(at, members)


def _first_after(number: int, members: list[Ranges]) -> int | None:
    return _least(*[m.first_after(number) for m in members])


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)
