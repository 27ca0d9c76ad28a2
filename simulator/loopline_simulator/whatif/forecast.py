"""Forecast for one more job now: its start and end, the jobs it delays, and the jobs it waits for.

The grid continues from the log's end, once with the new job and once without, with the same random numbers. Unknown
quantities are drawn for each seed: the work of a task without a size from the work of its job's tasks (or of any); a
machine's speed from its recorded past, in blocks drawn with replacement, of the same moments for all machines.
Connected machines stay, others stay away; there are no further submissions and no failures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from loopline_master.core.events import JobSubmitted, MasterStarted, SchedulerSettings
from loopline_master.core.kernel.effects import Declined, Effects, Submitted
from loopline_master.core.kernel.entities import LIVE, Attempt, Job, Worker
from loopline_master.core.kernel.index.sorted_collections import IntervalSet
from loopline_master.core.kernel.state import State
from loopline_master.core.scheduler import Scheduler
from loopline_master.core.snapshot import Snapshot
from loopline_shared.errors import LooplineError
from loopline_shared.model import AttemptId, Load, Order, TaskId
from loopline_shared.spec import JobSpec
from loopline_simulator.fast.changing_world import ChangingWorld
from loopline_simulator.fast.hosts import Speed, Steady
from loopline_simulator.fast.world import Host
from loopline_simulator.streams import stream
from loopline_simulator.whatif.durations import Durations
from loopline_simulator.whatif.recording import Recording
from loopline_simulator.whatif.tally import Tally


class Luck:
    """Random draws of one seed, the same with the new job and without it."""

    def __init__(self, recording: Recording, durations: Durations, seed: int, new: JobSpec) -> None:
        self._recording, self._durations, self._seed, self._new = recording, durations, seed, new
        self.is_certain = True  # until a random draw

    def speed(self, worker: str) -> Speed:
        """Return the worker's speed from now on."""
        drawn = self._durations.future(worker, stream(self._seed, "moments"))
        self.is_certain = self.is_certain and isinstance(drawn, Steady)
        return drawn

    def work(self, task: TaskId) -> float:
        known = self._known(task)
        return known if known is not None else self._drawn(task, self._durations.typical(task.job))

    def rest(self, attempt: Attempt, now: float) -> float:
        """Return the work left of a running task; a late one is taken to last about as long again as it is late."""
        began = attempt.since - self._recording.began  # without the wait at its worker
        done = self._durations.speed(attempt.worker).work_between(began, now)
        known = self._known(attempt.task_id)
        longer = [work for work in self._durations.typical(attempt.job) if work > done]
        if known is not None and known > done:
            return known - done
        if known is None and longer:
            return self._drawn(attempt.task_id, longer) - done
        self.is_certain = False
        late = done if known is None else 2 * (done - known)  # as long again as it is late, in the mean
        return late * float(stream(self._seed, "rest", *attempt.id).random())

    def _known(self, task: TaskId) -> float | None:
        if task.job == self._recording.scheduler.state.grid.next_job:
            return self._durations.new_job(self._new, task.task)
        return self._durations.work(task)

    def _drawn(self, task: TaskId, works: list[float]) -> float:
        self.is_certain = self.is_certain and len(works) == 1
        return works[int(stream(self._seed, "work", *task).integers(len(works)))]


