"""Rectangles for a rack: drawn, each from its own stream, or read from a recorded log."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path

from loopline_master.core.wings.gangs.planning.rack import Rack
from loopline_shared.errors import LooplineError
from loopline_simulator.fast.workload import Arrivals, arrival_times
from loopline_simulator.streams import Generator, stream
from loopline_simulator.traces.files import named, opened
from loopline_simulator.traces.swf import SwfJob, read_jobs


@dataclass(frozen=True, slots=True)
class RackJob:
    """A rectangle of nodes. Times are in steps; ``runs``, at most ``limit``, is unknown until it ends."""

    number: int
    arrival: int
    width: int
    height: int
    _: KW_ONLY
    limit: int
    runs: int

    @property
    def nodes(self) -> int:
        return self.width * self.height


class Sides(StrEnum):
    """Distribution of the sides of a rectangle."""

    UNIFORM = "uniform"  # from 1 to the largest
    POWERS = "powers"  # a power of two up to the largest


@dataclass(frozen=True, slots=True)
class Drawn:
    """Random jobs that arrive as a Poisson process.

    ``used`` is the mean share of its limit that a job runs for: 1 is the paper's scenario 1, 0.5 its scenario 2. The
    shares are uniform about it, as widely as (0, 1] allows.
    """

    count: int = 600
    largest_side: int = 8
    longest: int = 20  # limits are uniform from 1 to it
    _: KW_ONLY
    used: float = 1.0
    load: float = 0.9  # arriving work, as a share of the rack's capacity
    sides: Sides = Sides.UNIFORM

    def of(self, seed: int, rack: Rack) -> list[RackJob]:
        """Return the jobs of the run ``seed``. Loads and shares leave their shapes and limits unchanged."""
        times = arrival_times(Arrivals.POISSON, seed, self.count, self._interval(rack))
        return [self._job(seed, number, int(time)) for number, time in enumerate(times)]

    def _job(self, seed: int, number: int, arrival: int) -> RackJob:
        random = stream(seed, "rectangle", number)
        width, height = self._side(random), self._side(random)
        limit = int(random.integers(1, self.longest + 1))
        least, most = self._shares
        share = least + (most - least) * (1.0 - float(random.random()))
        return RackJob(number, arrival, width, height, limit=limit, runs=max(1, math.ceil(share * limit)))

    def _side(self, random: Generator) -> int:
        if self.sides is Sides.UNIFORM:
            return int(random.integers(1, self.largest_side + 1))
        return 1 << int(random.integers(self.largest_side.bit_length()))

    @property
    def _shares(self) -> tuple[float, float]:
        return max(0.0, 2 * self.used - 1), min(1.0, 2 * self.used)

    def _interval(self, rack: Rack) -> float:
        """Mean time between two arrivals."""
        return self._mean_side * self._mean_side * self._mean_run / (self.load * rack.nodes)

    @property
    def _mean_side(self) -> float:
        if self.sides is Sides.UNIFORM:
            return (1 + self.largest_side) / 2
        kinds = self.largest_side.bit_length()
        return ((1 << kinds) - 1) / kinds

    @property
    def _mean_run(self) -> float:
        """Mean run time; rounding up adds half a step where shares vary."""
        rounding = 0.5 if self.used < 1 else 0.0
        return self.used * (1 + self.longest) / 2 + rounding


@dataclass(frozen=True, slots=True)
class Logged:
    """Jobs of a file in the Standard Workload Format that have processors, a run time, and room in the rack.

    Each becomes the squarest rectangle of at least as many nodes as it asked for. Without a requested time, its run
    time is its limit. ``load`` scales the times between arrivals; by default they are as logged.
    """

    file: Path
    step_s: float = 60.0  # one step of time
    first: int | None = None  # number of jobs to use
    load: float | None = None

    def of(self, seed: int, rack: Rack) -> list[RackJob]:
        """Return the jobs, which are the same for every seed."""
        with opened(self.file) as lines, named(self.file):
            jobs = list(islice(_rectangles(read_jobs(lines), rack, self.step_s), self.first))
        if not jobs:
            hint = "a job must have processors, at most as many as the rack has nodes, and a run time"
            raise LooplineError("trace", f"{self.file}: no job in it can run", hint)
        return self._scaled(sorted(jobs, key=lambda job: (job.arrival, job.number)), rack)

    def _scaled(self, jobs: list[RackJob], rack: Rack) -> list[RackJob]:
        first = jobs[0].arrival
        factor = 1.0 if self.load is None else load_of(jobs, rack) / self.load
        times = [int((job.arrival - first) * factor) for job in jobs]
        return [
            replace(job, number=number, arrival=time)
            for number, (job, time) in enumerate(zip(jobs, times, strict=True))
        ]


def load_of(jobs: Sequence[RackJob], rack: Rack) -> float:
    """Return the arriving work as a share of the rack's capacity in that time."""
    span = max(job.arrival for job in jobs) - min(job.arrival for job in jobs)
    return sum(job.nodes * job.runs for job in jobs) / (rack.nodes * max(1, span))


def _rectangles(jobs: Iterable[SwfJob], rack: Rack, step_s: float) -> Iterator[RackJob]:
    for job in jobs:
        count = job.requested_processors or job.processors
        if not count or not job.run_time:
            continue
        width, height = squarest(count, rack)
        if count <= rack.nodes and height <= rack.height:
            limit = math.ceil((job.requested_time or job.run_time) / step_s)
            runs = min(limit, math.ceil(job.run_time / step_s))
            yield RackJob(job.number, int(job.submitted / step_s), width, height, limit=limit, runs=runs)


def squarest(count: int, rack: Rack) -> tuple[int, int]:
    """Return the sides of a rectangle of ``count`` nodes or a few more, as square as the rack's width allows.

    The result is higher than the rack if no such rectangle fits.
    """
    width = min(rack.width, max(math.isqrt(count - 1) + 1, -(-count // rack.height)))
    return width, -(-count // width)
