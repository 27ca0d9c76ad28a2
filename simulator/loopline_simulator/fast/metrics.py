"""Measures of a run: an observer of the fast world that records jobs and, on request, attempts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from itertools import pairwise
from statistics import fmean

from loopline_master.core.kernel.effects import Effects
from loopline_master.core.kernel.entities import Attempt, Job
from loopline_shared.model import AttemptId, AttemptState
from loopline_simulator.fast.hosts import Speed
from loopline_simulator.fast.passings import JobSpan, count
from loopline_simulator.fast.world import Host
from loopline_simulator.statistics import Moments, moments

_JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, slots=True)
class JobRecord:
    """Times and size of a job. Times are seconds of the run; None for an event still to come."""

    id: int
    arrival: int
    size: float  # reference CPU-seconds; infinite: the scheduler knew none
    _: KW_ONLY
    shown: float | None  # of a job without a size: measured on its tasks
    work: float  # declared for its tasks
    longest_task: float
    is_covered: bool  # False: part of a session, which neither passes nor is passed
    submitted: float
    started: float | None  # its first task
    finished: float | None  # when its completion was committed
    held: tuple[float, float] | None  # its last task: from when until when

    @property
    def waiting(self) -> float:
        return _between(self.submitted, self.started)

    @property
    def execution(self) -> float:
        return _between(self.started, self.finished)

    @property
    def total(self) -> float:
        return _between(self.submitted, self.finished)

    @property
    def held_for(self) -> float:
        return self.held[1] - self.held[0] if self.held else 0.0

    def slowdown(self, capacity: float, fastest: float) -> float:
        """Return the total time as a multiple of the least time that the job needs alone.

        Alone, all hosts together do its work, or the fastest one does its longest task, at the mean speeds given.
        """
        return self.total / max(self.size / capacity, self.longest_task / fastest)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """An attempt as a bar of a Gantt chart."""

    id: AttemptId
    worker: str
    start: float
    _: KW_ONLY
    end: float
    state: AttemptState
    accepted: bool  # its result is the task's
    replica: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Figures of a run for the tables. ``lost_*`` is the share spent in attempts whose result was not used.

    Work that a later attempt continued from, by a checkpoint, is not lost if that attempt's result was used.
    """

    waiting: Moments
    execution: Moments
    total: Moments
    held: Moments
    mean_slowdown: float
    slowdown_by_size: tuple[float, ...]  # means of the jobs' quarters by size, the smallest first
    worst_slowdown: float
    passed: int
    passable: int
    overtaken: int  # pairs that completed out of order by their work, also where no promise covers them
    lost_time: float
    lost_work: float
    spent: float  # work of all attempts, over the declared work of the jobs
    slowest_machines: float  # of any job: mean speed of the machines that computed its results, over that of all
    replicas: int
    kwh: float | None  # of all attempts, above idle; None: no power is declared
    makespan: float
    unfinished: int