class ForecastWorld(ChangingWorld):
    """The grid from the log's end on. Times are seconds since 1970."""

    def __init__(
        self, recording: Recording, luck: Luck, settings: SchedulerSettings, observe: Callable[[Effects], None]
    ) -> None:
        self._recording, self._luck = recording, luck
        self.now = recording.began + recording.ended
        super().__init__(settings, [], [], observe)

    def submit(self, spec: JobSpec) -> Job:
        """Submit the new job. Raises LooplineError if the master would decline it."""
        (reply,) = self._step([JobSubmitted("user", spec)]).replies
        if isinstance(reply, Declined):
            raise LooplineError(reply.code, reply.message, reply.hint, reply.status)
        assert isinstance(reply, Submitted)
        return self.scheduler.state.jobs[reply.job]

    def _begin(self, settings: SchedulerSettings) -> None:
        """Begin as a restarted master does: its workers come back and report their attempts."""
        self.kernel.now = self.now
        state = self._recording.scheduler.state
        self.scheduler = Scheduler(_snapshot(state))
        present = [self._host(worker) for worker in state.workers.values() if worker.session is not None]
        self._hosts = {host.name: host for host in present}
        for attempt in state.attempts.values():
            if attempt.state in LIVE and attempt.worker in self._hosts:
                self._go_on(self._hosts[attempt.worker], attempt)
        self._step([MasterStarted(settings)])
        self.connect(present)
        self._keep_leases(settings)

    def _host(self, worker: Worker) -> Host:
        host = Host(worker.name, worker.facts, self._luck.speed(worker.name), session=worker.session or 1)
        host.offered = worker.offered if worker.reported else worker.facts.slots
        return host

    def _go_on(self, host: Host, attempt: Attempt) -> None:
        """Continue an attempt that was under way when the log ended."""
        if attempt.is_queued:
            host.waiting[attempt.id] = attempt.slots
            return
        host.taken[attempt.id] = attempt.slots
        end = self.now + host.speed.end_of(0.0, self._luck.rest(attempt, self._recording.ended))
        self._until(host, attempt.id, end, lambda: self._end(host, attempt.id))
        host.running[attempt.id] = (attempt.since, host.running[attempt.id][1])

    def _load(self, host: Host) -> Load:
        """Return the load that the worker reported last."""
        load, last = super()._load(host), self._recording.loads.get(host.name)
        return replace(last[-1][1], slots=load.slots) if last else load

    def _end_of(self, host: Host, attempt: AttemptId) -> float:
        return self.now + host.speed.end_of(self.kernel.now - self.now, self._luck.work(attempt.task_id))


@dataclass(frozen=True, slots=True)
class ForecastRun:
    """Forecast of one seed; times in seconds from now, None for never."""

    start: float | None
    end: float | None
    delays: dict[int, float | None]  # by job that ends without the new one; None: with it, the job never ends
    waits_for: list[int]
    is_certain: bool


def forecast(
    recording: Recording, durations: Durations, spec: JobSpec, settings: SchedulerSettings, seed: int
) -> ForecastRun:
    luck = Luck(recording, durations, seed, spec)
    without, with_it = Tally(), Tally()
    ForecastWorld(recording, luck, settings, without).run()
    world = ForecastWorld(recording, luck, settings, with_it)
    new = world.submit(spec)
    waits_for = _waits_for(world.scheduler.state, new)
    world.run()
    return ForecastRun(
        start=_since(world.now, new.started_at),
        end=_since(world.now, new.finished_at),
        delays={
            job.id: _since(job.finished_at, with_it.jobs.get(job.id, job).finished_at)
            for job in without.jobs.values()
            if job.finished_at is not None and job.finished_at > world.now
        },
        waits_for=waits_for,
        is_certain=luck.is_certain,
    )


def forecasts(
    recording: Recording, durations: Durations, spec: JobSpec, settings: SchedulerSettings, seeds: int
) -> list[ForecastRun]:
    """Return a forecast for each seed; a single one if nothing is drawn at random."""
    first = forecast(recording, durations, spec, settings, 1)
    more = range(2, seeds + 1) if not first.is_certain else ()
    return [first, *(forecast(recording, durations, spec, settings, seed) for seed in more)]


def _waits_for(state: State, new: Job) -> list[int]:
    if new.order is Order.NONE:
        return []
    arrivals = state.index.hold_over(new).predecessors(new.arrival, new.weight)
    return sorted(state.index.live[arrival].id for arrival in arrivals)


def _since(start: float, end: float | None) -> float | None:
    return None if end is None else end - start


def _snapshot(state: State) -> Snapshot:
    """Return copies of all live entities, because each run changes its own."""
    fresh = {job.id: [*state.fresh[job.id].pairs()] for job in state.jobs.values()}
    return Snapshot(
        grid=replace(state.grid),
        jobs=[replace(job) for job in state.jobs.values()],
        tasks=[replace(task) for task in state.tasks.values()],
        attempts=[replace(attempt) for attempt in state.attempts.values()],
        workers=[replace(worker) for worker in state.workers.values()],
        started={job.id: _complement(fresh[job.id], job.task_count) for job in state.jobs.values()},
    )


def _complement(fresh: list[tuple[int, int]], task_count: int) -> list[tuple[int, int]]:
    edges = [1, *(edge for pair in fresh for edge in pair), task_count + 1]
    return IntervalSet(zip(edges[::2], edges[1::2], strict=True)).pairs()
