"""Durations of attempts by task and machine, derived from a recording (the package's docstring has the model)."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from loopline_shared.model import Outcome, TaskId
from loopline_shared.spec import JobSpec
from loopline_shared.sweep import size_at
from loopline_simulator.fast.availability import Piecewise, Recurring
from loopline_simulator.fast.hosts import Speed, Steady
from loopline_simulator.streams import Generator
from loopline_simulator.whatif.recording import Recording, Span

BELIEVED = 4.0
"""A job's sizes are corrected if its tasks took more than this factor more or less than other sizes let expect."""
A_MINUTE = 60.0
"""Work assumed for a task when the recording contains no work at all."""
_LONGER = 1e-6
Stretch = tuple[float, float, float]  # start, end, speed


@dataclass(frozen=True, slots=True)
class Fate:
    """The end of an attempt, how it ended, and the seconds that its worker reports."""

    end: float
    outcome: Outcome
    wall_s: float
    cpu_s: float


class Durations:
    """Durations of attempts. Work is in reference CPU-seconds by the workers' own measured speed."""

    def __init__(self, recording: Recording) -> None:
        self._specs = {job.id: job.spec for job in recording.tally.jobs.values()}
        self._measured = {name: facts.speed for name, facts in recording.facts.items()}
        self._good: dict[TaskId, list[Span]] = defaultdict(list)
        self._cut: dict[tuple[TaskId, str], Span] = {}
        self._failed: dict[TaskId, list[Span]] = defaultdict(list)
        for span in recording.spans:
            self._sort(span)
        self._used = self._cpu_used()
        self.unit, self._factors = self._calibrated()
        self._stretches = self._seen()
        self.speeds = {worker: _pieces(stretches) for worker, stretches in self._stretches.items()}
        self._pasts = {worker: Past(sorted(seen)[len(seen) > 1 :]) for worker, seen in self._stretches.items()}
        self._begins = sorted(start for seen in self._stretches.values() for start, _, _ in seen)
        self._blocks = max(1, round(math.sqrt(len(self._begins) / max(1, len(self._pasts)))))
        self._block_s = sum(past.length_s for past in self._pasts.values()) / max(1, len(self._pasts)) / self._blocks
        self._of_job = self._works_by_job()
        works = [work for of_job in self._of_job.values() for work in of_job]
        self.works = works or [A_MINUTE]
        self._typical = median(self.works)

    def plan(self, task: TaskId, worker: str, start: float, failures: int) -> Fate:
        """Return the fate of an attempt that starts at ``start``, after ``failures`` failures of its task."""
        failed = self._failed.get(task, [])
        if failures < len(failed):
            return self._fate(task, failed[failures], worker, start)
        for span in self._good.get(task, ()):
            if span.worker == worker and _is_about(span, start):
                return self._fate(task, span, worker, start)
        return self._like(task, start, self._end_of(task, worker, start))

    def work(self, task: TaskId) -> float | None:
        """Return the work of a task; None if it is unknown."""
        size = self._size(task)
        if size is not None:
            return size * self._factors.get(task.job, self.unit)
        if task in self._good:
            return _mean(self._work(span) for span in self._good[task])
        return None

    def typical(self, job: int) -> list[float]:
        """Return the work of this job's tasks; that of all jobs if none of its own is known."""
        return self._of_job.get(job) or self.works

    def speed(self, worker: str) -> Piecewise:
        return self.speeds.get(worker) or Piecewise([0.0], [self._measured.get(worker, 1.0)])

    def future(self, worker: str, random: Generator) -> Speed:
        """Return a future speed, drawn in blocks from the worker's busy time.

        Give each worker the same random numbers, so that blocks come from the same moments: workers often slow down
        together, since they share a network or a computer. The first attempt is left out if there are others, because
        it includes the start of its supervisor and its sandbox.
        """
        past = self._pasts.get(worker)
        if past is None or past.speeds.is_steady:
            return Steady(self.speed(worker).last)
        moments = random.choice(self._begins, self._blocks)
        starts = [past.at_work_before(float(moment)) for moment in moments]
        drawn = past.speeds.of_blocks(starts, self._block_s, past.length_s)
        return Recurring(drawn, 0.0, self._blocks * self._block_s)

    def new_job(self, spec: JobSpec, task: int) -> float | None:
        """Return the work of a task of a new job; None if its size is unknown."""
        size = size_at(spec, task)
        return None if size is None else size * self.unit

    def _end_of(self, task: TaskId, worker: str, start: float) -> float:
        work = self.work(task)
        if work is None:
            work = _mean(self._of_job.get(task.job, [self._typical]))
        end = self.speed(worker).end_of(start, work)
        cut = self._cut.get((task, worker))
        if cut is not None and _is_about(cut, start):
            end = max(end, start + cut.took_s * (1 + _LONGER) + _LONGER)
        return end

    def _fate(self, task: TaskId, span: Span, worker: str, start: float) -> Fate:
        """Return the fate of a recorded attempt, if it starts at ``start`` on this worker."""
        if span.worker == worker:
            return Fate(start + span.took_s, span.outcome, span.wall_s, span.cpu_s)
        return self._like(task, start, self.speed(worker).end_of(start, self._work(span)), span.outcome)

    def _like(self, task: TaskId, start: float, end: float, outcome: Outcome = Outcome.SUCCEEDED) -> Fate:
        """Return a fate of this length, which uses the processor as the job's attempts do."""
        used = self._used.get(task.job, 0.0)
        return Fate(end, outcome, end - start, (end - start) * used)

    def _size(self, task: TaskId) -> float | None:
        spec = self._specs.get(task.job)
        return None if spec is None else size_at(spec, task.task)

    def _sort(self, span: Span) -> None:
        if span.outcome is Outcome.SUCCEEDED:
            self._good[span.task].append(span)
        elif span.outcome is Outcome.FAILED:
            self._failed[span.task].append(span)
        else:
            self._cut[span.task, span.worker] = span

    def _work(self, span: Span) -> float:
        return self.speed(span.worker).work_between(span.start, span.start + span.took_s)

    def _calibrated(self) -> tuple[float, dict[int, float]]:
        """Return the work per unit of size: of all jobs, and of each (the same, unless its sizes are not
        credible).
        """
        ratios: dict[int, list[float]] = defaultdict(list)
        for task, spans in self._good.items():
            size = self._size(task)
            if size is not None:
                ratios[task.job] += [span.took_s * self._measured[span.worker] / size for span in spans]
        by_job = {job: median(of_job) for job, of_job in ratios.items()}
        unit = (median(by_job.values()) if by_job else 0.0) or 1.0
        return unit, {job: unit if _is_near(own, unit) else own for job, own in by_job.items()}

    def _cpu_used(self) -> dict[int, float]:
        """Return the CPU time that attempts of each job took, as a share of their run time."""
        cpu_s, wall_s = defaultdict[int, float](float), defaultdict[int, float](float)
        for task, spans in self._good.items():
            cpu_s[task.job] += sum(span.cpu_s for span in spans)
            wall_s[task.job] += sum(span.wall_s for span in spans)
        return {job: cpu_s[job] / taken for job, taken in wall_s.items() if taken}

    def _seen(self) -> Mapping[str, list[Stretch]]:
        """Return by worker from when until when which speed was seen: by the attempts at tasks of known size."""
        known: dict[str, list[Stretch]] = defaultdict(list)
        for task, spans in self._good.items():
            if self._size(task) is None:
                continue
            for span in spans:
                if span.took_s > 0:
                    speed = (self.work(task) or 0.0) / span.took_s
                    known[span.worker].append((span.start, span.start + span.took_s, speed))
        return known

    def _works_by_job(self) -> dict[int, list[float]]:
        works: dict[int, list[float]] = defaultdict(list)
        for task in self._good:
            works[task.job].append(self.work(task) or 0.0)
        return dict(works)