class Recorder:
    """Observer for ``FastWorld(..., observe=recorder)``. Attempts are recorded on request only, since they
    are many.
    """

    def __init__(self, hosts: Sequence[Host], *, attempts: bool = False) -> None:
        self.attempts: list[AttemptRecord] = []
        self._keep = attempts
        self._speeds: dict[str, Speed] = {host.name: host.speed for host in hosts}
        self._joules_per_work = {host.name: host.joules_per_work for host in hosts if host.joules_per_work}
        self._joules = 0.0
        self._jobs: dict[int, Job] = {}
        self._spent = Spent()
        self._lost = Spent()
        self._replicas = 0
        self._by_job: dict[int, Spent] = {}  # in attempts whose results were used

    def __call__(self, effects: Effects) -> None:
        self._jobs.update(effects.jobs)  # only the last state of a job's row counts
        for attempt in effects.attempts.values():
            if attempt.ended_at is not None:
                self._ended(attempt, attempt.ended_at)

    def jobs(self) -> list[JobRecord]:
        """Return the jobs in order of arrival."""
        return [_record(job) for job in sorted(self._jobs.values(), key=lambda job: job.arrival)]

    def measures(self, capacity: float, fastest: float) -> Measures:
        """Return the measures of the jobs that have finished; ``capacity`` and ``fastest`` as in
        JobRecord.slowdown.
        """
        jobs = self.jobs()
        ended = [job for job in jobs if job.finished is not None]
        if not ended:
            raise ValueError("no job has finished: there is nothing to measure")
        slowdowns = [job.slowdown(capacity, fastest) for job in ended]
        passings = count([_course(job) for job in jobs if job.is_covered])
        return Measures(
            waiting=moments([job.waiting for job in ended]),
            execution=moments([job.execution for job in ended]),
            total=moments([job.total for job in ended]),
            held=moments([job.held_for for job in ended]),
            mean_slowdown=fmean(slowdowns),
            slowdown_by_size=_by_size(ended, slowdowns),
            worst_slowdown=max(slowdowns),
            passed=passings.passed,
            passable=passings.passable,
            overtaken=count([replace(_course(job), size=job.work) for job in jobs]).passed,
            lost_time=_share(self._lost.time, self._spent.time),
            lost_work=_share(self._lost.work, self._spent.work),
            spent=_share(self._spent.work, sum(job.work for job in jobs)),
            slowest_machines=self._slowest_machines(ended, capacity / len(self._speeds)),
            replicas=self._replicas,
            kwh=self._joules / _JOULES_PER_KWH if self._joules_per_work else None,
            makespan=max(job.finished or 0.0 for job in ended),
            unfinished=len(jobs) - len(ended),
        )

    def _slowest_machines(self, ended: Sequence[JobRecord], mean_speed: float) -> float:
        """Return the third situation that the no-passing paper calls unwanted: a job gets only slow machines."""
        shares = [self._by_job[job.id] for job in ended if job.id in self._by_job]
        return min((one.work / one.time / mean_speed for one in shares if one.time), default=math.nan)

    def _ended(self, attempt: Attempt, end: float) -> None:
        start = attempt.dispatched_at
        work = self._speeds[attempt.worker].work_between(start, end)
        self._spent.add(end - start, work)
        if self._joules_per_work:
            self._joules += self._joules_per_work[attempt.worker] * work
        self._replicas += attempt.replica
        if attempt.accepted:
            self._by_job.setdefault(attempt.job, Spent()).add(end - start, work)
        else:
            self._lost.add(end - start, work)
        if self._keep:
            state, accepted, replica = attempt.state, attempt.accepted, attempt.replica
            self.attempts.append(
                AttemptRecord(
                    attempt.id, attempt.worker, start, end=end, state=state, accepted=accepted, replica=replica
                )
            )


@dataclass(slots=True)
class Spent:
    """Computing: seconds, and reference CPU-seconds of work."""

    time: float = 0.0
    work: float = 0.0

    def add(self, time: float, work: float) -> None:
        self.time += time
        self.work += work


def _record(job: Job) -> JobRecord:
    sizes = [task.size or 0.0 for task in job.spec.tasks or []] or [(job.size or 0.0) / job.task_count]
    held = None if job.held_at is None or job.released_at is None else (job.held_at, job.released_at)
    return JobRecord(
        job.id,
        job.arrival,
        math.inf if job.size is None else job.size,
        shown=job.shown,
        work=sum(sizes),
        longest_task=max(sizes),
        is_covered=job.session is None,
        submitted=job.submitted_at,
        started=job.started_at,
        finished=job.finished_at,
        held=held,
    )


def _course(job: JobRecord) -> JobSpan:
    size = None if math.isinf(job.size) else job.size
    return JobSpan(job.submitted, size, math.inf if job.finished is None else job.finished, job.shown)


def _by_size(jobs: Sequence[JobRecord], values: Sequence[float]) -> tuple[float, ...]:
    """Return the mean value in each quarter of the jobs by size; no quarters of fewer than four jobs."""
    ordered = [value for _, value in sorted(zip((job.size for job in jobs), values, strict=True))]
    count = len(ordered)
    edges = [count * part // 4 for part in range(5)]
    return tuple(fmean(ordered[low:high]) for low, high in pairwise(edges)) if count >= 4 else ()


def _between(start: float | None, end: float | None) -> float:
    return math.nan if start is None or end is None else end - start


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
