"""The core experiment once more, by an independent simulator: SimPy, and the no-passing paper read literally.

Nothing of the scheduler, its policies or the fast world is used: jobs and machines draw from Python's own generator,
a machine's speed is stepped unit by unit, a job's queue is a list, and the hold is looked up by comparing with every
job. It is slow, so the experiment is a small one: the means over seeds must agree within both intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from statistics import fmean
from typing import Any

import pytest
import simpy

from loopline_shared.model import Order
from loopline_simulator.fast.machines import Park
from loopline_simulator.fast.trial import Case
from loopline_simulator.fast.trial import run as run_ours
from loopline_simulator.fast.workload import Workload
from loopline_simulator.statistics import Estimate, estimate
from tests.campaign import tried

JOBS, TASKS, PCS, INTERVAL_S = 8, 32, 32, 60.0
SMALLEST, LARGEST, PEAKS = 100.0, 300.0, (1.0, 2.0, 4.0)
PATTERNS = (  # to loaded, to steady, share of the peak when steady, when loaded: the paper's Table 2
    (1 / 1000, 1 / 100, (0.95, 1.0), (0.0, 0.05)),
    (1 / 100, 1 / 10, (0.8, 1.0), (0.0, 0.2)),
)
SEEDS = range(tried(20, 40))


@dataclass
class Job:
    submitted: float
    sizes: list[float]
    queue: list[int]  # unfinished tasks; round robin takes from the head, and puts back at the tail
    fresh: set[int]  # tasks that were never started
    running: dict[int, list[simpy.Process]] = field(default_factory=dict)  # instances by task
    completed: float | None = None

    @property
    def size(self) -> float:
        return sum(self.sizes)


class LiteralGrid:
    """Machines that ask for work whenever they are idle, and a list of jobs in the order of their submission."""

    def __init__(self, seed: int, choose: Callable[[LiteralGrid, int], tuple[Job, int] | None]) -> None:
        self.env, self.random, self.choose = simpy.Environment(), Random(f"literal {seed}"), choose
        self.jobs: list[Job] = []
        self.turn = 0  # of the job that had its turn last, in self.jobs
        self.news = self.env.event()
        self.on_machine: dict[int, tuple[Job, int]] = {}
        sizes = [self.random.uniform(SMALLEST, LARGEST) for _ in range(TASKS)]
        self.env.process(self.submit(sizes))
        for number in range(PCS):
            self.env.process(self.machine(number, PEAKS[number % len(PEAKS)]))
        self.env.run()

    def submit(self, sizes: list[float]) -> Iterator[Any]:
        for _ in range(JOBS):
            self.jobs.append(Job(self.env.now, sizes, list(range(TASKS)), set(range(TASKS))))
            self.wake()
            yield self.env.timeout(INTERVAL_S)

    def wake(self) -> None:
        self.news.succeed()
        self.news = self.env.event()

    def speeds(self, peak: float) -> Iterator[float]:
        """Yield the machine's speed in each unit of time."""
        to_loaded, to_steady, steady, loaded = self.random.choice(PATTERNS)
        is_loaded = self.random.random() < to_loaded / (to_loaded + to_steady)
        while True:
            yield peak * self.random.uniform(*(loaded if is_loaded else steady))
            if self.random.random() < (to_steady if is_loaded else to_loaded):
                is_loaded = not is_loaded

    def machine(self, number: int, peak: float) -> Iterator[Any]:
        clock = SpeedClock(self.speeds(peak))
        while any(job.completed is None for job in self.jobs) or len(self.jobs) < JOBS:
            chosen = self.choose(self, number)
            if chosen is None:
                yield self.news
                continue
            job, task = chosen
            job.fresh.discard(task)
            self.on_machine[number] = chosen
            instance = self.env.process(self.instance(clock, job, task))
            job.running.setdefault(task, []).append(instance)
            yield instance
            del self.on_machine[number]

    def instance(self, clock: SpeedClock, job: Job, task: int) -> Iterator[Any]:
        try:
            yield self.env.timeout(clock.seconds_for(self.env.now, job.sizes[task]))
        except simpy.Interrupt:
            return
        job.queue.remove(task)
        for other in job.running.pop(task):
            if other is not self.env.active_process:
                other.interrupt()
        if not job.queue:
            job.completed = self.env.now
        self.wake()

    def is_held(self, job: Job, task: int) -> bool:
        """True if the task is the job's last fresh one, and an earlier job of at most its size is not completed."""
        if job.fresh != {task}:
            return False
        before = self.jobs[: self.jobs.index(job)]
        return any(
            (other.completed is None) and other.size <= job.size and job.submitted >= other.submitted
            for other in before
        )


