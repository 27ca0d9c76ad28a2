"""Jobs for a run: their arrival times and sizes. Each job draws from its own stream."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from statistics import fmean

from loopline_shared.spec import JobSpec, TaskSpec
from loopline_simulator.fast.world import Arrival
from loopline_simulator.streams import Generator, stream


class Sizes(StrEnum):
    """Distribution of the sizes of jobs."""

    EQUAL = "equal"  # every job has the same tasks
    LOGNORMAL = "lognormal"  # 95 % of the jobs lie within the decades
    LOG_UNIFORM = "log-uniform"  # all of them do


class Arrivals(StrEnum):
    """Distribution of the times between arrivals."""

    EQUAL = "equal"  # the same time
    POISSON = "poisson"  # an exponential time


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs of equally many tasks, whose sizes are uniform from ``smallest`` to ``largest``.

    Sizes are reference CPU-seconds (10,000 instructions of the no-passing paper). Where jobs differ, a job's factor
    of mean 1 scales all its tasks.
    """

    jobs: int = 32
    tasks: int = 128
    smallest: float = 200.0
    _: KW_ONLY
    largest: float = 600.0
    sizes: Sizes = Sizes.EQUAL
    decades: float = 2.0
    arrivals: Arrivals = Arrivals.EQUAL
    interval: float = 100.0  # mean, in seconds

    @property
    def mean_size(self) -> float:
        return self.tasks * (self.smallest + self.largest) / 2

    def load_on(self, capacity: float) -> float:
        """Return the work that arrives, as a share of the work that could be done."""
        return self.mean_size / (self.interval * capacity)

    def interval_for(self, load: float, capacity: float) -> float:
        """Return the interval that gives this load."""
        return self.mean_size / (load * capacity)

    def of(self, seed: int) -> list[Arrival]:
        """Return the jobs of the run ``seed``, in order."""
        times = arrival_times(self.arrivals, seed, self.jobs, self.interval)
        return [Arrival(at, spec) for at, spec in zip(times, self._specs(seed), strict=True)]

    def _specs(self, seed: int) -> list[JobSpec]:
        if self.sizes is Sizes.EQUAL:
            return [_spec(self.task_sizes(seed, 0))] * self.jobs
        return [_spec(self.task_sizes(seed, number)) for number in range(self.jobs)]

    def task_sizes(self, seed: int, number: int) -> list[float]:
        """Return the task sizes of the ``number``-th job (from 0)."""
        if self.sizes is Sizes.EQUAL:
            random, factor = stream(seed, "tasks"), 1.0
        else:
            random = stream(seed, "job", number)
            factor = self._factor(random)
        return [factor * size for size in random.uniform(self.smallest, self.largest, self.tasks).tolist()]

    def _factor(self, random: Generator) -> float:
        spread = self.decades * math.log(10)
        if self.sizes is Sizes.LOGNORMAL:
            sigma = spread / (2 * 1.96)
            return float(random.lognormal(-(sigma**2) / 2, sigma))
        mean = math.expm1(spread) / spread if spread else 1.0
        return math.exp(spread * float(random.random())) / mean


def arrival_times(arrivals: Arrivals, seed: int, jobs: int, interval: float) -> Iterator[float]:
    """Yield arrival times. The first job comes at 0 if the intervals are equal, otherwise after the first of them."""
    now = 0.0
    for number in range(jobs):
        if arrivals is Arrivals.EQUAL:
            yield number * interval
        else:
            now += float(stream(seed, "arrival", number).exponential(interval))
            yield now


def misdeclared(arrivals: list[Arrival], by: float, seed: int) -> list[Arrival]:
    """Return the same jobs, declared wrong: the log of each one's factor is uniform from 1/``by`` to ``by``.

    Infinity turns the order round: the declared size of each is the inverse of its own, around their geometric mean.
    """
    if by == 1.0:
        return arrivals
    if by == math.inf:
        sizes = [sum(task.size or 0.0 for task in each.spec.tasks or []) for each in arrivals]
        middle = math.exp(fmean(map(math.log, sizes)))
        return [_scaled(each, (middle / size) ** 2) for each, size in zip(arrivals, sizes, strict=True)]
    return [_scaled(each, by ** float(stream(seed, "error", n).uniform(-1, 1))) for n, each in enumerate(arrivals)]


def uncovered(arrivals: list[Arrival], without_size: float, in_sessions: float, seed: int) -> list[Arrival]:
    """Return the same jobs, these shares of them without a size and as sessions of their own.

    The scheduler still knows the sizes of tasks, so that only claims differ.
    """
    changed = []
    for number, each in enumerate(arrivals):
        drawn, spec = float(stream(seed, "covered", number).random()), each.spec
        if drawn < without_size:
            spec = spec.model_copy(update={"size": "unknown"})
        elif drawn < without_size + in_sessions:
            spec = spec.model_copy(update={"session": f"session-{number}"})
        changed.append(Arrival(each.at, spec, each.scale, each.owner))
    return changed


def _scaled(arrival: Arrival, by: float) -> Arrival:
    """Return the job with its declared sizes multiplied; its true work stays."""
    spec = arrival.spec
    tasks = None if spec.tasks is None else [TaskSpec(size=(task.size or 0.0) * by) for task in spec.tasks]
    size = None if spec.size is None else float(spec.size) * by
    return Arrival(arrival.at, spec.model_copy(update={"tasks": tasks, "size": size}), scale=1 / by)


def _spec(sizes: list[float]) -> JobSpec:
    return JobSpec(command=["simulated"], tasks=[TaskSpec(size=size) for size in sizes])
