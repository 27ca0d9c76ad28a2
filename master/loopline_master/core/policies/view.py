"""What a policy may read, and its wish. Policies propose; the scheduler checks each wish and disposes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from loopline_master.core.entities import Grid, Job, Worker
from loopline_master.core.estimates import measure
from loopline_master.core.index.intervals import Ranges
from loopline_master.core.index.prefetched import milliseconds
from loopline_master.core.index.requirements import Key
from loopline_master.core.state import State
from loopline_shared.model import MAX_ID

Thing = TypeVar("Thing")

_LOOK_AT = 64
"""So many tasks that have failed on a worker are passed over for one that has not."""
_MANY = 32
"""So many attempts that wait are many, unless they take but moments."""
_PATIENCE = 8
"""So many workers with room are offered in vain at a time."""


@dataclass(slots=True)  # not frozen: one is made for each attempt
class Placement:
    """A wish: an attempt at this task of this job, on this worker."""

    job: int
    task: int
    worker: str
    ahead: bool = False  # to wait there for a slot


class View:
    """The grid as it is at this moment: a wish granted shows at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._index, self._room, self._attempts = state.index, state.index.room, state.index.attempts

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

    def keys_met(self, worker: Worker) -> Sequence[Key]:
        """The different requirements of jobs in the grid that the worker meets as it is now."""
        return self._index.demand.served_in(self._room.free_slots(worker), worker.name)

    def keys_met_by(self, worker: Worker) -> Sequence[Key]:
        """Those of one slot that it meets when it is not at work in all of them."""
        return self._index.demand.served_in(1, worker.name)

    def is_on(self, job: Job, task: int, worker: Worker) -> bool:
        """An attempt of the task is on this worker already."""
        return self._index.on_worker(job.task_id(task), worker.name)

    @property
    def pointer(self) -> int:
        """Arrival of the job whose turn was last."""
        return self._state.grid.pointer

    def idle_workers(self, *, replicas: bool) -> Iterator[Worker]:
        """Those with free slots, most free first, as long as there is anything to start (or, with ``replicas``, to
        replicate). One that was offered and given nothing is not offered again.
        """
        idle, demand, passed_over = self._room.idle, self._index.demand, None
        wanted = self._index.open if replicas else self._index.ready
        while (entry := idle.next_after(passed_over)) is not None:
            changes = idle.changes
            if not wanted.keys().isdisjoint(demand.served_by(entry[-1])):
                yield self._state.workers[entry[-1]]
            elif not any(demand.workers[key] for key in wanted):
                return  # nobody could run any of it
            if changes == idle.changes:
                passed_over = entry

    # What may be sent ahead, to wait at a worker for a slot. Only tasks to start, never replicas.

    def workers_with_room(self) -> Iterator[Worker]:
        """Those at work in all their slots where more may wait, the least laden first, as long as there is anything
        to start that might be short enough. One given nothing is not offered again; after a few such, none is.
        """
        full, brief, passed_over = self._room.full, self._index.brief.order, 0
        grid, workers, ahead_s = self._state.grid, self._state.workers, self._state.ahead_s
        most_ms = milliseconds(ahead_s)
        is_over = False
        while not is_over and brief:
            is_over, changes, (least, _) = True, full.changes, brief[0]
            for wait_ms, name in full.order[passed_over : passed_over + _PATIENCE]:
                if wait_ms >= most_ms:
                    return
                worker = workers[name]
                is_any_short = least / measure.speed_of(grid, worker) <= ahead_s
                if is_any_short and self._has_room(name):
                    yield worker
                    if changes != self._room.full.changes:
                        is_over = False
                        break
                passed_over += 1

    def jobs_ahead(self, after: Callable[[], int]) -> Iterator[tuple[Job, Worker]]:
        """Each worker with room, and the job whose turn it is there: from that arrival once round."""
        asked: tuple[Sequence[Key], int, int] | None = None
        for worker in self.workers_with_room():
            asks = (self.keys_met_by(worker), after(), self._room.full.changes)
            if asks != asked:
                asked, job = asks, next(self.jobs_to_start(worker, after()), None)
            if job is not None:
                yield job, worker

    def _has_room(self, name: str) -> bool:
        """For one more attempt that waits, however short. Of very short ones many may: a worker that ends thousands a
        second must not wait for a round trip; others, whose number each Report repeats, may not, whatever the policy.
        """
        waiting, settings = len(self._attempts.queues.of_worker.get(name, ())), self._state.settings
        if waiting < _MANY or waiting >= settings.max_ahead:
            return waiting < settings.max_ahead
        return self.waiting_s(self._state.workers[name]) <= settings.ahead_s

    def room_s(self, worker: Worker) -> float:
        """How long a task may be expected to take that is sent to wait at this worker; 0: none may."""
        name, ahead_s = worker.name, self._state.ahead_s
        left_s = ahead_s * worker.offered - self._attempts.queues.work_ms.get(name, 0) / 1e3
        if left_s <= 0 or not self._has_room(name) or not self._room.is_full(worker):
            return 0.0
        return left_s if left_s < ahead_s else ahead_s

    def has_room(self, worker: Worker) -> bool:
        """Some task may be sent to wait at this worker."""
        return self.room_s(worker) > 0

    def may_wait(self, job: Job, task: int, worker: Worker) -> bool:
        """Whether the task may be sent ahead to this worker: it is one to start, it is known not to take long, and it
        needs but one slot, so that the first that falls free will do.
        """
        is_fresh = task in self._state.fresh[job.id] and not self._index.is_held(job)
        if not (is_fresh or task in self._index.pools[job.id].waiting) or job.slots > 1:
            return False
        if not measure.is_known(job, task) or not self.could_run(job, worker) or self.is_on(job, task, worker):
            return False
        if self.should_go_elsewhere(job, task, worker):
            return False
        return 0 < self.expected_s(job, task, worker) <= self.room_s(worker)

    def expected_s(self, job: Job, task: int, worker: Worker) -> float:
        """How long the task would run on this worker."""
        return measure.work_of(self._state.grid, job, task) / measure.speed_of(self._state.grid, worker)

    def waiting_s(self, worker: Worker) -> float:
        """Expected work that waits at the worker, for each of its slots."""
        return self._attempts.queues.work_ms.get(worker.name, 0) / 1e3 / max(1, worker.offered)

    def free_at(self, worker: Worker) -> float:
        """From when on one more task is expected to have a slot of this worker, which is at work in all of them."""
        seated = [attempt.since + attempt.expected_s for attempt in self._attempts.seated_on(worker.name)]
        if seated:
            return min(seated) + self.waiting_s(worker)
        attempts = self._attempts.of_worker.get(worker.name, {}).values()
        return min((attempt.dispatched_at for attempt in attempts), default=0.0) + self.waiting_s(worker)

    def in_hand(self, worker: Worker) -> int:
        """Slots that it has in use, and tasks that wait there for one."""
        return self._attempts.in_hand(worker.name)

    def next_ahead(self, job: Job, worker: Worker, after: int = 0) -> int | None:
        """The job's next task to start after ``after``, else its first; None: it could not wait at this worker."""
        if self.is_too_long(job, worker):
            return None
        fresh = Ranges() if self.is_held(job) else self.fresh(job)
        task = _least(self._first_waiting(job, worker, after), fresh.first_after(after))
        return task or _least(self._first_waiting(job, worker, 0), fresh.first_after(0))

    def is_too_long(self, job: Job, worker: Worker) -> bool:
        """None of the job's tasks may wait there: they are alike, and each is known to take too long."""
        return job.sweep.is_uniform and self.expected_s(job, 1, worker) > self._state.ahead_s

    # For policies that take the next task, and look for its worker.

    def next_to_start(self, after: int, in_vain: Mapping[Key, int], most: int) -> Job | None:
        """The first job that came after that arrival with a task to start, but for requirements asked ``most`` times
        in vain.
        """
        ready = self._index.ready
        arrival = _first_of([ready[key] for key in ready if in_vain.get(key, 0) < most])(after)
        return None if arrival is None else self._index.live[arrival]

    def to_start(self, job: Job) -> Iterator[int]:
        """Tasks of it to start: the first of those to be tried again and of those never started, and a few that stand
        still.
        """
        pool = self._index.pools[job.id]
        fresh = None if self.is_held(job) else self.fresh(job).first_after(0)
        yield from sorted(number for number in (pool.waiting.first_after(0), fresh) if number is not None)
        yield from islice(self._index.to_shadow(job), _PATIENCE)

    def worker(self, name: str) -> Worker:
        return self._state.workers[name]

    def key_of(self, job: Job) -> Key:
        """What the job requires."""
        return self._index.demand.key_of(job)

    # What is in the grid.

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

    def jobs_to_start(self, worker: Worker, after: int) -> Iterator[Job]:
        """Jobs with a task to start that fits one slot of this worker, by arrival, from ``after`` once round."""
        ready = self._index.ready
        return self._round(after, [ready[key] for key in self.keys_met_by(worker) if key in ready])

    def round_of_jobs(self, worker: Worker, after: int) -> Iterator[Job]:
        """Jobs with a task to start or to replicate that fits this worker now, by arrival, from just after
        ``after`` once round to it.
        """
        return self._round(after, self._open_to(worker, self._index.open))

    def could_run(self, job: Job, worker: Worker) -> bool:
        """The worker meets the job's requirements, whatever it is doing now."""
        return self._index.demand.fits(job, worker)

    def demands_met(self, worker: Worker) -> frozenset[Key]:
        """The different requirements of jobs in the grid that the worker meets."""
        return frozenset(self._index.demand.served_by(worker.name))

    def fits(self, job: Job, worker: Worker) -> bool:
        """The worker meets the job's requirements and has slots free for one of its tasks now."""
        free, demand = self._room.idle.keys.get(worker.name), self._index.demand
        return free is not None and -free[0] >= job.slots and demand.fits(job, worker)

    def fresh(self, job: Job) -> Ranges:
        """Its tasks never started, the held one included."""
        return self._state.fresh[job.id]

    def is_held(self, job: Job) -> bool:
        """Its last never-started task is kept back."""
        return self._index.is_held(job)

    def first_startable(self, job: Job, worker: Worker) -> int | None:
        """Its first task that may be started on this worker now: none of its attempts is moving."""
        fresh = None if self.is_held(job) else self.fresh(job).first_after(0)
        found = _least(self._first_waiting(job, worker, 0), fresh)
        return _least(found, self.first_stranded(job, worker)) if self.has_stranded(job) else found

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
        fresh = self._state.fresh[job.id]
        if after + 1 in fresh:
            return after + 1  # as most often: none of the others could come before it
        pool, others = self._index.pools[job.id], self._index.to_replicate(job)
        for start in (after, 0):
            found = fresh.first_after(start)
            if pool.waiting.starts:
                found = _least(found, self._first_waiting(job, worker, start))
            if others.starts:
                found = _least(found, self._first_elsewhere(others, job, worker, start))
            if found is not None:
                return found
        return None

    def first_replicable(self, job: Job, worker: Worker, after: int = 0) -> int | None:
        """Its first task, from just after ``after`` on, that could have another attempt, on this worker."""
        return self._first_elsewhere(self._index.to_replicate(job), job, worker, after)

    def should_go_elsewhere(self, job: Job, task: int, worker: Worker) -> bool:
        """The task has failed on this worker, which is in bad standing, and there is another one for it: there it
        will show whose doing that was.
        """
        if worker.standing >= 0:
            return False
        known = self._state.tasks.get(job.task_id(task))
        if known is None or worker.name not in known.failed_on:
            return False
        barred = {*known.failed_on, *self._index.voters.get(known.id, ())}
        return any(name not in barred for name in self._index.demand.trusted[self._index.demand.key_of(job)])

    def _first_waiting(self, job: Job, worker: Worker, after: int) -> int | None:
        """Its first task to start again, passing over those that had better go elsewhere."""
        waiting, number = self._index.pools[job.id].waiting, after
        if not waiting.starts:
            return None
        for _ in range(_LOOK_AT):
            found = waiting.first_after(number)
            if found is None or not self.should_go_elsewhere(job, found, worker):
                return found
            number = found
        return None

    def _first_elsewhere(self, numbers: Ranges, job: Job, worker: Worker, after: int) -> int | None:
        number = numbers.first_after(after)
        while number is not None and self._index.on_worker(job.task_id(number), worker.name):
            number = numbers.first_after(number)
        return number

    def _open_to(self, worker: Worker, family: dict[Key, Ranges]) -> list[Ranges]:
        """Of jobs by what they require, those whose requirements the worker meets as it is now."""
        members = []
        for key in self._index.demand.served_in(self._room.free_slots(worker), worker.name):
            found = family.get(key)
            if found is not None:
                members.append(found)
        return members

    def _round(self, after: int, members: list[Ranges]) -> Iterator[Job]:
        """Jobs whose arrival is in any of the sets, looked up one by one, since a wish granted changes them."""
        first_after = _first_of(members)
        for low, high in ((after, MAX_ID), (-1, after)):
            at = first_after(low)
            while at is not None and at <= high:
                yield self._index.live[at]
                at = first_after(at)


def _first_of(members: list[Ranges]) -> Callable[[int], int | None]:
    """What finds the smallest member of any that is greater than a number."""
    return members[0].first_after if len(members) == 1 else partial(_first_after, members)


def _first_after(members: list[Ranges], number: int) -> int | None:
    first = None
    for each in members:
        first = _least(first, each.first_after(number))
    return first


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or (other is not None and other < one):
        return other
    return one