class SpeedClock:
    """A machine's past and future speed, stepped unit by unit."""

    def __init__(self, speeds: Iterator[float]) -> None:
        self._speeds, self._units = speeds, list[float]()

    def seconds_for(self, start: float, work: float) -> float:
        """Return how long the work takes from ``start`` on."""
        now = start
        while True:
            unit = int(now)
            while len(self._units) <= unit:
                self._units.append(next(self._speeds))
            possible = self._units[unit] * (unit + 1 - now)
            if possible >= work:
                return now + work / self._units[unit] - start
            work -= possible
            now = unit + 1.0


def round_robin(grid: LiteralGrid, machine: int) -> tuple[Job, int] | None:
    """Figure 1: the next job in turn; the head of its queue, which goes to the tail; a held one spends the turn."""
    count = len(grid.jobs)
    for _ in range(count * (TASKS + 1)):
        grid.turn = (grid.turn + 1) % count
        job = grid.jobs[grid.turn]
        if not job.queue:
            continue
        task = job.queue.pop(0)
        job.queue.append(task)
        if not grid.is_held(job, task):
            return job, task
    return None


def first_come(grid: LiteralGrid, machine: int) -> tuple[Job, int] | None:
    """The first task that was never started, of the first job; no replicas, no hold."""
    return next(((job, min(job.fresh)) for job in grid.jobs if job.fresh), None)


def literal(seed: int, choose: Callable[[LiteralGrid, int], tuple[Job, int] | None]) -> tuple[float, int]:
    """Return the mean total time of a run, and how many pairs of jobs passed."""
    jobs = LiteralGrid(seed, choose).jobs
    ends = [job.completed or 0.0 for job in jobs]
    passed = sum(ends[later] < ends[earlier] for later in range(JOBS) for earlier in range(later))
    return fmean(end - job.submitted for end, job in zip(ends, jobs, strict=True)), passed


def ours(seed: int, policy: str, order: Order) -> tuple[float, int]:
    workload, park = Workload(JOBS, TASKS, SMALLEST, largest=LARGEST, interval=INTERVAL_S), Park(PCS, PEAKS, fit=1.0)
    measures = run_ours(Case(seed, policy, order, workload, park)).measures
    return measures.total.mean, measures.passed


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("choose", "policy", "order"),
    [
        pytest.param(round_robin, "round-robin", Order.HOLD, marks=pytest.mark.campaign),
        (first_come, "first-come", Order.NONE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_both_simulators_agree_within_their_intervals(choose: Any, policy: str, order: Order) -> None:
    theirs, here = [literal(seed, choose) for seed in SEEDS], [ours(seed + 1, policy, order) for seed in SEEDS]
    one, other = (estimate([total for total, _ in runs]) for runs in (theirs, here))
    assert _apart(one, other) <= (one.half_width**2 + other.half_width**2) ** 0.5, (one, other)
    if order is Order.HOLD:
        assert sum(passed for _, passed in theirs) == sum(passed for _, passed in here) == 0


def _apart(one: Estimate, other: Estimate) -> float:
    return abs(one.mean - other.mean)