class Past:
    """A worker's busy time: its busy stretches joined together, without the gaps between them."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        """Take stretches in order, at least one."""
        self._begins = [start for start, _, _ in stretches]
        moved: list[Stretch] = []
        until = gaps = 0.0
        for start, end, speed in stretches:
            gaps += max(0.0, start - until)
            until = max(until, end)
            moved.append((start - gaps, end - gaps, speed))
        self._moved = [(start, end) for start, end, _ in moved]
        self.speeds, self.length_s = _pieces(moved), until - gaps

    def at_work_before(self, moment: float) -> float:
        """Return for how long the worker had been at work then."""
        place = bisect_right(self._begins, moment) - 1
        if place < 0:
            return 0.0
        start, end = self._moved[place]
        return min(end, start + moment - self._begins[place])


def _pieces(stretches: Iterable[Stretch]) -> Piecewise:
    """Return a machine's mean speed over time from (start, end, speed) of its attempts, which may overlap.

    Between attempts the last speed holds.
    """
    edges = sorted(
        (time, kind, speed)
        for start, end, speed in stretches
        for time, kind, speed in ((start, 1, speed), (end, -1, speed))
    )
    times, speeds = [edges[0][0]], [edges[0][2]]
    running: list[float] = []
    for time, kind, speed in edges:
        running.append(speed) if kind > 0 else running.remove(speed)
        mean = _mean(running) if running else speeds[-1]
        if time == times[-1]:
            speeds[-1] = mean
        elif not math.isclose(mean, speeds[-1], rel_tol=1e-9):
            times.append(time)
            speeds.append(mean)
    return Piecewise(times, speeds)


def _is_about(span: Span, start: float) -> bool:
    """True if an attempt that starts then overlaps with the recorded one."""
    return abs(start - span.start) < max(span.took_s, _LONGER)


def _is_near(one: float, other: float) -> bool:
    return other / BELIEVED <= one <= other * BELIEVED


def _mean(numbers: Iterable[float]) -> float:
    listed = list(numbers)
    return sum(listed) / len(listed)
